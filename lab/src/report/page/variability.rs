//! Variability: the goodput interval by interval, and the outliers.

use crate::load::Carried;
use crate::record::Outcome;
use crate::report::chart::{Chart, Line, Lines, Point, lines, split};
use crate::report::findings::{Findings, MeasuredCell, Part};
use crate::report::html::{Table, TableCell};
use crate::report::quantity::{Scale, significant};
use crate::report::section::{Body, Section};
use crate::stats;
use std::collections::BTreeSet;

/// More curves than this in one drawing are not readable: the rest goes into further drawings.
const MAX_CURVES: usize = 16;

/// A cell with the goodput of its intervals, the slowest first.
type Distribution<'f, 'r> = (&'f MeasuredCell<'r>, Vec<f64>);

/// The section.
pub(super) fn section(findings: &Findings) -> Section {
    let mut body = Body::default();
    for chart in findings.parts.iter().flat_map(by_interval) {
        body.push_chart(chart);
    }
    body.push_html(outliers(findings));
    Section::new("variability", "Variability", body)
}

/// The distribution of the goodput over the intervals of all trials, of each contender of a part, relative to its own
/// median.
fn by_interval(part: &Part) -> Vec<Chart> {
    let cells = part.cells.iter().map(|cell| (cell, intervals(cell)));
    let all: Vec<Distribution> = cells.filter(|(_, goodputs)| goodputs.len() >= 3).collect();
    let title = part.titled("Goodput of single intervals");
    let drawings = split(&title, &all, MAX_CURVES).into_iter();
    drawings.map(|(title, some)| drawn(title, some)).collect()
}

fn drawn(title: String, some: &[Distribution]) -> Chart {
    let curves: Vec<Line> = some
        .iter()
        .map(|(cell, sorted)| curve(&cell.name(), sorted, at(sorted, 0.5)))
        .collect();
    let frame = Lines {
        x: "goodput of an interval, in percent of the contender's own median",
        places: &[],
        decades: false,
        scale: Scale::of("share_ratio", 1.0),
        description: "Curves of the distribution of goodput over single intervals, relative to each contender's \
                      median; the table below has the numbers.",
    };
    Chart {
        title,
        note: format!(
            "Cumulative distribution over the measured intervals ({}): the steeper the curve, the steadier the \
             goodput.",
            lengths(some)
        ),
        picture: lines(&curves, &frame),
        table: table(some),
    }
}

fn at(sorted: &[f64], share: f64) -> f64 {
    stats::quantile(sorted, share).unwrap_or(f64::NAN)
}

fn table(some: &[Distribution]) -> Table {
    let mut table = Table::new(
        "Distribution of the goodput of single intervals",
        &[
            "contender",
            "#intervals",
            "#slowest",
            "#5th percentile",
            "#median",
            "#fastest",
        ],
    );
    table.rows.extend(some.iter().map(|(cell, sorted)| {
        let scale = Scale::of("goodput_bps", at(sorted, 1.0));
        let shown = |share| TableCell::number(scale.text(at(sorted, share)), None);
        [
            TableCell::text(cell.name()),
            TableCell::number(sorted.len().to_string(), None),
        ]
        .into_iter()
        .chain([0.0, 0.05, 0.5, 1.0].map(shown))
        .collect()
    }));
    table
}

fn intervals(cell: &MeasuredCell) -> Vec<f64> {
    let mut all: Vec<f64> = carried(cell)
        .flat_map(|carried| carried.intervals_bps.iter().copied())
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

fn carried<'a>(cell: &'a MeasuredCell) -> impl Iterator<Item = &'a Carried> {
    cell.trials.iter().filter_map(|trial| match &trial.outcome {
        Outcome::Measured { carried, .. } => Some(carried),
        _ => None,
    })
}

