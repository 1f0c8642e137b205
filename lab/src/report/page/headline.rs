//! The result in a few words: tiles where only the contender varies, a sentence for each contender where more does.

use crate::report::findings::{Findings, MeasuredCell, Part};
use crate::report::html::escaped;
use crate::report::quantity::{self, significant, with_interval};
use crate::report::section::Section;

/// The section.
pub(super) fn section(findings: &Findings) -> Section {
    let body: String = findings
        .parts
        .iter()
        .map(|part| of_part(findings, part))
        .collect();
    let body = match body.is_empty() {
        true => "<p>Nothing was measured; <a href=\"#missing\">why</a>.</p>\n".into(),
        false => body,
    };
    Section::new("headline", "The result", body)
}

fn of_part(findings: &Findings, part: &Part) -> String {
    let mut out = String::new();
    if !part.name.is_empty() {
        out += &format!("<h3>{}</h3>\n", escaped(part.name));
    }
    out += &match part.settings.is_empty() {
        true => tiles(findings, part),
        false => spans(part),
    };
    out + &format!("<p class=\"noise\">{}</p>\n", escaped(&floor(part)))
}

/// The noise in one sentence.
fn floor(part: &Part) -> String {
    let rounds = part
        .cells
        .iter()
        .map(|cell| cell.values.len())
        .max()
        .unwrap_or(0);
    match part.floor {
        Some(floor) => format!(
            "Noise floor: two sets of {rounds} runs of one and the same thing differ by {} % or more in one of twenty cases. \
             What differs by less, or with an interval that holds 1, shares its rank.",
            significant(100.0 * floor)
        ),
        None => {
            "One round says nothing of scatter: there is no interval and nothing is ranked.".into()
        }
    }
}

fn tiles(findings: &Findings, part: &Part) -> String {
    let scale = part.scale();
    let mut cells: Vec<&MeasuredCell> = part.cells.iter().collect();
    cells.sort_by_key(|cell| (cell.contender != findings.any.reference, cell.rank.0));
    let tiles: String = cells
        .iter()
        .take(4)
        .map(|cell| {
            let beside = match &cell.ratio {
                Some(ratio) => format!("{} of {}", with_interval(ratio), findings.reference()),
                None if cell.is_reference() => "the reference".into(),
                None => format!("{} is not here to compare with", findings.reference()),
            };
            format!(
                "<li><span class=\"who\">{}</span> <strong>{}</strong> <span class=\"how\">{}</span></li>\n",
                escaped(cell.label),
                escaped(&cell.mean_on(&scale)),
                escaped(&beside)
            )
        })
        .collect();
    format!("<ul class=\"tiles\">\n{tiles}</ul>\n")
}

/// One sentence for each contender: its lowest and its highest cell.
fn spans(part: &Part) -> String {
    let scale = part.scale();
    let mut names: Vec<&str> = Vec::new();
    for cell in &part.cells {
        if !names.contains(&cell.label) {
            names.push(cell.label);
        }
    }
    let sentence = |label: &str| {
        let own = || part.cells.iter().filter(|cell| cell.label == label);
        let low = own().min_by(|a, b| a.mean.total_cmp(&b.mean))?;
        let high = own().max_by(|a, b| a.mean.total_cmp(&b.mean))?;
        let at = |cell: &MeasuredCell| format!("{} at {}", cell.mean_on(&scale), cell.under);
        Some(match std::ptr::eq(low, high) {
            true => format!(
                "<li><b>{}</b>: {}</li>\n",
                escaped(label),
                escaped(&at(low))
            ),
            false => format!(
                "<li><b>{}</b>: from {} to {}</li>\n",
                escaped(label),
                escaped(&at(low)),
                escaped(&at(high))
            ),
        })
    };
    let items: String = names.into_iter().filter_map(sentence).collect();
    format!(
        "<p>{}:</p>\n<ul>\n{items}</ul>\n",
        escaped(&quantity::title(&part.figure))
    )
}
