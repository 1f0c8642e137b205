//! The charts of the result: bars where only the contender varies, lines over a factor and a map of ratios where more does.

mod ideal;

use super::{Body, Section, mean, rank, reference, scale, with_interval};
use crate::report::chart::{Bar, Figure, Heat, Line, Lines, Point, bars, has_bands, heat, lines};
use crate::report::findings::{Cell as Measured, Findings, Part, Setting};
use crate::report::html::{Cell, Table};
use crate::report::quantity::{self, significant};
use crate::stats;

/// More lines than this in one drawing cannot be told apart.
const MANY: usize = 20;
/// More drawings than this of one part are left to the table.
const DRAWINGS: usize = 8;

/// The section.
pub(super) fn section(findings: &Findings) -> Section {
    let mut body = Body::default();
    for part in &findings.parts {
        for chart in of_part(findings, part) {
            body.draw(chart);
        }
        body.say(further(part));
    }
    Section::new("measured", "What was measured", body)
}

fn of_part(findings: &Findings, part: &Part) -> Vec<Figure> {
    let Some(across) = across(part) else {
        return vec![as_bars(findings, part)];
    };
    let mut charts: Vec<Figure> = contexts(part, across)
        .into_iter()
        .take(DRAWINGS)
        .map(|(context, cells)| over(findings, part, across, &context, &cells))
        .collect();
    charts.extend(map(findings, part, across));
    charts
}

/// The setting drawn from left to right: of those whose levels are numbers, the one with the most.
fn across(part: &Part) -> Option<usize> {
    let numbers = |setting: &Setting| {
        setting
            .levels
            .iter()
            .all(|level| level.parse::<f64>().is_ok())
    };
    let several = |setting: &Setting| setting.levels.len() > 1;
    let usable = (0..part.settings.len()).filter(|place| {
        let setting = &part.settings[*place];
        several(setting) && numbers(setting)
    });
    usable.max_by_key(|place| part.settings[*place].levels.len())
}

/// The cells by what their other settings are.
fn contexts<'a, 'b>(part: &'b Part<'a>, across: usize) -> Vec<(String, Vec<&'b Measured<'a>>)> {
    let mut contexts: Vec<(String, Vec<&Measured>)> = Vec::new();
    for cell in &part.cells {
        let others = part.settings.iter().zip(&cell.levels).enumerate();
        let named: Vec<String> = others
            .filter(|(place, (_, level))| *place != across && !level.is_empty())
            .map(|(_, (setting, level))| format!("{} {level}", setting.name))
            .collect();
        let name = named.join(", ");
        match contexts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => cells.push(cell),
            None => contexts.push((name, vec![cell])),
        }
    }
    contexts
}

fn titled(part: &Part, rest: &str) -> String {
    part.titled(&format!("{}{rest}", quantity::title(&part.figure)))
}

fn as_bars(findings: &Findings, part: &Part) -> Figure {
    let scale = scale(part);
    let all: Vec<Bar> = part
        .cells
        .iter()
        .map(|cell| Bar {
            name: cell.name(),
            value: cell.mean,
            interval: cell.interval,
            dots: cell.figures(),
            outliers: cell.outliers.clone(),
            colour: family(findings, cell),
        })
        .collect();
    let title = titled(part, "");
    let spoken = format!(
        "Bars: {title} of {} contenders with their intervals; the table below has the numbers.",
        all.len()
    );
    Figure {
        note: "Bars are means, whiskers their 95 % intervals, dots the single rounds; a red dot is an outlier.".into(),
        picture: bars(&all, &scale, &spoken),
        table: table(findings, part, &part.cells.iter().collect::<Vec<_>>()),
        title,
    }
}

/// The reference is grey; other contenders share a colour with their kind, which is the first word of their id.
fn family(findings: &Findings, cell: &Measured) -> usize {
    const GREY: usize = 7;
    let kind = |id: &str| id.split('-').next().unwrap_or_default().to_owned();
    if kind(cell.contender) == kind(&findings.any.reference) {
        return GREY;
    }
    let mut kinds: Vec<String> = Vec::new();
    for record in findings.records {
        let one = kind(&record.contender);
        if one != kind(&findings.any.reference) && !kinds.contains(&one) {
            kinds.push(one);
        }
    }
    // Esplanade is always blue: pages of several runs lie side by side.
    kinds.sort_by_key(|kind| kind != "esplanade");
    let offset = usize::from(!kinds.iter().any(|kind| kind == "esplanade"));
    kinds
        .iter()
        .position(|one| *one == kind(cell.contender))
        .map_or(GREY, |place| (place + offset) % GREY)
}

fn over(
    findings: &Findings,
    part: &Part,
    across: usize,
    context: &str,
    cells: &[&Measured],
) -> Figure {
    let scale = scale(part);
    let factor = &part.settings[across];
    let mut all: Vec<Line> = Vec::new();
    for cell in cells.iter().filter(|cell| !cell.levels[across].is_empty()) {
        let point = Point {
            x: cell.levels[across].parse().unwrap_or(0.0),
            y: cell.mean,
            interval: cell.interval,
        };
        match all.iter_mut().find(|line| line.name == cell.label) {
            Some(line) => line.points.push(point),
            None => all.push(Line::measured(cell.label, vec![point])),
        }
    }
    all.iter_mut()
        .for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    all.truncate(MANY);
    let mut note = String::from(match has_bands(&all) {
        true => "Points are means, bands their 95 % intervals.",
        false => "Points are means; their 95 % intervals stand in the table.",
    });
    if part.figure == "goodput_bps" {
        let ideals = ideal::lines(cells, across);
        if !ideals.is_empty() {
            note += " Dotted: the most that the link can carry, every header counted.";
        }
        all.extend(ideals);
    }
    let beside = if context.is_empty() {
        String::new()
    } else {
        format!(" ({context})")
    };
    let title = titled(part, &format!(" over {}{beside}", factor.name));
    let spoken = format!(
        "Lines: {title} for {} contenders; the table below has the numbers.",
        all.len()
    );
    let frame = Lines {
        x: &factor.name,
        places: &[],
        decades: false,
        scale,
        spoken: &spoken,
    };
    Figure {
        note,
        picture: lines(&all, &frame),
        table: table(findings, part, cells),
        title,
    }
}

