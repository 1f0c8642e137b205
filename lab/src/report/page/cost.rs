//! What it cost, and how steady it was: processor time by state, by soaker, by gateway, memory, drops, and the goodput interval
//! by interval.

mod soaked;

use super::{Body, Section};
use crate::load::Carried;
use crate::record::Outcome;
use crate::report::chart::{Figure, Line, Lines, Point, Stack, lines, stack};
use crate::report::findings::{Cell as Measured, Findings};
use crate::report::html::{Cell, Table};
use crate::report::quantity::{Scale, significant};
use crate::report::{Row, rows};
use crate::stats;
use std::collections::BTreeSet;

/// States of `/proc/stat` that are work, with their readers' names.
const STATES: [(&[&str], &str); 5] = [
    (&["user", "nice"], "user"),
    (&["system"], "system"),
    (&["softirq"], "softirq"),
    (&["irq"], "irq"),
    (&["steal"], "stolen by the host"),
];
/// More bars than this are no picture any more: the table then stands alone.
const MANY: usize = 36;

/// The section on processor time, memory and drops.
pub fn section(findings: &Findings) -> Section {
    let mut body = split(findings).map_or_else(Body::default, Body::from);
    soaked::show(findings, &mut body);
    if findings.cells().next().is_some() {
        body.say(table(findings).html());
    }
    Section::new("cost", "What it cost", body)
}

fn split(findings: &Findings) -> Option<Figure> {
    let bars: Vec<(String, Vec<f64>)> = findings
        .cells()
        .filter_map(|cell| Some((cell.name(), shares(cell, findings.any.provenance.cpus)?)))
        .collect();
    if bars.is_empty() || bars.len() > MANY {
        return None;
    }
    let names: Vec<&str> = STATES.iter().map(|(_, name)| *name).collect();
    let head: Vec<String> = names.iter().map(|name| format!("#{name}")).collect();
    let head: Vec<&str> = std::iter::once("contender")
        .chain(head.iter().map(String::as_str))
        .collect();
    let mut table = Table::new("Share of all processors' time during the load", &head);
    table.rows.extend(bars.iter().map(|(name, shares)| {
        let cells = shares
            .iter()
            .map(|share| Cell::number(format!("{} %", significant(100.0 * share)), Some(*share)));
        std::iter::once(Cell::text(name)).chain(cells).collect()
    }));
    let stacks: Vec<Stack> = bars
        .into_iter()
        .map(|(name, shares)| Stack { name, shares })
        .collect();
    let spoken = "Stacked bars: the share of the processors' time by state for each contender; the table below has the numbers.";
    Some(Figure {
        title: "Where the processors' time went".into(),
        note: "Of all processors of the machine, endpoints included; the rest was idle. Where the kernel does no interrupt \
               accounting, irq stays empty and that work hides in whoever was interrupted."
            .into(),
        picture: stack(&stacks, &names, spoken),
        table,
    })
}

fn shares(cell: &Measured, processors: usize) -> Option<Vec<f64>> {
    let whole = cell.reading("window_s").filter(|window| *window > 0.0)? * processors.max(1) as f64;
    let spent = |state: &&str| cell.reading(&format!("machine.{state}_s")).unwrap_or(0.0);
    cell.reading("machine.user_s")?;
    Some(
        STATES
            .iter()
            .map(|(states, _)| states.iter().map(spent).sum::<f64>() / whole)
            .collect(),
    )
}

fn table(findings: &Findings) -> Table {
    let rows = rows(findings.records);
    let head = [
        "contender",
        "under",
        "#left gateway CPU",
        "#right gateway CPU",
        "#gateway CPU per byte",
        "#peak memory",
        "#drops",
        "#sent again",
    ];
    let mut table = Table::new("Gateways: processor time, memory, losses", &head);
    for part in &findings.parts {
        for cell in &part.cells {
            let order = cell.trials.first().map(|trial| trial.order);
            if let Some(row) = rows.iter().find(|row| Some(row.order) == order) {
                table.rows.push(cost(cell, row));
            }
        }
    }
    table
}

fn cost(cell: &Measured, row: &Row) -> Vec<Cell> {
    let side =
        |side: usize| stats::mean(&row.cpu.iter().map(|pair| pair[side]).collect::<Vec<_>>());
    let percent = |share: Option<f64>| share.map(|share| format!("{:.0} %", 100.0 * share));
    let number = |text: Option<String>| Cell::maybe(text, None);
    let again = row.retransmits;
    let both = side(0).zip(side(1)).map(|(left, right)| left + right);
    let per_byte = both
        .zip(row.mean_goodput())
        .map(|(cpu, bps)| format!("{} ns", significant(8e9 * cpu / bps)));
    vec![
        Cell::text(cell.label),
        Cell::words(&cell.under),
        number(percent(side(0))),
        number(percent(side(1))),
        number(per_byte),
        number(
            row.peak_rss_bytes
                .map(|bytes| Scale::of("rss_bytes", bytes).text(bytes)),
        ),
        number(Some(significant_count(row.drops))),
        number(again.map(|count| significant_count(count as f64))),
    ]
}

