//! Where the time went, function by function, by sampled profiles: the shares of a cell, and the section that shows
//! them as one bar for each contender, and by process.

use super::chart::{Chart, Stack, split, stack};
use super::findings::{Findings, MeasuredCell, Part};
use super::html::{Table, TableCell};
use super::section::{Body, Section};
use crate::meter::{OWNERS, WORK_KINDS};

/// More bars than this in one drawing are not readable: the rest goes into further drawings.
const MAX_BARS: usize = 36;
/// The details of more cells than this are folded.
const MAX_DETAILED_CELLS: usize = 12;

/// Kinds of work in the order of a chart: whose it is, which of [`WORK_KINDS`], and the name for readers.
type Kind = (
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

const GATEWAYS: &[&str] = &["left", "right", "forwarding"];
const ALL: &[&str] = &[
    "cipher",
    "checksum",
    "own",
    "copies",
    "network",
    "scheduling",
    "kernel",
];

/// The kinds. What is left of the whole is idle.
pub const KINDS: [Kind; 8] = [
    (GATEWAYS, &["cipher"], "gateways: ciphers"),
    (GATEWAYS, &["own", "checksum"], "gateways: own code"),
    (GATEWAYS, &["copies"], "gateways: copies"),
    (GATEWAYS, &["network"], "gateways: network stack"),
    (
        GATEWAYS,
        &["scheduling", "kernel"],
        "gateways: calls, waiting",
    ),
    (&["kernel"], ALL, "kernel, not attributed"),
    (&["endpoints"], ALL, "endpoints"),
    (&["others"], ALL, "other programs"),
];

/// The shares of [`KINDS`], where a profile of the cell was taken.
pub fn shares(cell: &MeasuredCell) -> Option<Vec<f64>> {
    samples(cell)?;
    let kinds = KINDS.iter();
    Some(
        kinds
            .map(|(who, places, _)| who.iter().map(|who| sum(cell, who, places)).sum())
            .collect(),
    )
}

fn sum(cell: &MeasuredCell, who: &str, places: &[&str]) -> f64 {
    let shares = places.iter().filter_map(|place| share(cell, who, place));
    shares.sum()
}

/// The share of one thread in one place.
pub fn share(cell: &MeasuredCell, who: &str, place: &str) -> Option<f64> {
    cell.examined(&format!("profile.{who}.{place}_ratio"))
}

/// How many samples there are.
pub fn samples(cell: &MeasuredCell) -> Option<f64> {
    cell.examined("profile.samples_count")
        .filter(|count| *count > 0.0)
}

/// Processes with samples, by their names for readers, and their share of each of `WORK_KINDS`.
pub fn by_whom(cell: &MeasuredCell) -> Vec<(&'static str, Vec<f64>)> {
    let rows = OWNERS.iter().map(|(who, name)| {
        let places = WORK_KINDS.iter();
        let shares = places.map(|(place, _)| share(cell, who, place).unwrap_or(0.0));
        (*name, shares.collect::<Vec<f64>>())
    });
    rows.filter(|(_, shares)| shares.iter().any(|share| *share > 0.0))
        .collect()
}

/// A cell with the shares of [`KINDS`].
type Profiled<'f, 'r> = (&'f MeasuredCell<'r>, Vec<f64>);

/// The section; empty where no profile was taken.
pub(super) fn section(findings: &Findings) -> Section {
    let mut body = Body::default();
    for part in &findings.parts {
        show(part, &mut body);
    }
    Section::new("profile", "Where the time went", body)
}

/// The bars of a part, in as many drawings as are readable, and whose work it was.
fn show(part: &Part, body: &mut Body) {
    let cells = part.cells.iter();
    let found: Vec<Profiled> = cells
        .filter_map(|cell| Some((cell, shares(cell)?)))
        .collect();
    let title = part.titled("Processor time by kind of work, sampled");
    for (title, some) in split(&title, &found, MAX_BARS) {
        body.push_chart(drawn(title, some));
    }
    let whose = part.titled("the same, by process and kind of work");
    match found.len() {
        0 => {}
        1..=MAX_DETAILED_CELLS => body.push_html(details(whose, &found).html()),
        _ => body.push_html(format!(
            "<details><summary>By process and kind of work</summary>\n{}</details>\n",
            details(whose, &found).html()
        )),
    }
}

fn drawn(title: String, found: &[Profiled]) -> Chart {
    let stacks: Vec<Stack> = found
        .iter()
        .map(|(cell, shares)| Stack {
            name: cell.name(),
            shares: shares.clone(),
        })
        .collect();
    let names = KINDS.map(|(_, _, name)| name);
    let description = "Stacked bars: the share of all processors' time in each kind of work, for each contender; the \
    table below has the numbers.";
    Chart {
        title,
        note: "Of all processors of the machine; the rest was idle. Taken in separate trials, which count for no \
        other figure. Work in a softirq is \
               attributed by its functions, not by the process it interrupted; where these show neither gateway nor \
               endpoint, it is not \
               attributed."
            .into(),
        picture: stack(&stacks, &names, description),
        table: table(found),
    }
}

fn table(found: &[Profiled]) -> Table {
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
        let mut row = vec![TableCell::text(cell.name())];
        row.extend(shares.iter().map(|share| percent(*share, Some(*share))));
        let count = samples(cell).unwrap_or(0.0);
        row.push(TableCell::number(format!("{count:.0}"), None));
        table.rows.push(row);
    }
    table
}

