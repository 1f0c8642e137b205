//! The targets of a study (its bars): what is required, how much of it was reached, and the confidence interval. Each
//! is drawn as the share of what is required, so that ratios, bytes and microseconds have one scale.

use crate::bars::{Bar, BarResult, judge, with_interval};
use crate::report::chart::{Chart, Target, targets};
use crate::report::findings::Findings;
use crate::report::html::{Table, TableCell};
use crate::report::section::{Body, Section};

/// The section; empty for a study without bars.
pub(super) fn section(findings: &Findings, bars: &[Bar]) -> Section {
    let judged: Vec<(&Bar, Vec<BarResult>)> = bars
        .iter()
        .map(|bar| (bar, judge(bar, findings.records)))
        .collect();
    let body = if bars.is_empty() {
        Body::default()
    } else {
        drawn(&judged)
    };
    Section::new("bars", "Targets", body)
}

fn drawn(judged: &[(&Bar, Vec<BarResult>)]) -> Body {
    let targets_of = |(bar, cases): &(&Bar, Vec<BarResult>)| -> Vec<Target> {
        let name = |one| match cases.len() {
            1 => format!("{} · {}", bar.name, bar.about),
            _ => name(bar, one),
        };
        let targets = cases.iter().filter_map(|one| target(bar, one, name(one)));
        targets.collect()
    };
    let all: Vec<Target> = judged.iter().flat_map(targets_of).collect();
    let table = table(judged);
    if all.is_empty() {
        return table.html().into();
    }
    let description = "One row for each target: the share of it that was reached, with its interval. The table has \
    the numbers.";
    // Figures of the result are numbered from 1; this one stands apart.
    Body::from(Chart {
        title: "How much of each target was reached".into(),
        note: "1 is the target; higher is better. It is met (filled mark) where the whole interval lies above 1, and \
               not met (hollow mark) otherwise. A grey mark has no interval and is not judged."
            .into(),
        picture: targets(&all, description),
        table,
    })
}

fn target(bar: &Bar, one: &BarResult, name: String) -> Option<Target> {
    let ends = one.interval.and_then(|interval| {
        let (a, b) = (bar.share(interval.low)?, bar.share(interval.high)?);
        Some((a.min(b), a.max(b)))
    });
    Some(Target {
        name,
        share: bar.share(one.mean)?,
        ends,
        met: one.met,
    })
}

fn name(bar: &Bar, one: &BarResult) -> String {
    format!("{} · {}", bar.name, one.case)
}

fn table(judged: &[(&Bar, Vec<BarResult>)]) -> Table {
    let mut table = Table::new(
        "Targets",
        &[
            "target",
            "meaning",
            "#measured [95 %]",
            "#required",
            "#share",
            "#pairs",
            "verdict",
        ],
    );
    for (bar, cases) in judged {
        if cases.is_empty() {
            table.rows.push(row(&bar.name, bar, None));
        }
        let rows = cases.iter();
        table
            .rows
            .extend(rows.map(|one| row(&name(bar, one), bar, Some(one))));
    }
    table
}

fn row(name: &str, bar: &Bar, one: Option<&BarResult>) -> Vec<TableCell> {
    let share = one.and_then(|one| bar.share(one.mean));
    vec![
        TableCell::text(name),
        TableCell::text(bar.about.as_str()),
        TableCell::maybe(one.map(with_interval), None),
        TableCell::number(bar.limit(), None),
        TableCell::maybe(share.map(|share| format!("{share:.3}")), share),
        TableCell::maybe(one.map(|one| one.pairs.to_string()), None),
        TableCell::text(one.map_or("not measured", BarResult::verdict)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::RecordFilter;
    use crate::report::fixture;

    fn bar(at_least: f64) -> Bar {
        Bar {
            name: "1".into(),
            about: "faster than nothing".into(),
            figure: "goodput_bps".into(),
            of: RecordFilter::default(),
            to: None,
            less: None,
            at_least: Some(at_least),
            at_most: None,
            moonshot: None,
        }
    }

    #[test]
    fn one_round_is_drawn_without_a_verdict() {
        let records = fixture::cell("a", 0, &[], &[1e9]);
        let findings = Findings::of(&records).unwrap();
        let body = section(&findings, &[bar(1.0)]).body.html(&mut 0);
        assert!(body.contains("too few pairs to judge"), "{body}");
        assert!(!body.contains(">met<") && !body.contains("NOT met"));
    }

    #[test]
    fn a_bar_is_drawn_as_its_share_and_judged_by_its_interval() {
        let records = fixture::cell("a", 0, &[], &[2e9, 2.1e9, 1.9e9, 2e9]);
        let findings = Findings::of(&records).unwrap();
        let body = section(&findings, &[bar(1e9), bar(4e9)]).body.html(&mut 0);
        assert!(body.contains("data-value=\"2\"") && body.contains("data-value=\"0.5\""));
        assert!(
            body.contains(">met<") && body.contains(">NOT met<"),
            "{body}"
        );
    }

    #[test]
    fn a_study_without_bars_has_no_section() {
        let records = fixture::cell("a", 0, &[], &[1e9]);
        let findings = Findings::of(&records).unwrap();
        assert!(section(&findings, &[]).body.is_empty());
    }
}
