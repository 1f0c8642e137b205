//! Where the time went, function by function: sampled profiles as one bar for each contender, and by whom.

use super::{Body, Section};
use crate::report::chart::{Figure, Stack, stack};
use crate::report::findings::{Cell as Measured, Findings};
use crate::report::html::{Cell, Table};
use crate::report::profile::{KINDS, by_whom, samples, shares};

use crate::meter::WORK_KINDS;

/// More bars than this are no picture any more, and the table stands alone.
const MANY: usize = 36;
/// More cells than this are not told in all details.
const DETAILED: usize = 12;

/// The section; empty where no profile was taken.
pub(super) fn section(findings: &Findings) -> Section {
    let found: Vec<(&Measured, Vec<f64>)> = findings
        .cells()
        .filter_map(|cell| Some((cell, shares(cell)?)))
        .collect();
    if found.is_empty() {
        return Section::new("profile", "Where the time went", String::new());
    }
    let mut body = match found.len() > MANY {
        true => Body::from(table(&found).html()),
        false => Body::from(drawn(&found)),
    };
    if found.len() <= DETAILED {
        body.say(details(&found).html());
    }
    Section::new("profile", "Where the time went", body)
}

fn drawn(found: &[(&Measured, Vec<f64>)]) -> Figure {
    let stacks: Vec<Stack> = found
        .iter()
        .map(|(cell, shares)| Stack {
            name: cell.name(),
            shares: shares.clone(),
        })
        .collect();
    let names = KINDS.map(|(_, _, name)| name);
    let spoken = "Stacked bars: the share of all processors' time in each kind of work, for each contender; the table below has the numbers.";
    Figure {
        title: "What the processors did, by samples".into(),
        note: "Of all processors of the machine; the rest was idle. Taken in trials of their own, which count for no other figure. A softirq's \
               work is told by its functions and not by whom it interrupted; where these say neither gateway nor endpoint, it stands as the \
               kernel's for nobody in particular."
            .into(),
        picture: stack(&stacks, &names, spoken),
        table: table(found),
    }
}

fn table(found: &[(&Measured, Vec<f64>)]) -> Table {
    let head: Vec<String> = KINDS
        .iter()
        .map(|(_, _, name)| format!("#{name}"))
        .collect();
    let head: Vec<&str> = std::iter::once("contender")
        .chain(head.iter().map(String::as_str))
        .chain(["#samples"])
        .collect();
    let mut table = Table::new("Share of all processors' time, by samples", &head);
    for (cell, shares) in found {
        let mut row = vec![Cell::text(cell.name())];
        row.extend(shares.iter().map(|share| percent(*share, Some(*share))));
        let count = samples(cell).unwrap_or(0.0);
        row.push(Cell::number(format!("{count:.0}"), None));
        table.rows.push(row);
    }
    table
}

fn percent(share: f64, drawn: Option<f64>) -> Cell {
    let text = match share {
        0.0 => "0".into(),
        share => format!("{:.1} %", 100.0 * share),
    };
    Cell::number(text, drawn)
}

/// Whose work it was, by kind.
fn details(found: &[(&Measured, Vec<f64>)]) -> Table {
    let head: Vec<String> = WORK_KINDS
        .iter()
        .map(|(_, name)| format!("#{name}"))
        .collect();
    let head: Vec<&str> = ["contender", "whose"]
        .into_iter()
        .chain(head.iter().map(String::as_str))
        .collect();
    let mut table = Table::new("The same, by whom and by kind of work", &head);
    for (cell, _) in found {
        for (who, shares) in by_whom(cell) {
            let shares = shares.iter().map(|share| percent(*share, None));
            let names = [Cell::text(cell.name()), Cell::text(who)];
            table.rows.push(names.into_iter().chain(shares).collect());
        }
    }
    table
}
