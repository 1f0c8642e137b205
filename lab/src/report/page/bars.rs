//! The bars of a study: what was asked, how much of it was reached, and how sure that is. Each is drawn as its share of
//! what was asked, so that ratios, bytes and microseconds stand on one scale.

use crate::bars::{Bar, BarResult, judge, with_interval};
use crate::report::chart::{Chart, Goal, goals};
use crate::report::findings::Findings;
use crate::report::html::{Table, TableCell};
use crate::report::section::{Body, Section};

/// The section; empty for a study without bars.
pub(super) fn section(findings: &Findings, bars: &[Bar]) -> Section {
    let judged: Vec<(&Bar, Vec<BarResult>)> = bars
        .iter()
        .map(|bar| (bar, judge(bar, findings.records)))
        .collect();
    let body = match bars.is_empty() {
        true => Body::default(),
        false => drawn(&judged),
    };
    Section::new("bars", "What was to be reached", body)
}

fn drawn(judged: &[(&Bar, Vec<BarResult>)]) -> Body {
    let goals_of = |(bar, cases): &(&Bar, Vec<BarResult>)| -> Vec<Goal> {
        let name = |one| match cases.len() {
            1 => format!("{} · {}", bar.name, bar.about),
            _ => name(bar, one),
        };
        let goals = cases.iter().filter_map(|one| goal(bar, one, name(one)));
        goals.collect()
    };
    let all: Vec<Goal> = judged.iter().flat_map(goals_of).collect();
    let table = table(judged);
    if all.is_empty() {
        return table.html().into();
    }
    let description = "One row for each bar: the share of what was asked, with its interval; 1 is the bar. The table has the numbers.";
    // Figures of the result are numbered from 1; this one stands apart.
    Body::from(Chart {
        title: "How much of each bar was reached".into(),
        note: "1 is the bar, and right of it is better. It is met (full mark) where all of the interval is right of it, and \
               not met (empty mark) otherwise; a grey mark has no interval, and nothing is said of it."
            .into(),
        picture: goals(&all, description),
        table,
    })
}

fn goal(bar: &Bar, one: &BarResult, name: String) -> Option<Goal> {
    let ends = one.interval.and_then(|interval| {
        let (a, b) = (bar.share(interval.low)?, bar.share(interval.high)?);
        Some((a.min(b), a.max(b)))
    });
    Some(Goal {
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
        "Bars",
        &[
            "bar",
            "what it says",
            "#measured [95 %]",
            "#asked",
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
