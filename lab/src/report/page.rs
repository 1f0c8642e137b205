//! The report as one HTML file that needs nothing else: no script, no outside font, no connection. It follows the
//! reader's light or dark scheme, prints, and shows in tables what its charts draw.

mod bars;
mod cost;
mod date;
mod delays;
mod headline;
mod ideal;
mod latency;
mod measured;
mod provenance;
mod ratios;
mod variability;

use super::chart;
use super::findings::{EMULATED_NOTE, Findings, LEVEL};
use super::html::{Table, TableCell, definitions, escaped};
use super::paper::{self, Paper};
use super::section::Section;
use super::{limits, profile};
use crate::bars::Bar;

const STYLE: &str = include_str!("page/style.css");

/// What a page shows beside the records.
#[derive(Default)]
pub struct Inputs {
    /// The files that the contenders were started with: name and text. Keys are masked on the page.
    pub configurations: Vec<(String, String)>,
    /// What the study's paper reported, where the run repeats one.
    pub paper: Option<Paper>,
    /// What had to be reached.
    pub bars: Vec<Bar>,
    /// The last line of the records was torn.
    pub torn: Option<String>,
}

/// The whole page.
pub fn page(findings: &Findings, inputs: &Inputs) -> String {
    render(findings, &sections(findings, inputs))
}

/// The charts of the page, each as an SVG file of its own: its name, which begins with its number in the page, and
/// its text.
pub fn drawings(findings: &Findings, inputs: &Inputs) -> Vec<(String, String)> {
    let emulated = if findings.any.provenance.emulated {
        format!(" Emulated: {EMULATED_NOTE}")
    } else {
        String::new()
    };
    let source = format!(
        "{}. {}.{emulated}",
        findings.any.title,
        provenance::place_and_time(findings)
    );
    let sections = sections(findings, inputs);
    let charts = sections.iter().flat_map(|section| section.body.charts());
    let numbered = charts.enumerate().map(|(place, chart)| {
        let name = chart::file_name(place + 1, &chart.title);
        (name, chart::standalone(chart, &source))
    });
    numbered.collect()
}

fn sections(findings: &Findings, inputs: &Inputs) -> Vec<Section> {
    let then = inputs.paper.as_ref();
    let then = then.map(|paper| paper::section(paper, findings));
    let mut sections = vec![asked(findings)];
    sections.extend(then);
    sections.extend([
        headline::section(findings, &inputs.bars),
        bars::section(findings, &inputs.bars),
        measured::section(findings),
        latency::section(findings),
        limits::section(findings),
        profile::section(findings),
        cost::section(findings),
        variability::section(findings),
        missing(findings, inputs),
        provenance::section(findings, &inputs.configurations),
        method(),
    ]);
    sections.retain(|section| !section.body.is_empty());
    sections
}

fn render(findings: &Findings, sections: &[Section]) -> String {
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
    let emulated = if findings.any.provenance.emulated {
        format!("<p class=\"emulated\"><strong>Emulated:</strong> {EMULATED_NOTE}</p>\n")
    } else {
        String::new()
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#headline\">Skip to the result</a>\n\
         <header><h1>{title}</h1>\n<p class=\"where\">{}</p>\n{emulated}</header>\n\
         <nav aria-label=\"Contents\"><ul>{links}</ul></nav>\n<main>\n{bodies}</main>\n\
         <footer><p>Written by <code>esplanade lab report</code> {} from the records of the \
         run.</p></footer>\n</body>\n</html>\n",
        chart::STYLE,
        escaped(&provenance::place_and_time(findings)),
        escaped(&findings.any.provenance.lab)
    )
}

fn asked(findings: &Findings) -> Section {
    let any = findings.any;
    let mut facts = vec![
        ("Study", any.study.clone()),
        ("Reference", findings.reference().to_owned()),
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
    let trials = if ran < any.trials {
        format!(
            "{ran} of {} planned: the run was stopped or is not finished",
            any.trials
        )
    } else {
        format!("{ran}, as planned")
    };
    facts.push(("Trials", trials));
    Section::new("asked", "What was asked", definitions(&facts))
}

/// Each once, in the order of the spec, which the run has shuffled.
fn distinct(findings: &Findings, of: impl Fn(&crate::record::Record) -> String) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut records: Vec<_> = findings.records.iter().collect();
    records.sort_by_key(|record| record.order);
    for record in records {
        let one = of(record);
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all.join("; ")
}

fn missing(findings: &Findings, inputs: &Inputs) -> Section {
    let mut body = String::new();
    if !findings.missing.is_empty() {
        let mut table = Table::new(
            "Trials without a measurement",
            &["contender", "what happened", "why", "remedy", "#trials"],
        );
        table.rows.extend(findings.missing.iter().map(|one| {
            let trials = (one.how != "absent").then(|| one.trials.to_string());
            vec![
                TableCell::text(one.label),
                TableCell::text(one.how),
                TableCell::text(one.why.clone()),
                TableCell::words(one.remedy),
                TableCell::maybe(trials, None),
            ]
        }));
        body += &table.html();
    }
    if let Some(torn) = &inputs.torn {
        body += &format!("<p>{}</p>\n", escaped(torn));
    }
    Section::new("missing", "Not measured, and why", body)
}

fn method() -> Section {
    let percent = (100.0 * LEVEL).round();
    let body = format!(
        "<ul>\n\
         <li>Every round holds every case once, in shuffled order, so that slow changes of the machine affect all \
         cases alike.</li>\n\
         <li>± is half of the {percent} % interval of the mean (Student). A ratio is that of the means over the \
         rounds in which both were measured; \
         its interval is a BCa bootstrap over these pairs (widened for few pairs), below eight pairs Student\u{2019}s \
         on their logarithms.</li>\n\
         <li>A rank is a range where differences are not significant: “2–4” may be any of these.</li>\n\
         <li>An outlier is further than 3.5 robust standard deviations from the median. It is listed, and every mean \
         includes it.</li>\n\
         <li>A tunnel is checked before it is measured: both directions, small and large packets, and that a known \
         text is \
         readable on the plain side only.</li>\n</ul>\n"
    );
    Section::new("method", "How to read this", body)
}
