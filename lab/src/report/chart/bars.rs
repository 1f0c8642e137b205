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
    /// Which of them are outliers, by their places.
    pub outliers: Vec<usize>,
    /// The colour, by family of contenders.
    pub colour: usize,
}

const ROW_HEIGHT: f64 = 30.0;
const BAR_HEIGHT: f64 = 14.0;
/// Between the end of a bar, its whisker or its dots, and its number.
const GAP: f64 = 8.0;

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
    let limit = WIDTH - numbers - GAP;
    let axis = Axis::from_zero(scale.value(most), names + 12.0, limit - 12.0);
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
            (names, limit),
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

/// Draws one, with its name left of `names` and everything but its number left of `limit`.
fn one(
    drawing: &mut Drawing,
    bar: &BarRow,
    axis: &Axis,
    scale: &Scale,
    y: f64,
    (names, limit): (f64, f64),
) {
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
        let low = place(interval.low.max(0.0));
        let high = place(interval.high).min(limit);
        let above = y - 3.0;
        drawing.line("whisker", (low, above), (high, above));
        // One that is cut has no end there.
        let ends = [low, place(interval.high)];
        for x in ends.into_iter().filter(|x| *x <= limit) {
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
    let number = scale.text(bar.value);
    drawing.text("value", (end + GAP, y + 4.0), Anchor::Start, &number);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers_after(drawn: &str, mark: &str) -> Vec<f64> {
        let found = drawn.split(mark).skip(1);
        found
            .map(|rest| rest.split('"').next().unwrap_or_default().parse().unwrap())
            .collect()
    }

    #[test]
    fn a_number_stands_right_of_its_whisker_and_within_the_drawing() {
        for high in [9.5, 12.0, 30.0, 1e6] {
            let bar = BarRow {
                name: "plain IP".into(),
                value: 9e9,
                interval: Some(Interval {
                    low: 5e9,
                    high: high * 1e9,
                }),
                dots: vec![8e9, 10e9],
                outliers: vec![],
                colour: 0,
            };
            let scale = Scale::of("goodput", bar.value);
            let shown = text_width(&scale.text(bar.value));
            let drawn = bars(&[bar], &scale, "one bar").inline();
            let number = numbers_after(&drawn, "<text class=\"value\" x=\"");
            assert_eq!(number.len(), 1, "{drawn}");
            assert!(number[0] + shown <= WIDTH, "{number:?} of {WIDTH}");
            let whiskers = drawn.split("class=\"whisker\"").skip(1);
            for whisker in whiskers {
                let end = numbers_after(whisker, "x2=\"")[0];
                assert!(end < number[0], "whisker to {end}, number at {number:?}");
            }
        }
    }
}
