//! Shares that add up to a whole, one bar per name: where the processors' time went.

use super::{Anchor, Area, Drawing, Picture, WIDTH, fitting, text_width};

/// One bar of shares.
pub struct Stack {
    /// Its name.
    pub name: String,
    /// The shares, between 0 and 1, in the order of the legend.
    pub shares: Vec<f64>,
}

const ROW_HEIGHT: f64 = 26.0;
const BAR_HEIGHT: f64 = 16.0;
/// A line of the legend.
const LEGEND_ROW_HEIGHT: f64 = 18.0;

/// Draws them from the top down; what is left of each bar is idle time.
pub fn stack(stacks: &[Stack], names: &[&str], description: &str) -> Picture {
    let room = stacks
        .iter()
        .map(|stack| text_width(&stack.name))
        .fold(60.0, f64::max)
        .min(350.0);
    let (from, to) = (room + 12.0, WIDTH - 16.0);
    let mut legend = Drawing::new(0.0);
    let top = 12.0 + LEGEND_ROW_HEIGHT * keys(&mut legend, names, from) as f64;
    let bottom = top + stacks.len() as f64 * ROW_HEIGHT;
    let mut drawing = Drawing::new(bottom + 24.0);
    drawing.raw(legend.body.trim_end());
    for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let x = from + (to - from) * percent / 100.0;
        drawing.line("grid", (x, top - 6.0), (x, bottom));
        drawing.text(
            "tick",
            (x, bottom + 15.0),
            Anchor::Middle,
            &format!("{percent} %"),
        );
    }
    for (row, stack) in stacks.iter().enumerate() {
        let y = top + row as f64 * ROW_HEIGHT + ROW_HEIGHT / 2.0;
        drawing.text(
            "name",
            (room, y + 4.0),
            Anchor::End,
            &fitting(&stack.name, room),
        );
        one(&mut drawing, stack, names, (from, to), y);
    }
    drawing.finish(description)
}

fn one(drawing: &mut Drawing, stack: &Stack, names: &[&str], (from, to): (f64, f64), y: f64) {
    let mut x = from;
    for (number, share) in stack.shares.iter().enumerate() {
        let width = share.clamp(0.0, 1.0) * (to - from);
        let tip = format!("{}, {}: {:.1} %", stack.name, names[number], 100.0 * share);
        let area = Area {
            x,
            y: y - BAR_HEIGHT / 2.0,
            width,
            height: BAR_HEIGHT,
        };
        drawing.mark(&format!("part k{number}"), area, *share, &tip);
        x += width;
    }
}

/// Draws the legend, in as many lines as it needs, and returns their number.
fn keys(drawing: &mut Drawing, names: &[&str], from: f64) -> usize {
    let (mut x, mut line) = (from, 0);
    for (number, name) in names.iter().enumerate() {
        let width = 17.0 + text_width(name);
        if x + width > WIDTH && x > from {
            (x, line) = (from, line + 1);
        }
        let y = 2.0 + LEGEND_ROW_HEIGHT * line as f64;
        drawing.raw(&format!(
            "<rect class=\"part k{number}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\"/>"
        ));
        drawing.text("name", (x + 17.0, y + 10.0), Anchor::Start, name);
        x += width + 18.0;
    }
    line + 1
}
