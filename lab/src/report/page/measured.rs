//! The charts of the result: bars where only the contender varies, lines over a factor and a map of ratios where more
//! does.

use super::{ideal, ratios};
use crate::report::chart::{BarRow, Chart, Line, Lines, Point, bars, has_bands, lines};
use crate::report::findings::{Findings, MeasuredCell, Part, Setting};
use crate::report::html::{Table, TableCell};
use crate::report::quantity::{self, significant, with_interval};
use crate::report::section::{Body, Section};
use crate::stats;

/// More lines than this in one drawing are not readable.
const MAX_LINES: usize = 20;

/// The section.
pub(super) fn section(findings: &Findings) -> Section {
    let mut body = Body::default();
    for part in &findings.parts {
        for chart in of_part(findings, part) {
            body.push_chart(chart);
        }
        body.push_html(other_figures(part));
    }
    Section::new("measured", "What was measured", body)
}

fn of_part(findings: &Findings, part: &Part) -> Vec<Chart> {
    let Some(across) = across(part) else {
        return vec![as_bars(findings, part)];
    };
    let mut charts: Vec<Chart> = panels(part, across)
        .into_iter()
        .map(|(panel, cells)| as_lines(findings, part, across, &panel, &cells))
        .collect();
    charts.extend(ratios::maps(findings, part, across));
    charts
}

/// The setting drawn from left to right: of those whose levels are numbers, the one with the most.
pub(super) fn across(part: &Part) -> Option<usize> {
    let numbers = |setting: &Setting| {
        setting
            .levels
            .iter()
            .all(|level| level.parse::<f64>().is_ok())
    };
    let several = |setting: &Setting| setting.levels.len() > 1;
    let usable = (0..part.settings.len()).filter(|place| {
        let setting = &part.settings[*place];
        several(setting) && numbers(setting)
    });
    usable.max_by_key(|place| part.settings[*place].levels.len())
}

/// The cells by their other settings.
fn panels<'a, 'b>(part: &'b Part<'a>, across: usize) -> Vec<(String, Vec<&'b MeasuredCell<'a>>)> {
    let mut panels: Vec<(String, Vec<&MeasuredCell>)> = Vec::new();
    for cell in &part.cells {
        let others = part.settings.iter().zip(&cell.levels).enumerate();
        let named: Vec<String> = others
            .filter(|(place, (_, level))| *place != across && !level.is_empty())
            .map(|(_, (setting, level))| format!("{} {level}", setting.name))
            .collect();
        let name = named.join(", ");
        match panels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => cells.push(cell),
            None => panels.push((name, vec![cell])),
        }
    }
    panels
}

fn titled(part: &Part, rest: &str) -> String {
    part.titled(&format!("{}{rest}", quantity::title(&part.figure)))
}

fn as_bars(findings: &Findings, part: &Part) -> Chart {
    let scale = part.scale();
    let all: Vec<BarRow> = part
        .cells
        .iter()
        .map(|cell| BarRow {
            name: cell.name(),
            value: cell.mean,
            interval: cell.interval,
            dots: cell.figures(),
            outliers: cell.outliers.clone(),
            colour: colour_of(findings, cell),
        })
        .collect();
    let title = titled(part, "");
    let description = format!(
        "Bars: {title} of {} contenders with their intervals; the table below has the numbers.",
        all.len()
    );
    Chart {
        note: "Bars are means, whiskers their 95 % intervals, dots the single rounds; a red dot is an outlier.".into(),
        picture: bars(&all, &scale, &description),
        table: table(findings, part, &part.cells.iter().collect::<Vec<_>>()),
        title,
    }
}

/// The reference is grey; other contenders share a colour with their kind, which is the first word of their id.
fn colour_of(findings: &Findings, cell: &MeasuredCell) -> usize {
    const GREY: usize = 7;
    let kind = |id: &str| id.split('-').next().unwrap_or_default().to_owned();
    if kind(cell.contender) == kind(&findings.any.reference) {
        return GREY;
    }
    let mut kinds: Vec<String> = Vec::new();
    for record in findings.records {
        let one = kind(&record.contender);
        if one != kind(&findings.any.reference) && !kinds.contains(&one) {
            kinds.push(one);
        }
    }
    // Esplanade is always blue: pages of several runs lie side by side.
    kinds.sort_by_key(|kind| kind != "esplanade");
    let offset = usize::from(!kinds.iter().any(|kind| kind == "esplanade"));
    kinds
        .iter()
        .position(|one| *one == kind(cell.contender))
        .map_or(GREY, |place| (place + offset) % GREY)
}

/// What a drawing leaves to its table, by name.
pub(super) fn not_drawn(names: &[String]) -> String {
    match names.len() {
        0 => String::new(),
        count => format!(
            "{count} not drawn, but in the table: {}. ",
            names.join("; ")
        ),
    }
}

