//! Lines over a factor, each with the band of its intervals; the same drawing serves for distributions.

use super::axis::Axis;
use super::{Anchor, COLOURS, Drawing, Picture, WIDTH, fitting, text_width};
use crate::report::quantity::{Scale, significant};
use crate::stats::Interval;

/// One measured point.
pub struct Point {
    /// Where.
    pub x: f64,
    /// The mean.
    pub y: f64,
    /// Its interval.
    pub interval: Option<Interval>,
}

/// One line.
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points, by growing `x`.
    pub points: Vec<Point>,
    /// Drawn without marks: the steps of a distribution.
    pub steps: bool,
    /// Drawn dotted and without marks: a prediction, an ideal, or another's result.
    pub model: bool,
}

impl Line {
    /// An ordinary line.
    pub fn measured(name: &str, points: Vec<Point>) -> Line {
        Line {
            name: name.into(),
            points,
            steps: false,
            model: false,
        }
    }
}

/// What the axes are.
pub struct Lines<'a> {
    /// The name of the factor.
    pub x: &'a str,
    /// Labels at places on the axis, instead of numbers; if empty, numbers.
    pub places: &'a [(f64, String)],
    /// The scale of the figures.
    pub scale: Scale,
    /// Whether equal distances upwards are equal factors, not equal differences from zero.
    pub decades: bool,
    /// The text alternative (`aria-label`).
    pub description: &'a str,
}

impl Line {
    /// Whether the values of these lines span more than a factor of twenty: on a straight scale the small ones
    /// could not be told apart.
    pub fn span_decades(all: &[Line]) -> bool {
        let values = || {
            all.iter()
                .flat_map(|line| &line.points)
                .map(|point| point.y)
        };
        let low = values().filter(|value| *value > 0.0).reduce(f64::min);
        let high = values().reduce(f64::max);
        low.zip(high).is_some_and(|(low, high)| high / low > 20.0)
    }
}

const TOP: f64 = 28.0;
const BOTTOM: f64 = 316.0;
const LEFT: f64 = 62.0;

/// Draws them; the legend stands below, in the order given.
pub fn lines(all: &[Line], frame: &Lines) -> Picture {
    let points = || all.iter().flat_map(|line| &line.points);
    let xs: Vec<f64> = points().map(|point| point.x).collect();
    let most = points()
        .map(|point| {
            point
                .interval
                .map_or(point.y, |interval| interval.high.min(1.5 * point.y))
        })
        .fold(0.0, f64::max);
    let across = Axis::over(&xs, LEFT + 14.0, WIDTH - 24.0);
    let ys = points().map(|point| frame.scale.value(point.y));
    let up = if frame.decades {
        Axis::decades(ys, BOTTOM, TOP)
    } else {
        Axis::from_zero(frame.scale.value(most), BOTTOM, TOP)
    };
    let (legend, rows) = legend(all);
    let mut drawing = Drawing::new(BOTTOM + 54.0 + rows * 20.0);
    let stepped = all.iter().any(|line| line.steps);
    grid(&mut drawing, frame, (&across, &up), &xs, stepped);
    for (number, line) in all.iter().enumerate() {
        let place = |point: &Point| (across.place(point.x), up.place(frame.scale.value(point.y)));
        if !line.model && has_bands(all) {
            band(&mut drawing, line, number, |x, y| {
                (
                    across.place(x),
                    up.place(frame.scale.value(y)).max(TOP - 4.0),
                )
            });
        }
        path(&mut drawing, line, number, place);
        if !line.model && !line.steps {
            marks(&mut drawing, line, number, frame, place);
        }
    }
    drawing.raw(&legend);
    drawing.finish(frame.description)
}

/// Whether intervals are drawn: with more lines than colours they would hide each other.
pub fn has_bands(all: &[Line]) -> bool {
    all.iter().filter(|line| !line.model).count() <= COLOURS
}

impl Lines<'_> {
    /// The label at a place of the axis.
    fn named(&self, x: f64) -> String {
        let known = self.places.iter().find(|(place, _)| *place == x);
        known.map_or_else(|| short(x), |(_, name)| name.clone())
    }
}

