//! Cost: processor time by state, by soaker, by gateway, memory and drops.

use crate::report::chart::{self, Chart, Stack, stack};
use crate::report::findings::{Findings, MeasuredCell};
use crate::report::html::{Table, TableCell};
use crate::report::quantity::{Scale, significant};
use crate::report::section::{Body, Section};
use crate::report::soaker;
use crate::report::totals::{Totals, totals};
use crate::stats;

/// States of `/proc/stat` that are work, with their readers' names.
const STATES: [(&[&str], &str); 5] = [
    (&["user", "nice"], "user"),
    (&["system"], "system"),
    (&["softirq"], "softirq"),
    (&["irq"], "irq"),
    (&["steal"], "stolen by the host"),
];
/// The other states.
const IDLE_STATES: [&str; 2] = ["idle", "iowait"];
/// More bars than this in one drawing are not readable: the rest goes into further drawings.
const MAX_BARS: usize = 36;

/// The section on processor time, memory and drops.
pub(super) fn section(findings: &Findings) -> Section {
    let mut body = Body::default();
    split(findings)
        .into_iter()
        .for_each(|chart| body.push_chart(chart));
    soaker::show(findings, &mut body);
    if findings.cells().next().is_some() {
        body.push_html(table(findings).html());
    }
    Section::new("cost", "Cost", body)
}

/// The bars of each part, in as many drawings as are readable.
fn split(findings: &Findings) -> Vec<Chart> {
    let mut charts = Vec::new();
    for part in &findings.parts {
        let cells = part.cells.iter();
        let bars: Vec<(String, Vec<f64>)> = cells
            .filter_map(|cell| Some((cell.name(), shares(cell)?)))
            .collect();
        let drawings = chart::split(&part.titled("Processor time by state"), &bars, MAX_BARS);
        let drawings = drawings.into_iter();
        charts.extend(drawings.map(|(title, few)| by_state(title, few)));
    }
    charts
}

fn by_state(title: String, bars: &[(String, Vec<f64>)]) -> Chart {
    let names: Vec<&str> = STATES.iter().map(|(_, name)| *name).collect();
    let head: Vec<String> = names.iter().map(|name| format!("#{name}")).collect();
    let head: Vec<&str> = std::iter::once("contender")
        .chain(head.iter().map(String::as_str))
        .collect();
    let mut table = Table::new("Share of all processors' time during the load", &head);
    table.rows.extend(bars.iter().map(|(name, shares)| {
        let cells = shares.iter().map(|share| {
            TableCell::number(format!("{} %", significant(100.0 * share)), Some(*share))
        });
        std::iter::once(TableCell::text(name))
            .chain(cells)
            .collect()
    }));
    let stacks: Vec<Stack> = bars
        .iter()
        .map(|(name, shares)| Stack {
            name: name.clone(),
            shares: shares.clone(),
        })
        .collect();
    let description = "Stacked bars: the share of the processors' time by state for each contender; the table below \
    has the numbers.";
    Chart {
        title,
        note: "Of all processors of the machine, endpoints included; the rest was idle. Where the kernel has no \
        interrupt \
               accounting, irq is empty and that time counts for the process that was interrupted."
            .into(),
        picture: stack(&stacks, &names, description),
        table,
    }
}

/// The share of each state in the time of all states. The meter's own window is longer than that of the load
/// (`window_s`), and the machine may have more processors than the lab may use.
fn shares(cell: &MeasuredCell) -> Option<Vec<f64>> {
    let spent = |state: &str| cell.reading(&format!("machine.{state}_s"));
    spent("user")?;
    let sum = |states: &[&str]| states.iter().filter_map(|state| spent(state)).sum::<f64>();
    let busy = STATES.map(|(states, _)| sum(states));
    let whole = busy.iter().sum::<f64>() + sum(&IDLE_STATES);
    (whole > 0.0).then(|| busy.map(|seconds| seconds / whole).into())
}

fn table(findings: &Findings) -> Table {
    let rows = totals(findings.records);
    let head = [
        "contender",
        "under",
        "#left gateway CPU",
        "#right gateway CPU",
        "#gateway CPU per byte",
        "#peak memory",
        "#drops",
        "#retransmits",
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

fn cost(cell: &MeasuredCell, row: &Totals) -> Vec<TableCell> {
    let side =
        |side: usize| stats::mean(&row.cpu.iter().map(|pair| pair[side]).collect::<Vec<_>>());
    let percent = |share: Option<f64>| share.map(|share| format!("{:.0} %", 100.0 * share));
    let number = |text: Option<String>| TableCell::maybe(text, None);
    let again = row.retransmits;
    let both = side(0).zip(side(1)).map(|(left, right)| left + right);
    let per_byte = both
        .zip(row.mean_goodput())
        .map(|(cpu, bps)| format!("{} ns", significant(8e9 * cpu / bps)));
    vec![
        TableCell::text(cell.label),
        TableCell::words(&cell.under),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;
    use crate::report::fixture;

    #[test]
    fn shares_of_processor_time_are_of_the_window_in_which_it_was_measured() {
        let mut records = fixture::cell("a", 0, &[], &[1e9]);
        let Outcome::Measured { readings, .. } = &mut records[0].outcome else {
            unreachable!("the fixture's are measured");
        };
        // One processor, and a load of one second within two seconds of the meter.
        readings.insert("machine.user_s".into(), 0.9);
        readings.insert("machine.softirq_s".into(), 0.6);
        readings.insert("machine.idle_s".into(), 0.5);
        let findings = Findings::of(&records).unwrap();
        let shares = shares(findings.cells().next().unwrap()).unwrap();
        assert_eq!(shares, [0.45, 0.0, 0.3, 0.0, 0.0]);
    }
}