fn percent(share: f64, drawn: Option<f64>) -> TableCell {
    let text = match share {
        0.0 => "0".into(),
        share => format!("{:.1} %", 100.0 * share),
    };
    TableCell::number(text, drawn)
}

/// Whose work it was, by kind.
fn details(title: String, found: &[Profiled]) -> Table {
    let head: Vec<String> = WORK_KINDS
        .iter()
        .map(|(_, name)| format!("#{name}"))
        .collect();
    let head: Vec<&str> = ["contender", "process"]
        .into_iter()
        .chain(head.iter().map(String::as_str))
        .collect();
    let mut table = Table::new(title, &head);
    for (cell, _) in found {
        for (who, shares) in by_whom(cell) {
            let shares = shares.iter().map(|share| percent(*share, None));
            let names = [TableCell::text(cell.name()), TableCell::text(who)];
            table.rows.push(names.into_iter().chain(shares).collect());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::IntrusiveMeter;
    use crate::report::fixture;

    /// The section for so many profiled cells.
    fn page(cells: usize) -> String {
        let readings = [
            ("profile.samples_count", 1000.0),
            ("profile.left.cipher_ratio", 0.25),
        ];
        let cell = |order: usize| {
            let level = order.to_string();
            let factors = [("mtu", level.as_str())];
            let mut records = fixture::cell("a", order, &factors, &[1e9]);
            let by = IntrusiveMeter::Profile;
            records.push(fixture::examined("a", order, &factors, by, &readings));
            records
        };
        let records: Vec<_> = (0..cells).flat_map(cell).collect();
        let findings = Findings::of(&records).unwrap();
        section(&findings).body.html(&mut 0)
    }

    #[test]
    fn every_profiled_cell_is_drawn_and_has_its_details() {
        let few = page(2);
        assert_eq!(few.matches("<figure").count(), 1);
        assert!(!few.contains("1 of") && !few.contains("By process and kind"));
        let many = page(MAX_BARS + 1);
        assert_eq!(many.matches("<figure").count(), 2);
        assert!(many.contains("sampled, 2 of 2</h3>"), "{many}");
        let bars = many.matches("class=\"part k0\" data-value=\"0.25\"");
        assert_eq!(bars.count(), MAX_BARS + 1);
        assert!(many.contains("By process and kind of work"), "{many}");
    }

    #[test]
    fn without_a_profile_there_is_no_section() {
        let records = fixture::cell("a", 0, &[], &[1e9]);
        assert!(section(&Findings::of(&records).unwrap()).body.is_empty());
    }
}