/// How long the intervals are: each load tool and each path has its own length.
fn lengths(some: &[Distribution]) -> String {
    let tenths: BTreeSet<u64> = some
        .iter()
        .flat_map(|(cell, _)| carried(cell))
        .filter(|carried| !carried.intervals_bps.is_empty())
        .map(|carried| 10.0 * carried.seconds / carried.intervals_bps.len() as f64)
        .map(|tenths| tenths.round() as u64)
        .collect();
    let seconds = |tenths: &u64| *tenths as f64 / 10.0;
    match (tenths.first(), tenths.last()) {
        (Some(short), Some(long)) if short < long => {
            format!("{} to {} s each", seconds(short), seconds(long))
        }
        (Some(one), _) => format!("{} s each", seconds(one)),
        _ => "none".into(),
    }
}

/// The empirical distribution function, as steps.
fn curve(name: &str, sorted: &[f64], median: f64) -> Line {
    let count = sorted.len() as f64;
    let step = |(place, value): (usize, &f64)| {
        let x = 100.0 * value / median.max(f64::MIN_POSITIVE);
        let at = |below: usize| Point {
            x,
            y: below as f64 / count,
            interval: None,
        };
        [at(place), at(place + 1)]
    };
    Line {
        name: name.into(),
        points: sorted.iter().enumerate().flat_map(step).collect(),
        steps: true,
        model: false,
    }
}

fn outliers(findings: &Findings) -> String {
    let mut table = Table::new(
        "Outliers; every mean includes them",
        &["contender", "under", "#round", "#value", "#of its median"],
    );
    for part in &findings.parts {
        let scale = part.scale();
        for cell in &part.cells {
            let median = stats::median(&cell.figures()).unwrap_or(f64::NAN);
            for place in &cell.outliers {
                let (round, value) = cell.values[*place];
                table.rows.push(vec![
                    TableCell::text(cell.label),
                    TableCell::words(&cell.under),
                    TableCell::number(round.to_string(), None),
                    TableCell::number(scale.text(value), None),
                    TableCell::number(significant(value / median), None),
                ]);
            }
        }
    }
    if table.rows.is_empty() {
        return "<p>No outliers (they are looked for in cases of five rounds or more).</p>\n"
            .into();
    }
    table.html()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    /// The section for trials of three intervals that took this long.
    fn page_of(seconds: &[f64]) -> String {
        let mut records = fixture::cell("a", 0, &[], &vec![1e9; seconds.len()]);
        for (record, seconds) in records.iter_mut().zip(seconds) {
            let Outcome::Measured { carried, .. } = &mut record.outcome else {
                unreachable!("the fixture's are measured");
            };
            carried.seconds = *seconds;
        }
        let findings = Findings::of(&records).unwrap();
        section(&findings).body.html(&mut 0)
    }

    #[test]
    fn intervals_are_as_long_as_those_of_the_trials() {
        assert!(page_of(&[1.501, 1.498, 1.5]).contains("intervals (0.5 s each)"));
        assert!(page_of(&[3.002]).contains("intervals (1 s each)"));
        assert!(page_of(&[1.5, 0.3]).contains("intervals (0.1 to 0.5 s each)"));
    }

    #[test]
    fn every_contender_of_every_part_is_drawn() {
        let cell = |part: &'static str, order: usize| {
            let name = format!("{part}-{order}");
            fixture::cell(&name, order, &[("part", part)], &[1e9])
        };
        let most = MAX_CURVES;
        let records: Vec<_> = (0..=most)
            .flat_map(|order| cell("one", order))
            .chain(cell("two", most + 1))
            .collect();
        let findings = Findings::of(&records).unwrap();
        let page = section(&findings).body.html(&mut 0);
        for title in [
            "one: Goodput of single intervals, 2 of 2",
            "two: Goodput of",
        ] {
            assert!(page.contains(title), "{title} is not in {page}");
        }
        let curves = page.matches("<polyline class=\"line").count();
        assert_eq!(curves, 2 * (most + 2), "each has a key in the legend");
    }
}
