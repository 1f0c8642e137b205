//! Two runs side by side: matching cells are compared as separate samples; significant changes and cells without a
//! counterpart are listed.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::findings::{Findings, LEVEL, MeasuredCell, Part};
use super::quantity::{self, Scale, change, with_interval};
use crate::stats::{self, Estimate};

/// The comparison as text: `a` is the earlier run, `b` the later.
pub fn text(a: &Findings, b: &Findings) -> String {
    let matched = matched(a, b);
    let mut out = format!("{} (A) against {} (B)\n", described(a), described(b));
    for drift in a.any.provenance.changes(&b.any.provenance) {
        let _ = writeln!(out, "different: {drift}");
    }
    if a.any.seed != b.any.seed {
        let _ = writeln!(
            out,
            "different order of trials: seed {}, then {}",
            a.any.seed, b.any.seed
        );
    }
    out.push('\n');
    out += &verdicts(&matched);
    out += &without_counterpart(a, b);
    out
}

fn described(findings: &Findings) -> String {
    format!("{}, {} trials", findings.any.title, findings.records.len())
}

/// A cell of both runs.
struct Matched<'f, 'r> {
    part: &'f Part<'r>,
    before: &'f MeasuredCell<'r>,
    after: &'f MeasuredCell<'r>,
    ratio: Option<Estimate>,
    robust: Option<f64>,
    floor: f64,
}

impl Matched<'_, '_> {
    fn changed(&self) -> bool {
        self.ratio
            .is_some_and(|ratio| stats::differs(&ratio, self.floor))
    }

    fn better(&self) -> bool {
        let more = self.ratio.is_some_and(|ratio| ratio.value > 1.0);
        more != quantity::less_is_better(&self.part.figure)
    }
}

type Key = (String, String, BTreeMap<String, String>);

/// What makes a cell the same in another run: its part, its contender and all its factors.
fn key(part: &Part, cell: &MeasuredCell) -> Key {
    let factors = cell.trials.first().map(|trial| trial.factors.clone());
    (
        part.figure.clone(),
        cell.contender.to_owned(),
        factors.unwrap_or_default(),
    )
}

fn matched<'f, 'r>(a: &'f Findings<'r>, b: &'f Findings<'r>) -> Vec<Matched<'f, 'r>> {
    let mut all = Vec::new();
    for part in &a.parts {
        for before in &part.cells {
            let Some((other, after)) = find(b, &key(part, before)) else {
                continue;
            };
            let (old, new) = (before.figures(), after.figures());
            all.push(Matched {
                part,
                before,
                after,
                ratio: stats::separate(&new, &old, LEVEL),
                robust: stats::robust(&new, &old),
                floor: part
                    .floor
                    .unwrap_or(f64::INFINITY)
                    .max(other.floor.unwrap_or(f64::INFINITY)),
            });
        }
    }
    all
}

fn find<'f, 'r>(
    findings: &'f Findings<'r>,
    wanted: &Key,
) -> Option<(&'f Part<'r>, &'f MeasuredCell<'r>)> {
    let mut all = findings
        .parts
        .iter()
        .flat_map(|part| part.cells.iter().map(move |cell| (part, cell)));
    all.find(|(part, cell)| key(part, cell) == *wanted)
}

fn verdicts(matched: &[Matched]) -> String {
    if matched.is_empty() {
        return "no cell of A has a counterpart in B: nothing can be compared\n".into();
    }
    let mut out = String::new();
    let mut changed: Vec<&Matched> = matched.iter().filter(|one| one.changed()).collect();
    changed.sort_by(|x, y| size(y).total_cmp(&size(x)));
    let _ = writeln!(
        out,
        "{} of {} cells changed beyond the noise{}",
        changed.len(),
        matched.len(),
        if changed.is_empty() { "" } else { ":" }
    );
    for one in &changed {
        out += &line(one, if one.better() { "better" } else { "worse " });
    }
    let still = matched.iter().filter(|one| !one.changed());
    let still: String = still.map(|one| line(one, "same  ")).collect();
    if !still.is_empty() {
        let _ = write!(out, "\nno significant change:\n{still}");
    }
    out + "\nB / A [95 %]: Welch on the logarithms; robust: the median of every B over every A. A change is \
    significant if its interval\n\
           excludes 1 and it is larger than both runs' noise floors.\n"
}

