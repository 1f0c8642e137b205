//! The lines below the table: noise floor, outliers, limits, processor load and profile.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::findings::Findings;
use super::{limits, profile, quantity, soaker, two_clocks};

/// The noise floor, the outliers and what limited each cell: what a table of means does not show.
pub(super) fn text(findings: &Findings) -> String {
    let mut out = String::new();
    for part in &findings.parts {
        let name = if part.name.is_empty() {
            String::new()
        } else {
            format!("{}: ", part.name)
        };
        if let Some(floor) = part.floor {
            let percent = quantity::significant(100.0 * floor);
            let _ = writeln!(
                out,
                "{name}noise floor {percent} %: smaller differences are not significant"
            );
        }
        let scale = part.scale();
        for cell in &part.cells {
            for place in &cell.outliers {
                let (round, value) = cell.values[*place];
                let _ = writeln!(
                    out,
                    "outlier, not removed: {} in round {round}: {}",
                    findings.name_of(cell),
                    scale.text(value)
                );
            }
        }
    }
    out += &limit_lines(findings);
    out += &soaker_lines(findings);
    out += &profile_lines(findings);
    if let Some(note) = two_clocks::note(findings) {
        let _ = writeln!(out, "{}", note.replace(". ", ".\n"));
    }
    if out.is_empty() {
        out
    } else {
        format!("\n{out}")
    }
}

/// More names than this are counted.
const MAX_NAMES: usize = 6;

fn limit_lines(findings: &Findings) -> String {
    let mut by_limit: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for cell in findings.cells() {
        if let Some((limit, _)) = limits::limit(cell) {
            by_limit
                .entry(limit)
                .or_default()
                .push(findings.name_of(cell));
        }
    }
    let listed = |names: &[String]| match names.len() {
        count if count > MAX_NAMES => format!("{count} cells, such as {}", names[0]),
        _ => names.join("; "),
    };
    let limited = |limit: &str| match limit {
        limits::NOT_KNOWN => format!("limit {limit}"),
        _ => format!("limited by {limit}"),
    };
    by_limit
        .into_iter()
        .map(|(limit, names)| format!("{}: {}\n", limited(limit), listed(&names)))
        .collect()
}

/// Where the time went, one line for each cell with a profile.
fn profile_lines(findings: &Findings) -> String {
    let mut out = String::new();
    for cell in findings.cells() {
        let Some(shares) = profile::shares(cell) else {
            continue;
        };
        let kinds = profile::KINDS.iter().zip(shares);
        let named: Vec<String> = kinds
            .filter(|(_, share)| *share >= 0.005)
            .map(|((_, _, name), share)| format!("{name} {:.0} %", 100.0 * share))
            .collect();
        let _ = writeln!(
            out,
            "profile of {}: {}",
            findings.name_of(cell),
            named.join(", ")
        );
    }
    out
}

/// Processor load of each cell with a soaker.
fn soaker_lines(findings: &Findings) -> String {
    let mut out = String::new();
    for cell in findings.cells() {
        for load in soaker::loads(cell) {
            let percent = |share: f64| format!("{} %", quantity::significant(100.0 * share));
            let caveat = load
                .caveat()
                .map_or_else(String::new, |why| format!("; {why}"));
            let _ = writeln!(
                out,
                "load of {}: {} of {}, {} of the busiest; not in the kernel's accounting: {}{caveat}",
                findings.name_of(cell),
                percent(load.all),
                load.of_all(),
                percent(load.busiest),
                percent(load.hidden),
            );
        }
    }
    if out.is_empty() {
        return out;
    }
    out + "load: by a soaker, of the whole machine, endpoints and other programs included\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Verdict;
    use crate::report::fixture;

    #[test]
    fn what_limited_it_is_a_line_also_where_it_is_not_known() {
        let limited = |limit: &str| {
            let mut records = fixture::cell("a", 0, &[], &[1e9, 1e9]);
            for record in &mut records {
                record.verdict = Some(Verdict {
                    limit: limit.into(),
                    evidence: Vec::new(),
                });
            }
            limit_lines(&Findings::of(&records).unwrap())
        };
        assert_eq!(limited("drops"), "limited by dropped packets: a\n");
        assert_eq!(limited("unknown"), "limit not known: a\n");
    }
}
