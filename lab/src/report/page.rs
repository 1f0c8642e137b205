//! The report as one HTML file that needs nothing else: no script, no outside font, no connection. It follows the reader's
//! light or dark dress, prints, and says in tables and words what its charts draw.

mod bars;
mod charts;
mod cost;
mod date;
mod headline;
mod latency;
mod origin;
mod profile;
mod section;
mod steadiness;
mod verdict;

use super::chart;
use super::findings::{Cell as Measured, Findings, LEVEL, Part};
use super::html::{Cell, Table, escaped};
use super::quantity::{Scale, significant};
use super::then::Then;
use crate::bars::Bar;
use crate::stats::Estimate;

pub use section::{Body, Section};
pub use verdict::NOT_KNOWN;

const STYLE: &str = include_str!("page/style.css");

/// What a page shows beside the records.
#[derive(Default)]
pub struct Beside {
    /// The files that the contenders were started with: name and text. Keys are masked on the page.
    pub configurations: Vec<(String, String)>,
    /// What the study's paper reported, where the run repeats one.
    pub then: Option<Then>,
    /// What had to be reached.
    pub bars: Vec<Bar>,
    /// The last line of the records was torn.
    pub torn: Option<String>,
}

/// The whole page.
pub fn page(findings: &Findings, beside: &Beside) -> String {
    dressed(findings, &sections(findings, beside))
}

/// The charts of the page, each as an SVG file of its own: its name, which begins with its number in the page, and its text.
pub fn drawings(findings: &Findings, beside: &Beside) -> Vec<(String, String)> {
    let emulated = match findings.any.provenance.emulated {
        true => format!(" Emulated: {ONLY_RIGHT_OR_WRONG}"),
        false => String::new(),
    };
    let source = format!(
        "{}. {}.{emulated}",
        findings.any.title,
        origin::place_and_time(findings)
    );
    let sections = sections(findings, beside);
    let charts = sections.iter().flat_map(|section| section.body.charts());
    let numbered = charts.enumerate().map(|(place, chart)| {
        let name = chart::file_name(place + 1, &chart.title);
        (name, chart::alone(chart, &source))
    });
    numbered.collect()
}

fn sections(findings: &Findings, beside: &Beside) -> Vec<Section> {
    let mut sections = vec![
        asked(findings),
        headline::section(findings),
        bars::section(findings, &beside.bars),
        charts::section(findings),
        latency::section(findings),
    ];
    if let Some(then) = &beside.then {
        sections.push(then.section(findings));
    }
    sections.extend([
        verdict::section(findings),
        profile::section(findings),
        cost::section(findings),
        steadiness::section(findings),
        missing(findings, beside),
        origin::section(findings, beside),
        method(),
    ]);
    sections.retain(|section| !section.body.is_empty());
    sections
}

/// What a reader of emulated figures must know.
pub(super) const ONLY_RIGHT_OR_WRONG: &str = "measured in a guest with emulated processors. What works and what does not is found \
     here; how fast it is on a real machine is not, and these figures are compared with none that were measured there, with no bar and with no paper.";

fn dressed(findings: &Findings, sections: &[Section]) -> String {
    let title = escaped(&findings.any.title);
    let links: String = sections
        .iter()
        .map(|section| {
            format!(
                "<li><a href=\"#{}\">{}</a></li>",
                section.id,
                escaped(&section.title)
            )
        })
        .collect();
    let mut figures = 0;
    let bodies: String = sections
        .iter()
        .map(|section| {
            format!(
                "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{}</h2>\n{}</section>\n",
                escaped(&section.title),
                section.body.html(&mut figures),
                id = section.id
            )
        })
        .collect();
    let emulated = match findings.any.provenance.emulated {
        true => {
            format!("<p class=\"emulated\"><strong>Emulated:</strong> {ONLY_RIGHT_OR_WRONG}</p>\n")
        }
        false => String::new(),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#headline\">To the result</a>\n\
         <header><h1>{title}</h1>\n<p class=\"where\">{}</p>\n{emulated}</header>\n\
         <nav aria-label=\"Contents\"><ul>{links}</ul></nav>\n<main>\n{bodies}</main>\n\
         <footer><p>Written by <code>esplanade lab report</code> {} from the records of the run alone.</p></footer>\n</body>\n</html>\n",
        chart::STYLE,
        escaped(&origin::place_and_time(findings)),
        escaped(&findings.any.provenance.lab)
    )
}