fn grid(
    drawing: &mut Drawing,
    frame: &Lines,
    (across, up): (&Axis, &Axis),
    xs: &[f64],
    stepped: bool,
) {
    for tick in up.ticks() {
        let y = up.place(tick);
        drawing.line("grid", (LEFT, y), (WIDTH - 10.0, y));
        drawing.text("tick", (LEFT - 8.0, y + 4.0), Anchor::End, &short(tick));
    }
    drawing.text("unit", (LEFT, TOP - 14.0), Anchor::Start, &frame.scale.unit);
    let mut places = if stepped { across.ticks() } else { xs.to_vec() };
    places.sort_by(f64::total_cmp);
    let mut free_from = 0.0;
    for value in places {
        let label = frame.named(value);
        let (x, half) = (across.place(value), text_width(&label) / 2.0);
        if x - half >= free_from {
            drawing.line("notch", (x, BOTTOM), (x, BOTTOM + 4.0));
            drawing.text("tick", (x, BOTTOM + 17.0), Anchor::Middle, &label);
            free_from = x + half + 8.0;
        }
    }
    drawing.text(
        "axis",
        ((LEFT + WIDTH) / 2.0, BOTTOM + 36.0),
        Anchor::Middle,
        frame.x,
    );
}

fn short(value: f64) -> String {
    let text = significant(value);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn band(drawing: &mut Drawing, line: &Line, number: usize, place: impl Fn(f64, f64) -> (f64, f64)) {
    let sure: Vec<(f64, Interval)> = line
        .points
        .iter()
        .filter_map(|point| Some((point.x, point.interval?)))
        .collect();
    if sure.len() < 2 {
        return;
    }
    let above = sure.iter().map(|(x, interval)| place(*x, interval.high));
    let below = sure
        .iter()
        .rev()
        .map(|(x, interval)| place(*x, interval.low.max(0.0)));
    let corners: Vec<String> = above
        .chain(below)
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let colour = number % COLOURS;
    drawing.raw(&format!(
        "<polygon class=\"band c{colour}\" points=\"{}\"/>",
        corners.join(" ")
    ));
}

fn path(drawing: &mut Drawing, line: &Line, number: usize, place: impl Fn(&Point) -> (f64, f64)) {
    let steps: Vec<String> = line
        .points
        .iter()
        .map(|point| {
            let (x, y) = place(point);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    drawing.raw(&format!(
        "<polyline class=\"line {}\" points=\"{}\"/>",
        line_class(line, number),
        steps.join(" ")
    ));
}

fn line_class(line: &Line, number: usize) -> String {
    let dash = if line.model {
        "model".into()
    } else {
        format!("d{}", number / COLOURS % 3)
    };
    format!("c{} {dash}", number % COLOURS)
}

fn marks(
    drawing: &mut Drawing,
    line: &Line,
    number: usize,
    frame: &Lines,
    place: impl Fn(&Point) -> (f64, f64),
) {
    for point in &line.points {
        let (x, y) = place(point);
        let tip = super::escaped(&format!(
            "{}, {} {}: {}",
            line.name,
            frame.x,
            frame.named(point.x),
            frame.scale.text(point.y)
        ));
        let mark = mark(number / COLOURS, x, y);
        drawing.raw(&format!(
            "<g class=\"mark c{}\" data-value=\"{}\">{mark}<title>{tip}</title></g>",
            number % COLOURS,
            point.y
        ));
    }
}

/// Circle, square or triangle, in addition to the colour.
fn mark(kind: usize, x: f64, y: f64) -> String {
    match kind % 3 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>"),
        1 => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"6\"/>",
            x - 3.0,
            y - 3.0
        ),
        _ => format!("<path d=\"M{x:.1} {:.1} l4 7 h-8 z\"/>", y - 4.0),
    }
}

/// The legend's markup and how many rows it takes.
fn legend(all: &[Line]) -> (String, f64) {
    let (mut x, mut row, mut out) = (LEFT, 0.0, String::new());
    for (number, line) in all.iter().enumerate() {
        let name = fitting(&line.name, WIDTH - LEFT - 50.0);
        let width = 34.0 + text_width(&name) + 16.0;
        if x + width > WIDTH && x > LEFT {
            (x, row) = (LEFT, row + 1.0);
        }
        let y = BOTTOM + 58.0 + row * 20.0;
        let sign = if line.model {
            String::new()
        } else {
            mark(number / COLOURS, x + 12.0, y)
        };
        out += &format!(
            "<polyline class=\"line {}\" points=\"{x:.1},{y:.1} {:.1},{y:.1}\"/><g class=\"key c{}\">{sign}</g>\
             <text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            line_class(line, number),
            x + 24.0,
            number % COLOURS,
            x + 32.0,
            y + 4.0,
            super::escaped(&name)
        );
        x += width;
    }
    (out, row + 1.0)
}
