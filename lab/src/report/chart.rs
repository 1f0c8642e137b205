//! Charts as SVG, each with a table of the same numbers. No script and no outside font; colours come from the page, so
//! that they follow its light or dark scheme. Every mark has the number that it draws as `data-value`.

mod axis;
mod bars;
mod heat;
mod lines;
mod stack;
mod standalone;
mod targets;

use super::html::{Table, escaped};

pub use bars::{BarRow, bars};
pub use heat::{Heat, heat};
pub use lines::{Line, Lines, Point, has_bands, lines};
pub use stack::{Stack, stack};
pub use standalone::{file_name, standalone};
pub use targets::{Target, targets};

/// A chart with its words.
pub struct Chart {
    /// What it shows, as a headline.
    pub title: String,
    /// How to read it, one or two sentences.
    pub note: String,
    /// The drawing.
    pub picture: Picture,
    /// The same numbers.
    pub table: Table,
}

/// What one drawing cannot show readably, in several of about the same size, each with its title: the title's own where
/// one is enough, else with its number.
pub fn split<'a, T>(title: &str, all: &'a [T], most: usize) -> Vec<(String, &'a [T])> {
    let drawings = all.len().div_ceil(most);
    let each = all.len().div_ceil(drawings.max(1)).max(1);
    let numbered = |(place, some): (usize, &'a [T])| match drawings {
        1 => (title.to_owned(), some),
        _ => (format!("{title}, {} of {drawings}", place + 1), some),
    };
    all.chunks(each).enumerate().map(numbered).collect()
}

/// The style of every drawing: its colours, light, dark and on paper.
pub const STYLE: &str = include_str!("chart/style.css");

/// The width of every chart, in its own units; the page scales it.
const WIDTH: f64 = 760.0;

/// How many series have a colour of their own; later ones repeat the colours with another dash and another mark.
pub const COLOURS: usize = 8;

/// A finished drawing.
pub struct Picture {
    marks: String,
    height: f64,
    description: String,
}

impl Picture {
    /// The drawing within a page, which includes [`STYLE`].
    pub fn inline(&self) -> String {
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.height,
            escaped(&self.description),
            self.marks
        )
    }
}

/// An open SVG drawing. Widths of text are estimates, used for the space left for names.
struct Drawing {
    body: String,
    height: f64,
}

/// Where a text is anchored.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

impl Drawing {
    fn new(height: f64) -> Drawing {
        Drawing {
            body: String::new(),
            height,
        }
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.body += &format!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>\n",
            from.0, from.1, to.0, to.1
        );
    }

    fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.body += &format!(
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            at.0,
            at.1,
            escaped(text)
        );
    }

    /// A box with the number that it draws, and a tooltip.
    fn mark(&mut self, class: &str, area: Area, value: f64, tip: &str) {
        self.body += &format!(
            "<rect class=\"{class}\" data-value=\"{value}\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" \
             height=\"{:.2}\"><title>{}</title></rect>\n",
            area.x,
            area.y,
            area.width.max(0.0),
            area.height.max(0.0),
            escaped(tip)
        );
    }

    fn raw(&mut self, markup: &str) {
        self.body += markup;
        self.body.push('\n');
    }

    /// With its text alternative.
    fn finish(self, description: &str) -> Picture {
        Picture {
            marks: self.body,
            height: self.height,
            description: description.into(),
        }
    }
}

#[derive(Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// The average width of a letter in the widest of the charts' fonts.
const LETTER_WIDTH: f64 = 7.0;

/// The approximate width of a text in the charts' font.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER_WIDTH
}

/// A text cut to the given width, with an ellipsis.
fn fitting(text: &str, width: f64) -> String {
    let room = (width / LETTER_WIDTH) as usize;
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_drawing_cannot_show_goes_into_several_of_about_the_same_size() {
        let sizes = |count: usize| {
            let all = vec![(); count];
            let drawings = split("t", &all, 36).into_iter();
            drawings
                .map(|(title, some)| (title, some.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(0), []);
        assert_eq!(sizes(36), [("t".into(), 36)]);
        assert_eq!(
            sizes(37),
            [("t, 1 of 2".into(), 19), ("t, 2 of 2".into(), 18)]
        );
        assert_eq!(sizes(109).iter().map(|(_, size)| size).sum::<usize>(), 109);
    }
}