fn significant_count(count: f64) -> String {
    if count < 100.0 {
        format!("{count:.0}")
    } else {
        significant(count)
    }
}

/// The section on how steady each was.
pub fn steadiness(findings: &Findings) -> Section {
    let mut body = by_interval(findings).map_or_else(Body::default, Body::from);
    body.say(outliers(findings));
    Section::new("steadiness", "How steady it was", body)
}

/// The distribution of the goodput over the intervals of all trials, of each contender, relative to its own median.
fn by_interval(findings: &Findings) -> Option<Figure> {
    let all: Vec<(String, Vec<f64>)> = findings
        .cells()
        .map(|cell| (cell.name(), intervals(cell)))
        .filter(|(_, goodputs)| goodputs.len() >= 3)
        .collect();
    if all.is_empty() || all.len() > 16 {
        return None;
    }
    let mut table = Table::new(
        "Goodput of single intervals",
        &[
            "contender",
            "#intervals",
            "#slowest",
            "#one in twenty below",
            "#median",
            "#fastest",
        ],
    );
    let mut curves = Vec::new();
    for (name, sorted) in &all {
        let most = sorted.last().copied().unwrap_or(1.0);
        let scale = Scale::of("goodput_bps", most);
        let at = |share: f64| stats::quantile(sorted, share).unwrap_or(f64::NAN);
        let cells = [0.0, 0.05, 0.5, 1.0].map(|share| Cell::number(scale.text(at(share)), None));
        table.rows.push(
            [
                Cell::text(name),
                Cell::number(sorted.len().to_string(), None),
            ]
            .into_iter()
            .chain(cells)
            .collect(),
        );
        curves.push(curve(name, sorted, at(0.5)));
    }
    let spoken = "Curves of the distribution of goodput over single intervals, relative to each contender's median; the table below has the numbers.";
    let frame = Lines {
        x: "goodput of an interval, in percent of the contender's own median",
        places: &[],
        decades: false,
        scale: Scale::of("share_ratio", 1.0),
        spoken,
    };
    Some(Figure {
        title: "Interval by interval".into(),
        note: format!(
            "The share of the measured intervals ({}) that stayed below: the steeper, the steadier.",
            lengths(findings)
        ),
        picture: lines(&curves, &frame),
        table,
    })
}

fn intervals(cell: &Measured) -> Vec<f64> {
    let mut all: Vec<f64> = carried(cell)
        .flat_map(|carried| carried.intervals_bps.iter().copied())
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

fn carried<'a>(cell: &'a Measured) -> impl Iterator<Item = &'a Carried> {
    cell.trials.iter().filter_map(|trial| match &trial.outcome {
        Outcome::Measured { carried, .. } => Some(carried),
        _ => None,
    })
}

/// How long the intervals are: each load tool and each path has its own length.
fn lengths(findings: &Findings) -> String {
    let tenths: BTreeSet<u64> = findings
        .cells()
        .flat_map(carried)
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
        "Outliers, kept in every mean",
        &["contender", "under", "#round", "#value", "#of its median"],
    );
    for part in &findings.parts {
        let scale = super::scale(part);
        for cell in &part.cells {
            let median = stats::median(&cell.figures()).unwrap_or(f64::NAN);
            for place in &cell.outliers {
                let (round, value) = cell.values[*place];
                table.rows.push(vec![
                    Cell::text(cell.label),
                    Cell::words(&cell.under),
                    Cell::number(round.to_string(), None),
                    Cell::number(scale.text(value), None),
                    Cell::number(significant(value / median), None),
                ]);
            }
        }
    }
    match table.rows.is_empty() {
        true => "<p>No measurement stands far from its fellows (of fewer than five rounds, none can).</p>\n".into(),
        false => table.html(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    /// The page's words on three intervals of trials that took so long.
    fn told(seconds: &[f64]) -> String {
        let mut records = fixture::cell("a", 0, &[], &vec![1e9; seconds.len()]);
        for (record, seconds) in records.iter_mut().zip(seconds) {
            let Outcome::Measured { carried, .. } = &mut record.outcome else {
                unreachable!("the fixture's are measured");
            };
            carried.seconds = *seconds;
        }
        let findings = Findings::of(&records).unwrap();
        steadiness(&findings).body.html(&mut 0)
    }

    #[test]
    fn intervals_are_as_long_as_the_trials_say() {
        assert!(told(&[1.501, 1.498, 1.5]).contains("intervals (0.5 s each)"));
        assert!(told(&[3.002]).contains("intervals (1 s each)"));
        assert!(told(&[1.5, 0.3]).contains("intervals (0.1 to 0.5 s each)"));
    }
}
