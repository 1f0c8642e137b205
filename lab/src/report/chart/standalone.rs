//! A chart as a file of its own, for a paper, a slide or a web page: with its colours, its title, how to read it, and
//! the source of its numbers.

use super::{Anchor, Chart, Drawing, STYLE, WIDTH};
use crate::report::html::escaped;

/// The margin on each side.
const MARGIN: f64 = 16.0;
/// From one line of small type to the next.
const LEADING: f64 = 15.0;

/// The file's text. `source` names the origin of the numbers.
pub fn standalone(figure: &Chart, source: &str) -> String {
    let picture = &figure.picture;
    let titles = wrapped(&figure.title, WIDTH, 8.4);
    let above = 12.0 + 20.0 * titles.len() as f64;
    let mut below = wrapped(&figure.note, WIDTH, 6.0);
    below.extend(wrapped(source, WIDTH, 6.0));
    let feet = picture.height + above + LEADING;
    let height = feet + LEADING * below.len() as f64;
    let mut frame = Drawing::new(height);
    let (left, width) = (-MARGIN, WIDTH + 2.0 * MARGIN);
    frame.raw(&format!(
        "<rect class=\"paper\" x=\"{left}\" width=\"{width}\" height=\"{height:.0}\"/>"
    ));
    for (row, line) in titles.iter().enumerate() {
        let at = (0.0, 22.0 + 20.0 * row as f64);
        frame.text("title", at, Anchor::Start, line);
    }
    frame.raw(&format!(
        "<g transform=\"translate(0 {above})\">\n{}</g>",
        picture.marks
    ));
    for (row, line) in below.iter().enumerate() {
        let at = (0.0, feet + LEADING * row as f64);
        frame.text("source", at, Anchor::Start, line);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left} 0 {width} {height:.0}\" width=\"{width}\" \
         height=\"{height:.0}\" role=\"img\" \
         aria-labelledby=\"title description\">\n<title id=\"title\">{}</title>\n<desc \
         id=\"description\">{}</desc>\n<style>\n{STYLE}</style>\n{}</svg>\n",
        escaped(&figure.title),
        escaped(&picture.description),
        frame.body
    )
}

/// A file name that sorts in the page's order and contains the title.
pub fn file_name(number: usize, title: &str) -> String {
    const MAX_NAME_CHARS: usize = 72;
    let mut words = String::new();
    for letter in title.to_lowercase().chars() {
        match letter {
            letter if letter.is_ascii_alphanumeric() || letter == '.' => words.push(letter),
            _ if words.ends_with('-') || words.is_empty() => {}
            _ => words.push('-'),
        }
    }
    words.truncate(MAX_NAME_CHARS);
    let words = words.trim_matches(['-', '.']);
    if words.is_empty() {
        format!("{number:02}.svg")
    } else {
        format!("{number:02}-{words}.svg")
    }
}

/// A text in lines of a width, broken between words, where a letter is about `letter` wide.
fn wrapped(text: &str, width: f64, letter: f64) -> Vec<String> {
    let room = (width / letter) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::Table;

    fn drawn(title: &str, note: &str) -> String {
        let mut drawing = Drawing::new(100.0);
        drawing.line("grid", (0.0, 0.0), (10.0, 10.0));
        let figure = Chart {
            title: title.into(),
            note: note.into(),
            picture: drawing.finish("a line"),
            table: Table::default(),
        };
        standalone(&figure, "Measured here & now")
    }

    #[test]
    fn a_file_has_its_title_source_and_style() {
        let svg = drawn("Goodput <over> size", "Points are means.");
        for part in [
            "<svg xmlns=",
            "Goodput &lt;over&gt; size</title>",
            ">a line</desc>",
            "prefers-color-scheme: dark",
            "class=\"grid\"",
            "Points are means.",
            "Measured here &amp; now",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }

    #[test]
    fn long_words_below_a_chart_make_it_taller_and_not_wider() {
        let long = "word ".repeat(60);
        assert_eq!(
            drawn("t", &long).matches("class=\"source\"").count(),
            wrapped(&long, WIDTH, 6.0).len() + 1
        );
        let widest = wrapped(&long, WIDTH, 6.0)
            .into_iter()
            .map(|line| line.len());
        assert!(widest.max().unwrap() as f64 * 6.0 <= WIDTH);
        assert_eq!(wrapped("", WIDTH, 6.0), Vec::<String>::new());
    }

    #[test]
    fn names_of_files_are_plain_and_end() {
        assert_eq!(
            file_name(3, "gigabit: Goodput over message, µs (2009)"),
            "03-gigabit-goodput-over-message-s-2009.svg"
        );
        assert_eq!(file_name(12, "ä…"), "12.svg");
        assert!(file_name(1, &"a ".repeat(500)).len() < 90);
    }
}
