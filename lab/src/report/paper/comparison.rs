//! The comparison of a run with the paper that it repeats: claim by claim, reported curves beside measured ones,
//! tables as printed.

use super::claim::{ClaimCheck, Judgement};
use super::{Paper, PrintedTable, Series, speedup};
use crate::report::chart::{Chart, Line, Lines, Point, lines};
use crate::report::findings::{Findings, LEVEL};
use crate::report::html::{Table, TableCell, escaped};
use crate::report::quantity::{self, Scale};
use crate::report::section::{Body, Section};
use crate::stats;

/// The section of the page.
pub(in crate::report) fn section(paper: &Paper, findings: &Findings) -> Section {
    let mut body = Body::from(format!(
        "<p><strong>{}</strong></p>\n<p>{}. {}</p>\n",
        escaped(&summary(paper, findings)),
        escaped(&paper.source),
        escaped(&paper.testbed)
    ));
    body.push_html(claims(paper, findings));
    let charts = figures(paper)
        .into_iter()
        .filter_map(|(name, factor)| beside(paper, findings, name, factor));
    charts.for_each(|chart| body.push_chart(chart));
    if paper.study == "klassert-2010" {
        speedup::charts(findings).for_each(|chart| body.push_chart(chart));
    }
    for table in &paper.table {
        body.push_html(as_printed(table).html());
    }
    Section::new("paper", "Then and now", body)
}

/// How many findings hold, in one sentence.
fn summary(paper: &Paper, findings: &Findings) -> String {
    let claims = paper.claim.iter().filter(|claim| !claim.ours);
    let judged: Vec<Judgement> = claims
        .map(|claim| ClaimCheck::of(claim, findings).judgement())
        .collect();
    let count = |wanted: fn(&Judgement) -> bool| judged.iter().filter(|one| wanted(one)).count();
    format!(
        "Of {} findings of the paper {} hold here, {} do not, {} are not decided and {} were not measured.",
        judged.len(),
        count(|one| matches!(one, Judgement::Holds)),
        count(|one| matches!(one, Judgement::DoesNotHold { .. })),
        count(|one| matches!(one, Judgement::Undecided)),
        count(|one| matches!(one, Judgement::NotMeasured)),
    )
}

fn claims(paper: &Paper, findings: &Findings) -> String {
    let mut table = Table::new(
        "Findings of the paper, and what this run shows",
        &["finding", "#reported", "#this run", "judgement"],
    );
    for claim in &paper.claim {
        let answer = ClaimCheck::of(claim, findings);
        table.rows.push(vec![
            TableCell::text(&claim.finding),
            TableCell::number(
                if claim.reported.is_empty() {
                    "in words"
                } else {
                    &claim.reported
                },
                None,
            ),
            TableCell::number(answer.shown(), answer.middle()),
            TableCell::text(answer.sentence(claim)),
        ]);
    }
    if table.rows.is_empty() {
        String::new()
    } else {
        table.html()
    }
}

fn figures(paper: &Paper) -> Vec<(&str, &str)> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    for series in &paper.series {
        let one = (series.figure.as_str(), series.factor.as_str());
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// The reported curves dotted, those of this run solid, over the same factor.
fn beside(paper: &Paper, findings: &Findings, name: &str, factor: &str) -> Option<Chart> {
    let mut all = measured(findings, name, factor);
    if all.is_empty() {
        return None;
    }
    all.extend(
        paper
            .series
            .iter()
            .filter(|series| series.figure == name && series.factor == factor)
            .map(reported),
    );
    let most = all
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.y)
        .fold(0.0, f64::max);
    let scale = Scale::of(name, most);
    let title = format!(
        "{} over {factor}, paper and this run",
        quantity::title(name)
    );
    let description = format!("Lines: {title}; the table below has the numbers.");
    let mut table = Table::new(
        title.clone(),
        &[
            "contender",
            &format!("#{factor}"),
            &format!("#{}", quantity::title(name)),
        ],
    );
    for line in &all {
        table.rows.extend(line.points.iter().map(|point| {
            vec![
                TableCell::text(&line.name),
                TableCell::number(quantity::significant(point.x), None),
                TableCell::number(scale.text(point.y), Some(point.y)),
            ]
        }));
    }
    let frame = Lines {
        x: factor,
        places: &[],
        decades: Line::span_decades(&all),
        scale,
        description: &description,
    };
    Some(Chart {
        note: "Dotted: as the paper's text reports it. Solid, with bands: this run.".into(),
        picture: lines(&all, &frame),
        table,
        title,
    })
}

fn reported(series: &Series) -> Line {
    let point = |(x, y): &(f64, f64)| Point {
        x: *x,
        y: *y,
        interval: None,
    };
    Line {
        model: true,
        ..Line::measured(&series.name, series.points.iter().map(point).collect())
    }
}

/// The curves of this run over a factor, one for each contender; where other settings vary too, the first of their
/// levels.
fn measured(findings: &Findings, name: &str, factor: &str) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    let parts = findings.parts.iter().filter_map(|part| {
        let place = part
            .settings
            .iter()
            .position(|setting| setting.name == factor)?;
        Some((part, place))
    });
    for (part, place) in parts {
        for cell in &part.cells {
            let first = part.settings.iter().zip(&cell.levels).enumerate();
            let mut others = first.filter(|(other, _)| *other != place);
            let plain = others.all(|(_, (setting, level))| {
                level.is_empty() || setting.levels.first().is_some_and(|first| first == level)
            });
            let Some(x) = cell.levels[place].parse().ok().filter(|_| plain) else {
                continue;
            };
            let values = cell.values_of(name);
            let Some(y) = stats::mean(&values) else {
                continue;
            };
            let point = Point {
                x,
                y,
                interval: stats::mean_interval(&values, LEVEL),
            };
            match all.iter_mut().find(|line| line.name == cell.label) {
                Some(line) if line.points.iter().any(|known| known.x == x) => {}
                Some(line) => line.points.push(point),
                None => all.push(Line::measured(cell.label, vec![point])),
            }
        }
    }
    all.iter_mut()
        .for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    all
}

fn as_printed(printed: &PrintedTable) -> Table {
    let mut head: Vec<String> = printed.head.iter().map(|name| format!("#{name}")).collect();
    if let Some(first) = head.first_mut() {
        first.remove(0);
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(format!("As printed: {}", printed.title), &head);
    table.rows.extend(printed.rows.iter().map(|row| {
        let cell = |(place, text): (usize, &String)| match place {
            0 => TableCell::text(text),
            _ => TableCell::number(text, None),
        };
        row.iter().enumerate().map(cell).collect()
    }));
    table
}
