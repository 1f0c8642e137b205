//! Then and now: what a study's paper reported, beside what the same question gives here. The reported figures are data
//! files; only what a paper's text says is in them. Each claim is a comparison that the records can answer, so that "held"
//! and "no longer holds" are findings and not opinions.

mod now;
mod speedup;

use std::collections::BTreeMap;

use serde::Deserialize;

use super::chart::{Figure, Line, Lines, Point, lines};
use super::findings::Findings;
use super::html::{Cell, Table, escaped};
use super::page::{Body, Section};
use super::quantity::{self, Scale};

pub use now::{Answer, Judgement};

/// What a paper reported.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    /// The study that repeats it.
    pub study: String,
    /// Authors, title, year.
    pub source: String,
    /// Machines, system and method, in a sentence or two.
    pub testbed: String,
    /// Tables as printed.
    #[serde(default)]
    pub table: Vec<Printed>,
    /// Reported curves over a factor that the study varies.
    #[serde(default)]
    pub series: Vec<Series>,
    /// What it found, as comparisons.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A table of the paper.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// What it shows.
    pub title: String,
    /// Its columns.
    pub head: Vec<String>,
    /// Its rows, as printed.
    pub rows: Vec<Vec<String>>,
}

/// A curve that the paper's text gives point by point.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Whose.
    pub name: String,
    /// The figure, as records name it.
    pub figure: String,
    /// The factor, as records name it.
    pub factor: String,
    /// Level and figure.
    pub points: Vec<(f64, f64)>,
}

/// A finding of the paper that records can confirm or refute.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What was found then, as a sentence.
    pub said: String,
    /// The reported number in the reader's units, as text; empty where only words were reported.
    #[serde(default)]
    pub then: String,
    /// The cells it speaks of: factors and their levels; `contender` compares the beginning of the id.
    pub of: BTreeMap<String, String>,
    /// The cells it compares them to, each with the one of the same settings. Left out: the figure itself is judged.
    #[serde(default)]
    pub to: Option<BTreeMap<String, String>>,
    /// The figure that is compared, where it is not the part's own; also what an intrusive meter read.
    #[serde(default)]
    pub figure: Option<String>,
    /// The ratio, or the figure, at or above which it still holds.
    #[serde(default)]
    pub least: Option<f64>,
    /// The ratio, or the figure, at or below which it still holds.
    #[serde(default)]
    pub most: Option<f64>,
    /// Why it holds, if it does.
    #[serde(default)]
    pub held: String,
    /// Why it no longer holds, if it does not.
    #[serde(default)]
    pub gone: String,
}

/// The papers that the lab repeats.
const PAPERS: [(&str, &str); 4] = [
    (
        "iatrou-2009",
        include_str!("../../studies/then/iatrou-2009.toml"),
    ),
    (
        "ronan-2004",
        include_str!("../../studies/then/ronan-2004.toml"),
    ),
    ("roy-2004", include_str!("../../studies/then/roy-2004.toml")),
    (
        "klassert-2010",
        include_str!("../../studies/then/klassert-2010.toml"),
    ),
];

impl Then {
    /// The paper that a study repeats, if it repeats one.
    pub fn of(study: &str) -> Option<Then> {
        let (_, text) = PAPERS.iter().find(|(name, _)| *name == study)?;
        // The texts are compiled in and a test reads each of them.
        toml::from_str(text).ok()
    }

    /// The section of the page.
    pub fn section(&self, findings: &Findings) -> Section {
        let mut body = Body::from(format!(
            "<p>{}. {}</p>\n",
            escaped(&self.source),
            escaped(&self.testbed)
        ));
        body.say(self.claims(findings));
        let charts = self
            .figures()
            .into_iter()
            .filter_map(|(name, factor)| self.beside(findings, name, factor));
        charts.for_each(|chart| body.draw(chart));
        if self.study == "klassert-2010" {
            speedup::charts(findings).for_each(|chart| body.draw(chart));
        }
        for table in &self.table {
            body.say(as_printed(table).html());
        }
        Section::new("then", "Then and now", body)
    }

    fn claims(&self, findings: &Findings) -> String {
        let mut table = Table::new(
            "What was found then, and what the records of this run say",
            &["then", "#reported", "#now", "judgement"],
        );
        for claim in &self.claim {
            let answer = Answer::of(claim, findings);
            table.rows.push(vec![
                Cell::text(&claim.said),
                Cell::number(
                    if claim.then.is_empty() {
                        "in words"
                    } else {
                        &claim.then
                    },
                    None,
                ),
                Cell::number(answer.shown(), answer.middle()),
                Cell::text(answer.sentence(claim)),
            ]);
        }
        if table.rows.is_empty() {
            String::new()
        } else {
            table.html()
        }
    }

    fn figures(&self) -> Vec<(&str, &str)> {
        let mut all: Vec<(&str, &str)> = Vec::new();
        for series in &self.series {
            let one = (series.figure.as_str(), series.factor.as_str());
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }

    /// The reported curves dotted, today's drawn through, over the same factor.
    fn beside(&self, findings: &Findings, name: &str, factor: &str) -> Option<Figure> {
        let today = today(findings, name, factor);
        if today.is_empty() {
            return None;
        }
        let mut all = today;
        all.extend(
            self.series
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
        let title = format!("{} over {factor}, then and now", quantity::title(name));
        let spoken = format!("Lines: {title}; the table below has the numbers.");
        let mut table = Table::new(
            title.clone(),
            &[
                "who",
                &format!("#{factor}"),
                &format!("#{}", quantity::title(name)),
            ],
        );
        for line in &all {
            table.rows.extend(line.points.iter().map(|point| {
                vec![
                    Cell::text(&line.name),
                    Cell::number(quantity::significant(point.x), None),
                    Cell::number(scale.text(point.y), Some(point.y)),
                ]
            }));
        }
        let frame = Lines {
            x: factor,
            places: &[],
            decades: false,
            scale,
            spoken: &spoken,
        };
        Some(Figure {
            note: "Dotted: as the paper's text reports it. Drawn through, with bands: this run."
                .into(),
            picture: lines(&all, &frame),
            table,
            title,
        })
    }
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

/// Today's curves over a factor, one for each contender; where other settings vary too, the first of their levels.
fn today(findings: &Findings, name: &str, factor: &str) -> Vec<Line> {
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
            let Some(y) = crate::stats::mean(&values) else {
                continue;
            };
            let point = Point {
                x,
                y,
                interval: crate::stats::mean_interval(&values, super::findings::LEVEL),
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

fn as_printed(printed: &Printed) -> Table {
    let mut head: Vec<String> = printed.head.iter().map(|name| format!("#{name}")).collect();
    if let Some(first) = head.first_mut() {
        first.remove(0);
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(format!("As printed: {}", printed.title), &head);
    table.rows.extend(printed.rows.iter().map(|row| {
        let cell = |(place, text): (usize, &String)| match place {
            0 => Cell::text(text),
            _ => Cell::number(text, None),
        };
        row.iter().enumerate().map(cell).collect()
    }));
    table
}

#[cfg(test)]
mod tests;
