//! A map of ratios over two factors. The colour runs from one hue (less than the reference) to another (more); each
//! field also shows its number.

use super::{Anchor, Area, Drawing, Picture, WIDTH, fitting, text_width};
use crate::report::quantity::significant;

/// The map.
pub struct Heat {
    /// The names of the rows.
    pub rows: Vec<String>,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The factor of the columns.
    pub across: String,
    /// The ratios, row by row; `None` where nothing was measured.
    pub ratios: Vec<Vec<Option<f64>>>,
}

const ROW_HEIGHT: f64 = 24.0;
const TOP: f64 = 40.0;

/// Draws it.
pub fn heat(map: &Heat, description: &str) -> Picture {
    let room = map
        .rows
        .iter()
        .map(|name| text_width(name))
        .fold(60.0, f64::max)
        .min(280.0);
    let width = (WIDTH - room - 12.0) / map.columns.len().max(1) as f64;
    let mut drawing = Drawing::new(TOP + map.rows.len() as f64 * ROW_HEIGHT + 6.0);
    let left = |column: usize| room + 12.0 + column as f64 * width;
    drawing.text(
        "axis",
        ((room + WIDTH) / 2.0, 14.0),
        Anchor::Middle,
        &map.across,
    );
    for (column, name) in map.columns.iter().enumerate() {
        let at = (left(column) + width / 2.0, TOP - 8.0);
        drawing.text("tick", at, Anchor::Middle, &fitting(name, width));
    }
    for (row, ratios) in map.ratios.iter().enumerate() {
        let y = TOP + row as f64 * ROW_HEIGHT;
        drawing.text(
            "name",
            (room, y + ROW_HEIGHT / 2.0 + 4.0),
            Anchor::End,
            &fitting(&map.rows[row], room),
        );
        for (column, ratio) in ratios.iter().enumerate() {
            let Some(ratio) = ratio else { continue };
            let area = Area {
                x: left(column) + 1.0,
                y: y + 1.0,
                width: width - 2.0,
                height: ROW_HEIGHT - 2.0,
            };
            let shown = significant(*ratio);
            let tip = format!(
                "{}, {} {}: {shown}",
                map.rows[row], map.across, map.columns[column]
            );
            drawing.mark(&format!("field h{}", shade(*ratio)), area, *ratio, &tip);
            let at = (left(column) + width / 2.0, y + ROW_HEIGHT / 2.0 + 4.0);
            drawing.text(
                &format!("in h{}", shade(*ratio)),
                at,
                Anchor::Middle,
                &shown,
            );
        }
    }
    drawing.finish(description)
}

/// One of nine shades: 4 is equal, 0 a tenth or less, 8 ten times or more.
fn shade(ratio: f64) -> usize {
    (4.0 + 4.0 * ratio.max(1e-9).log10())
        .round()
        .clamp(0.0, 8.0) as usize
}

#[cfg(test)]
mod tests {
    use super::shade;

    #[test]
    fn shades_are_even_in_factors() {
        assert_eq!(
            [0.01, 0.1, 0.5, 1.0, 2.0, 10.0, 99.0].map(shade),
            [0, 0, 3, 4, 5, 8, 8]
        );
    }
}
