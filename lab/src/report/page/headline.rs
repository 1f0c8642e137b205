//! The result in short: tiles where only the contender varies, a sentence for each contender where more does.

use crate::bars::Bar;
use crate::report::findings::{Findings, MeasuredCell, Part};
use crate::report::html::escaped;
use crate::report::quantity::{self, significant, with_interval};
use crate::report::section::Section;

/// More tiles than this are not readable; the chart below has all.
const MAX_TILES: usize = 12;

/// The section.
pub(super) fn section(findings: &Findings, bars: &[Bar]) -> Section {
    let body: String = findings
        .parts
        .iter()
        .map(|part| of_part(findings, part, bars))
        .collect();
    let body = if body.is_empty() {
        "<p>Nothing was measured; <a href=\"#missing\">why</a>.</p>\n".into()
    } else {
        body
    };
    Section::new("headline", "The result", body)
}

fn of_part(findings: &Findings, part: &Part, bars: &[Bar]) -> String {
    let mut out = String::new();
    if !part.name.is_empty() {
        out += &format!("<h3>{}</h3>\n", escaped(part.name));
    }
    out += &if part.settings.is_empty() {
        tiles(findings, part, bars)
    } else {
        ranges(part)
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
            "Noise floor: differences below {} % are not significant. Means of {rounds} rounds of the same case \
             differ by more \
             in one of twenty comparisons. Cases share a rank where they differ by less or the interval of their \
             ratio includes 1.",
            significant(100.0 * floor)
        ),
        None => "One round gives no confidence interval, and no rank.".into(),
    }
}

/// The cells with a tile: the reference and the cells of the study's bars; all cells if the study has no bars.
fn asked<'f, 'r>(part: &'f Part<'r>, bars: &[Bar]) -> Vec<&'f MeasuredCell<'r>> {
    let of_a_bar = |cell: &MeasuredCell| {
        let first = cell.trials.first();
        first.is_some_and(|trial| bars.iter().any(|bar| bar.of.includes(trial)))
    };
    let named = part.cells.iter().any(of_a_bar);
    let cells = part.cells.iter();
    let mut cells: Vec<&MeasuredCell> = cells
        .filter(|cell| !named || cell.is_reference() || of_a_bar(cell))
        .collect();
    cells.sort_by_key(|cell| !cell.is_reference());
    cells
}

fn tiles(findings: &Findings, part: &Part, bars: &[Bar]) -> String {
    let scale = part.scale();
    let cells = asked(part, bars);
    let tiles: String = cells
        .iter()
        .take(MAX_TILES)
        .map(|cell| {
            let beside = match &cell.ratio {
                Some(ratio) => format!("{} of {}", with_interval(ratio), findings.reference()),
                None if cell.is_reference() => "the reference".into(),
                None => format!("{} was not measured", findings.reference()),
            };
            format!(
                "<li><span class=\"who\">{}</span> <strong>{}</strong> <span class=\"how\">{}</span></li>\n",
                escaped(cell.label),
                escaped(&cell.mean_on(&scale)),
                escaped(&beside)
            )
        })
        .collect();
    let more = match part.cells.len() - cells.len().min(MAX_TILES) {
        0 => String::new(),
        more => format!("<p><a href=\"#measured\">{more} more below</a></p>\n"),
    };
    format!("<ul class=\"tiles\">\n{tiles}</ul>\n{more}")
}

/// One sentence for each contender: its lowest and its highest cell.
fn ranges(part: &Part) -> String {
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
        let range = if std::ptr::eq(low, high) {
            at(low)
        } else {
            format!("from {} to {}", at(low), at(high))
        };
        Some(format!(
            "<li><b>{}</b>: {}</li>\n",
            escaped(label),
            escaped(&range)
        ))
    };
    let items: String = names.into_iter().filter_map(sentence).collect();
    format!(
        "<p>{}:</p>\n<ul>\n{items}</ul>\n",
        escaped(&quantity::title(&part.figure))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::RecordFilter;
    use crate::report::fixture;

    /// The contenders with a tile, of five that grow slower one after the other, the reference last.
    fn tiles(bars: &[Bar]) -> Vec<String> {
        let names = ["a", "b", "c", "d", "plain"];
        let cell = |(order, name): (usize, &&str)| {
            let bps = 1e9 * (5 - order) as f64;
            fixture::cell(name, order, &[], &[bps, 1.01 * bps, 0.99 * bps])
        };
        let records: Vec<_> = names.iter().enumerate().flat_map(cell).collect();
        let findings = Findings::of(&records).unwrap();
        let body = section(&findings, bars).body.html(&mut 0);
        let tiles = body.split("class=\"who\">").skip(1);
        tiles
            .map(|tile| tile.split('<').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn every_contender_that_was_asked_for_has_a_tile_behind_the_reference() {
        assert_eq!(tiles(&[]), ["plain", "a", "b", "c", "d"]);
    }

    #[test]
    fn tiles_show_the_reference_and_what_the_bars_are_about() {
        let bar = Bar {
            name: "1".into(),
            about: "the slowest tunnel".into(),
            figure: "goodput_bps".into(),
            of: RecordFilter([("contender".into(), "d".into())].into()),
            to: None,
            less: None,
            at_least: Some(1.0),
            at_most: None,
            moonshot: None,
        };
        assert_eq!(tiles(&[bar]), ["plain", "d"]);
    }

    #[test]
    fn one_round_has_no_interval() {
        let records = fixture::cell("a", 0, &[], &[1e9]);
        let body = section(&Findings::of(&records).unwrap(), &[])
            .body
            .html(&mut 0);
        assert!(
            body.contains("One round gives no confidence interval, and no rank."),
            "{body}"
        );
    }
}