fn asked(findings: &Findings) -> Section {
    let any = findings.any;
    let mut facts = vec![
        ("Study", any.study.clone()),
        ("Ratios are taken to", reference(findings).to_owned()),
        (
            "Rounds",
            format!(
                "{}, each with every case once, in an order shuffled by seed {}",
                any.rounds, any.seed
            ),
        ),
        (
            "Load",
            distinct(findings, |record| {
                format!("{} for {} s", record.load, record.duration_s)
            }),
        ),
    ];
    facts.extend(findings.parts.iter().flat_map(|part| &part.settings).fold(
        Vec::new(),
        |mut all, setting| {
            let word = match setting.levels.len() {
                1 => "Set",
                _ => "Varied",
            };
            let fact = (
                word,
                format!("{}: {}", setting.name, setting.levels.join(", ")),
            );
            if !all.contains(&fact) {
                all.push(fact);
            }
            all
        },
    ));
    let contenders = distinct(findings, |record| record.label.clone());
    facts.push(("Contenders", contenders));
    let ran = findings.ran();
    let trials = match ran < any.trials {
        true => format!(
            "{ran} of {} planned: the run was stopped, or goes on",
            any.trials
        ),
        false => format!("{ran}, all that were planned"),
    };
    facts.push(("Trials", trials));
    Section::new("asked", "What was asked", definitions(&facts))
}

fn distinct(findings: &Findings, of: impl Fn(&crate::record::Record) -> String) -> String {
    let mut all: Vec<String> = Vec::new();
    for record in findings.records {
        let one = of(record);
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all.join("; ")
}

/// Names and what they are, as a definition list.
pub fn definitions(facts: &[(&str, String)]) -> String {
    let items: String = facts
        .iter()
        .map(|(name, text)| {
            format!(
                "<div><dt>{}</dt><dd>{}</dd></div>\n",
                escaped(name),
                escaped(text)
            )
        })
        .collect();
    format!("<dl>\n{items}</dl>\n")
}

/// The reference's name for readers.
pub fn reference<'a>(findings: &Findings<'a>) -> &'a str {
    let named = findings
        .records
        .iter()
        .find(|record| record.contender == record.reference);
    named.map_or(findings.any.reference.as_str(), |record| {
        record.label.as_str()
    })
}

/// One scale for all cells of a part.
pub fn scale(part: &Part) -> Scale {
    let most = part.cells.iter().map(|cell| cell.mean).fold(0.0, f64::max);
    Scale::of(&part.figure, most)
}

/// A mean with its interval.
pub fn mean(cell: &Measured, scale: &Scale) -> String {
    match cell.interval {
        Some(interval) => scale.plus_minus(cell.mean, interval.half_width()),
        None => scale.text(cell.mean),
    }
}

/// A ratio with its interval.
pub fn with_interval(ratio: &Estimate) -> String {
    match ratio.interval {
        Some(interval) => format!(
            "{} [{}, {}]",
            significant(ratio.value),
            significant(interval.low),
            significant(interval.high)
        ),
        None => significant(ratio.value),
    }
}

/// The rank, or the ranks among which the noise leaves the choice.
pub fn rank((best, worst): (usize, usize)) -> String {
    match best == worst {
        true => best.to_string(),
        false => format!("{best}–{worst}"),
    }
}

/// What limited most trials of a cell, in words, and how many.
pub fn limit<'a>(cell: &Measured<'a>) -> Option<(&'a str, usize)> {
    verdict::commonest(cell).map(|(limit, trials)| (verdict::words(limit), trials))
}

fn missing(findings: &Findings, beside: &Beside) -> Section {
    let mut body = String::new();
    if !findings.missing.is_empty() {
        let mut table = Table::new(
            "Trials without a measurement",
            &[
                "contender",
                "what happened",
                "why",
                "how to get it",
                "#trials",
            ],
        );
        table.rows.extend(findings.missing.iter().map(|one| {
            let trials = (one.how != "absent").then(|| one.trials.to_string());
            vec![
                Cell::text(one.label),
                Cell::text(one.how),
                Cell::text(one.why.clone()),
                Cell::words(one.remedy),
                Cell::maybe(trials, None),
            ]
        }));
        body += &table.html();
    }
    if let Some(torn) = &beside.torn {
        body += &format!("<p>{}</p>\n", escaped(torn));
    }
    Section::new("missing", "Not measured, and why", body)
}

fn method() -> Section {
    let percent = (100.0 * LEVEL).round();
    let body = format!(
        "<ul>\n\
         <li>Every round holds every case once, in shuffled order, so that slow changes of the machine meet all alike.</li>\n\
         <li>± is half of the {percent} % interval of the mean (Student). A ratio is that of the means over rounds that both were measured in; \
         its interval comes from resampling these pairs (BCa, widened for few of them), below eight pairs from their logarithms.</li>\n\
         <li>A rank is given as far as ratios rise above the noise: “2–4” may be any of these.</li>\n\
         <li>An outlier is further than 3.5 robust standard deviations from the median. It is named, and counted like any other.</li>\n\
         <li>A tunnel is checked before it is measured: both directions, small and large packets, and a known text that may be \
         readable on the plain side only.</li>\n</ul>\n"
    );
    Section::new("method", "How to read this", body)
}
