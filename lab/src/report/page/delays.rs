//! Median delays over a setting, such as the size of frames, as the study of 2010 draws them: a line for each
//! contender.

use super::measured::across;
use crate::report::chart::{Chart, Line, Lines, Point, lines, split};
use crate::report::findings::{LEVEL, MeasuredCell, Part, Setting};
use crate::report::html::{Table, TableCell};
use crate::report::quantity::Scale;
use crate::stats::{self, Interval};

/// More lines than this in one drawing are not readable: the rest goes into further drawings.
const MAX_LINES: usize = 16;

/// A level with the mean of its medians and the interval of that.
type Median = (f64, f64, Option<Interval>);

/// A line's name and its points.
type Row = (String, Vec<Median>);

/// The charts of what is timed under this name; none where no setting with numbers varies.
pub(super) fn charts(part: &Part, timed: &str, title: &str) -> Vec<Chart> {
    let Some(across) = across(part) else {
        return Vec::new();
    };
    let rows = rows(part, across, &format!("{timed}.p50_us"));
    let setting = &part.settings[across];
    let title = part.titled(&format!("{title}, over {}", setting.name));
    let drawings = split(&title, &rows, MAX_LINES).into_iter();
    drawings
        .map(|(title, rows)| chart(title, setting, rows))
        .collect()
}

fn rows(part: &Part, across: usize, figure: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for cell in &part.cells {
        let values = cell.all(figure);
        let level = cell.levels[across].parse();
        let (Some(mean), Ok(level)) = (stats::mean(&values), level) else {
            continue;
        };
        let point = (level, mean, stats::mean_interval(&values, LEVEL));
        let name = name(part, cell, across);
        match rows.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => rows.push((name, vec![point])),
        }
    }
    let by_level = |a: &Median, b: &Median| a.0.total_cmp(&b.0);
    rows.iter_mut()
        .for_each(|(_, points)| points.sort_by(by_level));
    rows
}

/// The contender with its other settings.
fn name(part: &Part, cell: &MeasuredCell, across: usize) -> String {
    let settings = part.settings.iter().zip(&cell.levels).enumerate();
    let others = settings.filter(|(place, (_, level))| *place != across && !level.is_empty());
    let others = others.map(|(_, (setting, level))| format!("{} {level}", setting.name));
    let words = std::iter::once(cell.label.to_owned()).chain(others);
    words.collect::<Vec<_>>().join(" · ")
}

fn chart(title: String, setting: &Setting, rows: &[Row]) -> Chart {
    let points = rows.iter().flat_map(|(_, points)| points);
    let most = points.map(|(_, mean, _)| *mean).fold(0.0, f64::max);
    let scale = Scale::of("delay_us", most);
    let table = table(&title, setting, rows, &scale);
    let point = |&(x, y, interval): &Median| Point { x, y, interval };
    let drawn: Vec<Line> = rows
        .iter()
        .map(|(name, points)| Line::measured(name, points.iter().map(point).collect()))
        .collect();
    let description = format!(
        "Lines: {title}, of {} contenders; the table below has the numbers.",
        drawn.len()
    );
    let frame = Lines {
        x: &setting.name,
        places: &[],
        decades: Line::span_decades(&drawn),
        scale,
        description: &description,
    };
    Chart {
        note: "Medians of each round; points are their means, bands the 95 % intervals.".into(),
        picture: lines(&drawn, &frame),
        table,
        title,
    }
}

fn table(title: &str, setting: &Setting, rows: &[Row], scale: &Scale) -> Table {
    let levels = setting.levels.iter().map(|level| format!("#{level}"));
    let head: Vec<String> = std::iter::once("contender".to_owned())
        .chain(levels)
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(title, &head);
    table.rows.extend(rows.iter().map(|(name, points)| {
        let at = |level: &String| {
            let is_here = |(x, ..): &&Median| level.parse() == Ok(*x);
            let mean = points.iter().find(is_here).map(|(_, mean, _)| *mean);
            TableCell::maybe(mean.map(|mean| scale.text(mean)), mean)
        };
        std::iter::once(TableCell::text(name))
            .chain(setting.levels.iter().map(at))
            .collect()
    }));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings::Findings;
    use crate::report::fixture;

    /// Charts of two contenders with a median of 10 µs for each byte of these frames.
    fn drawn(sizes: &[u32]) -> Vec<Chart> {
        let both = |size: &u32| [("a", *size), ("b", *size)];
        let cell = |(order, (contender, size)): (usize, (&str, u32))| {
            let level = size.to_string();
            let mut records =
                fixture::cell(contender, order, &[("frame_bytes", &level)], &[1e9; 2]);
            for record in &mut records {
                let delay = 10.0 * f64::from(size);
                record.figures.insert("latency_at_50.p50_us".into(), delay);
            }
            records
        };
        let records: Vec<_> = sizes
            .iter()
            .flat_map(both)
            .enumerate()
            .flat_map(cell)
            .collect();
        let findings = Findings::of(&records).unwrap();
        charts(&findings.parts[0], "latency_at_50", "Median at 50 %")
    }

    #[test]
    fn medians_are_drawn_over_the_size_of_frames_and_stand_in_the_table() {
        let [chart] = &drawn(&[64, 512])[..] else {
            panic!("one chart for two contenders");
        };
        assert_eq!(chart.title, "Median at 50 %, over frame_bytes");
        let picture = chart.picture.inline();
        assert!(picture.contains("data-value=\"640\""), "{picture}");
        let table = chart.table.html();
        assert!(table.contains("data-value=\"5120\""), "{table}");
    }

    #[test]
    fn one_size_has_no_chart() {
        assert!(drawn(&[64]).is_empty());
    }
}