fn table(findings: &Findings, part: &Part, cells: &[&Measured]) -> Table {
    let scale = scale(part);
    let with_floor = part.floor.is_some();
    let unit = format!("#{}", quantity::title(&part.figure));
    let ratio = format!("#of {}", reference(findings));
    let head: Vec<&str> = std::iter::once("contender")
        .chain(part.settings.iter().map(|setting| setting.name.as_str()))
        .chain([
            unit.as_str(),
            ratio.as_str(),
            "#rank",
            "#rounds",
            "#2009 rule",
        ])
        .collect();
    let mut table = Table::new(titled(part, ""), &head);
    table.rows.extend(cells.iter().map(|cell| {
        let level = |level: &&str| Some((*level).to_owned()).filter(|level| !level.is_empty());
        let levels = cell.levels.iter();
        let levels = levels.map(|one| Cell::maybe(level(one), None));
        let rule = stats::width(&cell.figures(), 0.95);
        std::iter::once(Cell::text(cell.label))
            .chain(levels)
            .chain([
                Cell::number(mean(cell, &scale), Some(cell.mean)),
                Cell::maybe(
                    cell.ratio.as_ref().map(with_interval),
                    cell.ratio.map(|ratio| ratio.value),
                ),
                Cell::maybe(with_floor.then(|| rank(cell.rank)), None),
                Cell::number(cell.values.len().to_string(), None),
                Cell::maybe(
                    rule.map(|width| format!("{} % wide", significant(100.0 * width))),
                    None,
                ),
            ])
            .collect()
    }));
    table
}

/// Ratios to the reference over the drawn setting, a row for each contender and what else is set.
fn map(findings: &Findings, part: &Part, across: usize) -> Option<Figure> {
    let factor = &part.settings[across];
    let mut rows: Vec<(String, Vec<Option<f64>>)> = Vec::new();
    for cell in &part.cells {
        let Some(ratio) = cell.ratio else { continue };
        let others: Vec<&str> = std::iter::once(cell.label)
            .chain(
                cell.levels
                    .iter()
                    .enumerate()
                    .filter(|(place, level)| *place != across && !level.is_empty())
                    .map(|(_, level)| *level),
            )
            .collect();
        let name = others.join(" · ");
        let row = match rows.iter().position(|(known, _)| *known == name) {
            Some(row) => row,
            None => {
                rows.push((name, vec![None; factor.levels.len()]));
                rows.len() - 1
            }
        };
        if let Some(column) = factor
            .levels
            .iter()
            .position(|level| level == cell.levels[across])
        {
            rows[row].1[column] = Some(ratio.value);
        }
    }
    if rows.is_empty() || rows.len() > 60 {
        return None;
    }
    let title = titled(part, &format!(" as a share of {}", reference(findings)));
    let spoken = format!(
        "A map: {title} over {}; the table below has the numbers.",
        factor.name
    );
    let head: Vec<String> = factor
        .levels
        .iter()
        .map(|level| format!("#{level}"))
        .collect();
    let head: Vec<&str> = std::iter::once("contender")
        .chain(head.iter().map(String::as_str))
        .collect();
    let mut table = Table::new(format!("{title}, by {}", factor.name), &head);
    table.rows.extend(rows.iter().map(|(name, ratios)| {
        let shown = |ratio: &Option<f64>| Cell::maybe(ratio.map(significant), *ratio);
        std::iter::once(Cell::text(name))
            .chain(ratios.iter().map(shown))
            .collect()
    }));
    let (names, ratios) = rows.into_iter().unzip();
    let drawn = Heat {
        rows: names,
        columns: factor.levels.clone(),
        across: factor.name.clone(),
        ratios,
    };
    Some(Figure {
        note: "1 is equal; each shade is a factor of 1.8.".into(),
        picture: heat(&drawn, &spoken),
        table,
        title,
    })
}

/// Whatever else the trials found, as a table.
fn further(part: &Part) -> String {
    let mut names: Vec<&String> = part
        .cells
        .iter()
        .flat_map(|cell| &cell.trials)
        .flat_map(|trial| trial.figures.keys())
        .collect();
    names.sort();
    names.dedup();
    names.retain(|name| **name != part.figure && *name != "goodput_bps");
    if names.is_empty() {
        return String::new();
    }
    let titles: Vec<String> = names
        .iter()
        .map(|name| format!("#{}", quantity::title(name)))
        .collect();
    let head: Vec<&str> = ["contender", "under"]
        .into_iter()
        .chain(titles.iter().map(String::as_str))
        .collect();
    let mut table = Table::new(part.titled("what else was found, means"), &head);
    table.rows.extend(part.cells.iter().map(|cell| {
        let shown = |name: &&String| {
            let value = cell.other(name);
            let text = value.map(|value| quantity::Scale::of(name, value).text(value));
            Cell::maybe(text, value)
        };
        [Cell::text(cell.label), Cell::words(&cell.under)]
            .into_iter()
            .chain(names.iter().map(shown))
            .collect()
    }));
    format!(
        "<details><summary>What else was found</summary>\n{}</details>\n",
        table.html()
    )
}
