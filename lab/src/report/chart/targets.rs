//! Shares of targets, one row each: a point with its interval, left or right of the line at 1.

use super::axis::Axis;
use super::{Anchor, Area, Drawing, Picture, WIDTH, fitting, text_width};

/// One row.
pub struct Target {
    /// Its name.
    pub name: String,
    /// The share of the target.
    pub share: f64,
    /// Its interval.
    pub ends: Option<(f64, f64)>,
    /// Whether it is met, where there is an interval.
    pub met: Option<bool>,
}

const ROW_HEIGHT: f64 = 26.0;
/// Shares above this are drawn at the edge.
const MAX_SHARE: f64 = 4.0;
/// Where the axis ends; the last number stands behind it.
const EDGE: f64 = WIDTH - 72.0;

/// Draws them from the top down.
pub fn targets(targets: &[Target], description: &str) -> Picture {
    let names = targets.iter().map(|goal| text_width(&goal.name));
    let names = names.fold(60.0, f64::max).min(380.0);
    let most = targets.iter().map(Target::furthest).fold(1.2, f64::max);
    let axis = Axis::from_zero(most.min(MAX_SHARE), names + 12.0, EDGE);
    let bottom = 8.0 + targets.len() as f64 * ROW_HEIGHT;
    let mut drawing = Drawing::new(bottom + 38.0);
    for tick in axis.ticks() {
        let x = axis.place(tick);
        drawing.line("grid", (x, 4.0), (x, bottom));
        let shown = format!("{}", (tick * 100.0).round() / 100.0);
        drawing.text("tick", (x, bottom + 15.0), Anchor::Middle, &shown);
    }
    let one = axis.place(1.0);
    drawing.line("goal", (one, 2.0), (one, bottom + 4.0));
    drawing.text(
        "unit",
        (EDGE, bottom + 32.0),
        Anchor::End,
        "share of the target",
    );
    for (place, goal) in targets.iter().enumerate() {
        row(
            &mut drawing,
            goal,
            &axis,
            8.0 + (place as f64 + 0.5) * ROW_HEIGHT,
            names,
        );
    }
    drawing.finish(description)
}

impl Target {
    fn furthest(&self) -> f64 {
        self.ends.map_or(self.share, |(_, high)| high)
    }
}

fn row(drawing: &mut Drawing, goal: &Target, axis: &Axis, y: f64, names: f64) {
    let place = |share: f64| axis.place(share.clamp(0.0, MAX_SHARE)).min(EDGE + 4.0);
    drawing.text(
        "name",
        (names, y + 4.0),
        Anchor::End,
        &fitting(&goal.name, names),
    );
    let mut end = place(goal.share);
    if let Some((low, high)) = goal.ends {
        drawing.line("whisker", (place(low), y), (place(high), y));
        for share in [low, high] {
            drawing.line("whisker", (place(share), y - 4.0), (place(share), y + 4.0));
        }
        end = place(high);
    }
    // Not by colour alone: a target that is not met is also hollow.
    let colour = match goal.met {
        Some(true) => "mark c2",
        Some(false) => "mark hollow c1",
        None => "mark c7",
    };
    let area = Area {
        x: place(goal.share) - 4.0,
        y: y - 4.0,
        width: 8.0,
        height: 8.0,
    };
    let shown = format!("{:.2}", goal.share);
    let tip = format!("{}: {shown} of the target", goal.name);
    drawing.mark(colour, area, goal.share, &tip);
    let beyond = if goal.share > MAX_SHARE { " ▸" } else { "" };
    drawing.text(
        "value",
        (end + 9.0, y + 4.0),
        Anchor::Start,
        &format!("{shown}{beyond}"),
    );
}