fn size(one: &Matched) -> f64 {
    one.ratio.map_or(0.0, |ratio| ratio.value.ln().abs())
}

fn line(one: &Matched, verdict: &str) -> String {
    let scale = Scale::of(&one.part.figure, one.before.mean.max(one.after.mean));
    let (ratio, shift) = match one.ratio {
        Some(ratio) => (with_interval(&ratio), change(ratio.value)),
        None => ("-".into(), "-".into()),
    };
    let robust = one.robust.map_or_else(|| "-".into(), quantity::significant);
    format!(
        "  {verdict}  {}: {} to {} {}, {shift}, B / A {ratio}, robust {robust}\n",
        name(one.before),
        scale.number(one.before.mean),
        scale.number(one.after.mean),
        scale.unit
    )
}

fn name(cell: &MeasuredCell) -> String {
    match cell
        .trials
        .first()
        .and_then(|trial| trial.factors.get("part"))
    {
        Some(part) => format!("{part}: {}", cell.name()),
        None => cell.name(),
    }
}

fn without_counterpart(a: &Findings, b: &Findings) -> String {
    let only = |one: &Findings, other: &Findings, mark: &str| -> String {
        let cells = one
            .parts
            .iter()
            .flat_map(|part| part.cells.iter().map(move |cell| (part, cell)));
        cells
            .filter(|(part, cell)| find(other, &key(part, cell)).is_none())
            .map(|(_, cell)| format!("  only in {mark}: {}\n", name(cell)))
            .collect()
    };
    let lines = only(a, b, "A") + &only(b, a, "B");
    if lines.is_empty() {
        lines
    } else {
        format!("\nwithout a counterpart:\n{lines}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn compared(before: &[f64], after: &[f64]) -> String {
        let mut a = fixture::cell("plain", 0, &[("mtu", "1500")], before);
        a.extend(fixture::cell("esplanade-old", 1, &[], &[1e9; 3]));
        let mut b = fixture::cell("plain", 4, &[("mtu", "1500")], after);
        b.extend(fixture::cell("plain", 5, &[("mtu", "9000")], after));
        text(&Findings::of(&a).unwrap(), &Findings::of(&b).unwrap())
    }

    #[test]
    fn a_significant_change_is_listed_with_its_interval() {
        let text = compared(&[1.0e9, 1.01e9, 0.99e9], &[1.5e9, 1.51e9, 1.49e9]);
        assert!(
            text.contains("1 of 1 cells changed beyond the noise:\n  better  plain"),
            "{text}"
        );
        assert!(text.contains("+50 %, B / A 1.50 ["), "{text}");
        let back = compared(&[1.5e9, 1.51e9, 1.49e9], &[1.0e9, 1.01e9, 0.99e9]);
        assert!(back.contains("worse   plain"), "{back}");
    }

    #[test]
    fn a_difference_within_the_noise_is_not_called_a_change() {
        let text = compared(&[1.0e9, 1.1e9, 0.9e9], &[1.02e9, 1.11e9, 0.93e9]);
        assert!(
            text.contains("0 of 1 cells changed beyond the noise\n"),
            "{text}"
        );
        assert!(
            text.contains("no significant change:\n  same    plain"),
            "{text}"
        );
    }

    #[test]
    fn cells_without_a_counterpart_are_named() {
        let text = compared(&[1e9, 1.1e9], &[1e9, 1.1e9]);
        assert!(text.contains("only in A: esplanade-old\n"), "{text}");
        assert!(text.contains("only in B: plain · mtu 9000\n"), "{text}");
    }
}
