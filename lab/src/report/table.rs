//! The table a terminal shows and `table.txt` keeps.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::canary::{CanaryCounts, canary_counts};
use super::findings::{EMULATED_NOTE, Findings, MeasuredCell};
use super::footnotes;
use super::quantity::counted;
use super::totals::{Totals, totals};
use crate::record::Record;
use crate::stats;

const HEAD: [&str; 7] = [
    "contender",
    "goodput",
    "ratio",
    "gateway CPU",
    "peak RSS",
    "drops",
    "retransmits",
];

/// Title, table, what is missing and why, what the findings are beyond the table, the canary, and how to read it.
pub(super) fn text(records: &[Record]) -> String {
    let Some(findings) = Findings::of(records) else {
        return "no trials recorded\n".into();
    };
    let any = findings.any;
    let rows = totals(records);
    let mut out = head(any);
    out += &aligned(&cells(&rows, &findings));
    out += &missing(&rows);
    out += &unfinished(findings.ran(), any.trials);
    out += &footnotes::text(&findings);
    out += &notes(&rows, any);
    let _ = writeln!(out, "\n{}", canary(&canary_counts(records)));
    out
}

fn head(record: &Record) -> String {
    let place = &record.provenance;
    let emulated = if place.emulated {
        format!("emulated: {EMULATED_NOTE}\n")
    } else {
        String::new()
    };
    format!(
        "{}\n{} of {} s of {} for each contender, seed {}\n{}, {}, Linux {}, {}\n{emulated}\n",
        record.title,
        counted(record.rounds, "round"),
        record.duration_s,
        record.load,
        record.seed,
        place.cpu,
        counted(place.cpus, "processor"),
        place.kernel,
        place.system
    )
}

/// The cases of a contender that is missing everywhere for one reason are one row.
fn cells(rows: &[Totals], findings: &Findings) -> Vec<[String; 7]> {
    let mut cells = vec![HEAD.map(str::to_owned)];
    let mut missing = BTreeSet::new();
    let shown = rows.iter().filter(|row| {
        !row.goodput_bps.is_empty() || missing.insert((row.label.as_str(), &row.trouble))
    });
    cells.extend(shown.map(|row| {
        let (mean, cell) = (row.mean_goodput(), cell(findings, row.order));
        let measured = |text: String| if mean.is_some() { text } else { "-".into() };
        [
            cell.map_or_else(|| row.label.clone(), |cell| findings.name_of(cell)),
            mean.map_or_else(|| "-".into(), |mean| goodput(mean, &row.goodput_bps)),
            measured(cell.map_or_else(String::new, ratio)),
            cpu(row),
            row.peak_rss_bytes
                .map_or_else(|| "-".into(), |bytes| format!("{:.1} MB", bytes / 1e6)),
            measured(format!("{}", row.drops)),
            row.retransmits
                .map_or_else(|| "-".into(), |count| count.to_string()),
        ]
    }));
    cells
}

fn cell<'f, 'r>(findings: &'f Findings<'r>, order: usize) -> Option<&'f MeasuredCell<'r>> {
    let of = |cell: &&MeasuredCell| {
        cell.trials
            .first()
            .is_some_and(|trial| trial.order == order)
    };
    findings.cells().find(of)
}

/// The ratio to the reference under the same settings: 1 for the reference itself, "-" where the reference is missing.
fn ratio(cell: &MeasuredCell) -> String {
    match cell.ratio {
        Some(ratio) => format!("{:.3}", ratio.value),
        None if cell.is_reference() => "1.000".into(),
        None => "-".into(),
    }
}

/// The mean, and half the width of its 95 % interval where there is one.
fn goodput(mean: f64, values: &[f64]) -> String {
    let scatter = stats::mean_interval(values, 0.95).map(|interval| interval.half_width());
    let (unit, scale, digits) = match mean {
        mean if mean >= 1e9 => ("Gbit/s", 1e9, 2),
        _ => ("Mbit/s", 1e6, 1),
    };
    let number = |bps: f64| format!("{:.digits$}", bps / scale);
    match scatter {
        Some(half) => format!("{} ± {} {unit}", number(mean), number(half)),
        None => format!("{} {unit}", number(mean)),
    }
}

/// Left and right, in percent of one processor.
fn cpu(row: &Totals) -> String {
    let mean =
        |side: usize| stats::mean(&row.cpu.iter().map(|pair| pair[side]).collect::<Vec<_>>());
    match (mean(0), mean(1)) {
        (Some(left), Some(right)) => format!("{:.0} % + {:.0} %", left * 100.0, right * 100.0),
        _ => "-".into(),
    }
}

