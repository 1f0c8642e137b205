//! Maps of the ratios to the reference: a row for each contender and its other settings, a column for each level of the
//! setting that is drawn from left to right.

use crate::report::chart::{Chart, Heat, heat, split};
use crate::report::findings::{Findings, Part};
use crate::report::html::{Table, TableCell};
use crate::report::quantity::{self, significant};

/// More rows than this in one map are not readable: the rest goes into further maps.
const MAX_ROWS: usize = 60;

/// Name and ratios of a row.
type Row = (String, Vec<Option<f64>>);

/// The maps of a part, over the setting at this place.
pub(super) fn maps(findings: &Findings, part: &Part, across: usize) -> Vec<Chart> {
    let rows = rows(part, across);
    let measured = quantity::title(&part.figure);
    let title = part.titled(&format!(
        "{measured} as a share of {}",
        findings.reference()
    ));
    let drawings = split(&title, &rows, MAX_ROWS).into_iter();
    let map = |(title, rows)| map(part, across, title, rows);
    drawings.map(map).collect()
}

fn rows(part: &Part, across: usize) -> Vec<Row> {
    let levels = &part.settings[across].levels;
    let mut rows: Vec<Row> = Vec::new();
    for cell in &part.cells {
        let Some(ratio) = cell.ratio else { continue };
        let settings = cell.levels.iter().enumerate();
        let others = settings.filter(|(place, level)| *place != across && !level.is_empty());
        let words = std::iter::once(cell.label).chain(others.map(|(_, level)| *level));
        let name = words.collect::<Vec<_>>().join(" · ");
        let known = rows.iter().position(|(known, _)| *known == name);
        let row = known.unwrap_or_else(|| {
            rows.push((name, vec![None; levels.len()]));
            rows.len() - 1
        });
        if let Some(column) = levels.iter().position(|level| level == cell.levels[across]) {
            rows[row].1[column] = Some(ratio.value);
        }
    }
    rows
}

fn map(part: &Part, across: usize, title: String, rows: &[Row]) -> Chart {
    let factor = &part.settings[across];
    let description = format!(
        "A map: {title} over {}; the table below has the numbers.",
        factor.name
    );
    let drawn = Heat {
        rows: rows.iter().map(|(name, _)| name.clone()).collect(),
        columns: factor.levels.clone(),
        across: factor.name.clone(),
        ratios: rows.iter().map(|(_, ratios)| ratios.clone()).collect(),
    };
    Chart {
        note: "1 is equal to the reference; each shade is a factor of 1.8.".into(),
        picture: heat(&drawn, &description),
        table: table(
            &format!("{title}, by {}", factor.name),
            &factor.levels,
            rows,
        ),
        title,
    }
}

fn table(title: &str, levels: &[String], rows: &[Row]) -> Table {
    let levels = levels.iter().map(|level| format!("#{level}"));
    let head: Vec<String> = std::iter::once("contender".to_owned())
        .chain(levels)
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(title, &head);
    table.rows.extend(rows.iter().map(|(name, ratios)| {
        let shown = |ratio: &Option<f64>| TableCell::maybe(ratio.map(significant), *ratio);
        std::iter::once(TableCell::text(name))
            .chain(ratios.iter().map(shown))
            .collect()
    }));
    table
}