fn as_lines(
    findings: &Findings,
    part: &Part,
    across: usize,
    panel: &str,
    cells: &[&MeasuredCell],
) -> Chart {
    let scale = part.scale();
    let factor = &part.settings[across];
    let mut all: Vec<Line> = Vec::new();
    for cell in cells.iter().filter(|cell| !cell.levels[across].is_empty()) {
        let point = Point {
            x: cell.levels[across].parse().unwrap_or(0.0),
            y: cell.mean,
            interval: cell.interval,
        };
        match all.iter_mut().find(|line| line.name == cell.label) {
            Some(line) => line.points.push(point),
            None => all.push(Line::measured(cell.label, vec![point])),
        }
    }
    all.iter_mut()
        .for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    let undrawn: Vec<String> = all
        .iter()
        .skip(MAX_LINES)
        .map(|line| line.name.clone())
        .collect();
    all.truncate(MAX_LINES);
    let mut note = not_drawn(&undrawn);
    note += if has_bands(&all) {
        "Points are means, bands their 95 % intervals."
    } else {
        "Points are means; their 95 % intervals are in the table."
    };
    if part.figure == "goodput_bps" {
        let ideals = ideal::lines(cells, across);
        if !ideals.is_empty() {
            note += " Dotted: the maximum goodput of the link, all headers counted.";
        }
        all.extend(ideals);
    }
    let beside = if panel.is_empty() {
        String::new()
    } else {
        format!(" ({panel})")
    };
    let title = titled(part, &format!(" over {}{beside}", factor.name));
    let description = format!(
        "Lines: {title} for {} contenders; the table below has the numbers.",
        all.len()
    );
    let frame = Lines {
        x: &factor.name,
        places: &[],
        decades: Line::span_decades(&all),
        scale,
        description: &description,
    };
    Chart {
        note,
        picture: lines(&all, &frame),
        table: table(findings, part, cells),
        title,
    }
}

fn table(findings: &Findings, part: &Part, cells: &[&MeasuredCell]) -> Table {
    let scale = part.scale();
    let with_floor = part.floor.is_some();
    let unit = format!("#{}", quantity::title(&part.figure));
    let ratio = format!("#of {}", findings.reference());
    let head: Vec<&str> = std::iter::once("contender")
        .chain(part.settings.iter().map(|setting| setting.name.as_str()))
        .chain([
            unit.as_str(),
            ratio.as_str(),
            "#rank",
            "#rounds",
            "#netperf interval",
        ])
        .collect();
    let mut table = Table::new(titled(part, ""), &head);
    table.rows.extend(cells.iter().map(|cell| {
        let level = |level: &&str| Some((*level).to_owned()).filter(|level| !level.is_empty());
        let levels = cell.levels.iter();
        let levels = levels.map(|one| TableCell::maybe(level(one), None));
        let rule = stats::width(&cell.figures(), 0.95);
        std::iter::once(TableCell::text(cell.label))
            .chain(levels)
            .chain([
                TableCell::number(cell.mean_on(&scale), Some(cell.mean)),
                TableCell::maybe(
                    cell.ratio.as_ref().map(with_interval),
                    cell.ratio.map(|ratio| ratio.value),
                ),
                TableCell::maybe(with_floor.then(|| rank(cell.rank)), None),
                TableCell::number(cell.values.len().to_string(), None),
                TableCell::maybe(
                    rule.map(|width| format!("{} % wide", significant(100.0 * width))),
                    None,
                ),
            ])
            .collect()
    }));
    table
}

/// The rank, or the ranks among which the noise leaves the choice.
fn rank((best, worst): (usize, usize)) -> String {
    if best == worst {
        best.to_string()
    } else {
        format!("{best}–{worst}")
    }
}

/// All other figures of the trials, as a table.
fn other_figures(part: &Part) -> String {
    let mut names: Vec<&String> = part
        .cells
        .iter()
        .flat_map(|cell| &cell.trials)
        .flat_map(|trial| trial.figures.keys())
        .collect();
    names.sort();
    names.dedup();
    names.retain(|name| **name != part.figure && *name != "goodput_bps");
    if names.is_empty() {
        return String::new();
    }
    let titles: Vec<String> = names
        .iter()
        .map(|name| format!("#{}", quantity::title(name)))
        .collect();
    let head: Vec<&str> = ["contender", "under"]
        .into_iter()
        .chain(titles.iter().map(String::as_str))
        .collect();
    let mut table = Table::new(part.titled("other figures, means"), &head);
    table.rows.extend(part.cells.iter().map(|cell| {
        let shown = |name: &&String| {
            let value = cell.other(name);
            let text = value.map(|value| quantity::Scale::of(name, value).text(value));
            TableCell::maybe(text, value)
        };
        [TableCell::text(cell.label), TableCell::words(&cell.under)]
            .into_iter()
            .chain(names.iter().map(shown))
            .collect()
    }));
    format!(
        "<details><summary>Other figures</summary>\n{}</details>\n",
        table.html()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn every_panel_of_a_part_is_drawn() {
        let names: Vec<String> = (1..=9).map(|last| format!("0-{last}")).collect();
        let cells = names
            .iter()
            .flat_map(|cpus| [(cpus, "1500"), (cpus, "9000")]);
        let cell = |(order, (cpus, mtu)): (usize, (&String, &str))| {
            fixture::cell("a", order, &[("cpus", cpus), ("mtu", mtu)], &[1e9])
        };
        let records: Vec<_> = cells.enumerate().flat_map(cell).collect();
        let findings = Findings::of(&records).unwrap();
        let page = section(&findings).body.html(&mut 0);
        for cpus in &names {
            assert!(page.contains(&format!("{cpus})</h3>")), "{cpus}: {page}");
        }
    }
}
