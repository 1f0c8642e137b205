//! One bar per name, with the interval as a whisker and every single measurement as a dot.

use super::axis::Axis;
use super::{Anchor, Area, Drawing, Picture, WIDTH, fitting, text_width};
use crate::report::quantity::{Scale, significant};
use crate::stats::Interval;

/// One bar.
pub struct BarRow {
    /// Its name.
    pub name: String,
    /// The mean.
    pub value: f64,
    /// Its interval.
    pub interval: Option<Interval>,
    /// The single measurements.
    pub dots: Vec<f64>,
    /// RecordFilter of them are outliers.
    pub outliers: Vec<usize>,
    /// The colour, by family of contenders.
    pub colour: usize,
}

const ROW_HEIGHT: f64 = 30.0;
const BAR_HEIGHT: f64 = 14.0;

/// Draws them from the top down, in the order given.
pub fn bars(bars: &[BarRow], scale: &Scale, description: &str) -> Picture {
    let names = bars
        .iter()
        .map(|bar| text_width(&bar.name))
        .fold(60.0, f64::max)
        .min(300.0);
    let numbers = bars
        .iter()
        .map(|bar| text_width(&scale.text(bar.value)))
        .fold(0.0, f64::max);
    let bottom = 8.0 + bars.len() as f64 * ROW_HEIGHT;
    let most = bars.iter().map(most).fold(0.0, f64::max);
    let axis = Axis::from_zero(scale.value(most), names + 12.0, WIDTH - numbers - 20.0);
    let mut drawing = Drawing::new(bottom + 38.0);
    grid(&mut drawing, &axis, scale, bottom);
    let mut top = 8.0;
    for bar in bars {
        one(
            &mut drawing,
            bar,
            &axis,
            scale,
            top + ROW_HEIGHT / 2.0,
            names,
        );
        top += ROW_HEIGHT;
    }
    drawing.finish(description)
}

fn most(bar: &BarRow) -> f64 {
    let whisker = bar.interval.map_or(bar.value, |interval| interval.high);
    // A long whisker, of three scattered rounds, must not make all bars short.
    let whisker = whisker.min(1.5 * bar.value.abs());
    bar.dots
        .iter()
        .copied()
        .fold(whisker.max(bar.value), f64::max)
}

fn grid(drawing: &mut Drawing, axis: &Axis, scale: &Scale, bottom: f64) {
    for tick in axis.ticks() {
        let x = axis.place(tick);
        drawing.line("grid", (x, 4.0), (x, bottom));
        let shown = significant(tick);
        let shown = shown.trim_end_matches('0').trim_end_matches('.');
        let shown = if tick.abs() >= 99.5 || shown.is_empty() {
            format!("{tick}")
        } else {
            shown.into()
        };
        drawing.text("tick", (x, bottom + 15.0), Anchor::Middle, &shown);
    }
    let end = axis.ticks().last().map_or(WIDTH, |tick| axis.place(*tick));
    drawing.text("unit", (end, bottom + 32.0), Anchor::End, &scale.unit);
}

fn one(drawing: &mut Drawing, bar: &BarRow, axis: &Axis, scale: &Scale, y: f64, names: f64) {
    let place = |raw: f64| axis.place(scale.value(raw));
    let tip = format!("{}: {}", bar.name, scale.text(bar.value));
    drawing.text(
        "name",
        (names, y + 4.0),
        Anchor::End,
        &fitting(&bar.name, names),
    );
    let area = Area {
        x: place(0.0),
        y: y - BAR_HEIGHT / 2.0,
        width: place(bar.value) - place(0.0),
        height: BAR_HEIGHT,
    };
    drawing.mark(&format!("bar c{}", bar.colour), area, bar.value, &tip);
    let mut end = place(bar.value);
    if let Some(interval) = bar.interval {
        let limit = WIDTH - 8.0;
        let (low, high) = (
            place(interval.low.max(0.0)),
            place(interval.high).min(limit),
        );
        let above = y - 3.0;
        drawing.line("whisker", (low, above), (high, above));
        for x in [low, high] {
            drawing.line("whisker", (x, above - 3.5), (x, above + 3.5));
        }
        end = end.max(high);
    }
    for (place_of, dot) in bar.dots.iter().enumerate() {
        let class = if bar.outliers.contains(&place_of) {
            "dot out"
        } else {
            "dot"
        };
        let (x, shown) = (place(*dot), scale.text(*dot));
        end = end.max(x + 4.0);
        drawing.raw(&format!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2.4\"><title>{shown}</title></circle>",
            y + 3.5
        ));
    }
    let room = end + 8.0 + text_width(&scale.text(bar.value)) <= WIDTH;
    let (x, anchor) = if room {
        (end + 8.0, Anchor::Start)
    } else {
        (WIDTH, Anchor::End)
    };
    drawing.text("value", (x, y + 4.0), anchor, &scale.text(bar.value));
}