/// Columns as wide as they must be; the first to the left, numbers to the right.
fn aligned(cells: &[[String; 7]]) -> String {
    let width = |column: usize| {
        cells
            .iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut out = String::new();
    for (number, row) in cells.iter().enumerate() {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for column in 1..HEAD.len() {
            let _ = write!(line, "   {:>width$}", row[column], width = widths[column]);
        }
        let _ = writeln!(out, "{line}");
        if number == 0 {
            let _ = writeln!(out, "{}", "-".repeat(line.chars().count()));
        }
    }
    out
}

/// Each reason once for each contender.
fn missing(rows: &[Totals]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        for trouble in &row.trouble {
            let line = format!("\n{}: {trouble}", row.label);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    if lines.is_empty() {
        String::new()
    } else {
        lines.concat() + "\n"
    }
}

/// The note of an interrupted or killed run.
fn unfinished(ran: usize, planned: usize) -> String {
    if ran < planned {
        format!("\nonly {ran} of {planned} planned trials ran\n")
    } else {
        String::new()
    }
}

fn notes(rows: &[Totals], any: &Record) -> String {
    let reference = rows.iter().find(|row| row.contender == any.reference);
    let label = reference.map_or(any.reference.as_str(), |row| row.label.as_str());
    format!(
        "\nratio: to {label}. ±: half of the 95 % interval of the mean (Student). gateway CPU: left + right process, \
         in percent of\n\
         one processor; with plain IP the kernel does the work and no process shows it. drops: all trials together, \
         by the\n\
         contender's own count, at its interfaces and at its sockets.\n"
    )
}

fn canary(seen: &CanaryCounts) -> String {
    let number = |count: Option<usize>| count.map_or_else(|| "-".into(), |count| count.to_string());
    format!(
        "canary: client side {}, plain wire {}, protected wire {}",
        number(seen.client_side),
        number(seen.plain_wire),
        number(seen.protected_wire)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn rates_choose_their_unit() {
        assert_eq!(goodput(9.876e9, &[9.876e9]), "9.88 Gbit/s");
        assert_eq!(goodput(47.04e6, &[47.0e6, 47.08e6]), "47.0 ± 0.5 Mbit/s");
    }

    #[test]
    fn emulated_figures_are_called_that_and_mix_with_no_others() {
        let native = fixture::cell("plain", 0, &[], &[1e9]);
        assert!(!text(&native).contains("emulated"));
        let mut emulated = fixture::cell("plain", 0, &[], &[1e9]);
        emulated[0].provenance.emulated = true;
        assert!(text(&emulated).contains("\nemulated: measured in a guest"));
        assert!(!crate::record::mixed(&native) && !crate::record::mixed(&emulated));
        assert!(crate::record::mixed(&[native, emulated].concat()));
    }

    #[test]
    fn without_the_reference_there_is_no_ratio() {
        let ratios = |records: &[Record]| {
            let findings = Findings::of(records).unwrap();
            let cells = &findings.parts[0].cells;
            cells.iter().map(ratio).collect::<Vec<_>>()
        };
        let mut records = fixture::cell("a", 1, &[], &[1e9, 1e9]);
        assert_eq!(ratios(&records), ["-"]);
        records.extend(fixture::cell("plain", 0, &[], &[2e9, 2e9]));
        let mut both = ratios(&records);
        both.sort();
        assert_eq!(both, ["0.500", "1.000"]);
    }

    #[test]
    fn one_round_is_written_in_the_singular() {
        let mut records = fixture::cell("plain", 0, &[], &[1e9]);
        assert!(text(&records).contains("\n3 rounds of 1 s of made for each contender"));
        (records[0].rounds, records[0].provenance.cpus) = (1, 1);
        let text = text(&records);
        assert!(
            text.contains("\n1 round of 1 s of made for each contender"),
            "{text}"
        );
        assert!(text.contains(", 1 processor, Linux"), "{text}");
    }

    #[test]
    fn columns_line_up() {
        let row = |label: &str, number: &str| {
            let mut row = [const { String::new() }; 7];
            row[0] = label.into();
            row[1] = number.into();
            row
        };
        let text = aligned(&[row("name", "x"), row("ä", "12345")]);
        let lines: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(lines.iter().all(|length| *length == lines[0]), "{text}");
        assert!(
            text.lines().nth(2).unwrap().contains("ä      12345"),
            "{text}"
        );
    }

    #[test]
    fn the_canary_line_reads_as_documented() {
        let seen = CanaryCounts {
            client_side: Some(1),
            plain_wire: Some(1),
            protected_wire: Some(0),
        };
        assert_eq!(
            canary(&seen),
            "canary: client side 1, plain wire 1, protected wire 0"
        );
        assert_eq!(
            canary(&CanaryCounts::default()),
            "canary: client side -, plain wire -, protected wire -"
        );
    }
}
