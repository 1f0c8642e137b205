//! What it cost: processor time by state, by soaker, by gateway, memory and drops.

mod soaked;

use super::{Body, Section};
use crate::report::chart::{Figure, Stack, stack};
use crate::report::findings::{Cell as Measured, Findings};
use crate::report::html::{Cell, Table};
use crate::report::quantity::{Scale, significant};
use crate::report::{Row, rows};
use crate::stats;

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
pub(super) fn section(findings: &Findings) -> Section {
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
