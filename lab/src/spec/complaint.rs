//! An error in a spec, shown as a person would point at it: file, line, column, the line itself, and what to write.

use std::fmt;
use std::ops::Range;

/// One error with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpecError {
    file: String,
    line: usize,
    column: usize,
    source: String,
    length: usize,
    what: String,
    advice: String,
}

impl SpecError {
    /// An error about `text[at]`.
    pub(super) fn new(
        at: Range<usize>,
        what: String,
        advice: String,
        text: &str,
        file: &str,
    ) -> SpecError {
        let start = floor_boundary(text, at.start);
        let line_start = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        let column = text[line_start..start].chars().count() + 1;
        let marked = text
            .get(start..at.end)
            .unwrap_or_default()
            .lines()
            .next()
            .unwrap_or_default();
        SpecError {
            file: file.into(),
            line: text[..line_start].matches('\n').count() + 1,
            column,
            source: line.into(),
            length: marked.chars().count().max(1),
            what,
            advice,
        }
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|&place| text.is_char_boundary(place))
        .unwrap_or(0)
}

/// An error of the shape, as the TOML reader found it.
pub(super) fn of_toml(error: &toml::de::Error, text: &str, file: &str) -> SpecError {
    let (what, advice) = split(error.message());
    SpecError::new(error.span().unwrap_or(0..0), what, advice, text, file)
}

/// "unknown field `x`, expected one of `a`, `b`" holds the words from which the nearest is advised.
fn split(message: &str) -> (String, String) {
    let message = message.trim();
    let Some((what, expected)) = message.split_once(", expected ") else {
        return (
            message.lines().next().unwrap_or_default().into(),
            String::new(),
        );
    };
    let quoted = |text: &str| -> Vec<String> {
        text.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let (given, words) = (quoted(what), quoted(expected));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match given.first() {
        Some(given) if !words.is_empty() => (what.into(), did_you_mean(given, &words)),
        _ => (what.into(), format!("expected {expected}")),
    }
}

/// The nearest of the known words, if one is near, and all of them.
pub(super) fn did_you_mean(given: &str, words: &[&str]) -> String {
    let all = words.join(", ");
    let near = words
        .iter()
        .map(|word| (strsim::osa_distance(given, word), word))
        .min()
        .filter(|(distance, word)| *distance <= word.len() / 3 + 1);
    match near {
        Some((_, word)) => format!("did you mean `{word}`? Known: {all}"),
        None => format!("known: {all}"),
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(out, "error: {}", self.what)?;
        writeln!(
            out,
            "{margin}--> {}:{}:{}",
            self.file, self.line, self.column
        )?;
        writeln!(out, "{margin} |")?;
        writeln!(out, "{number} | {}", self.source)?;
        let indent = " ".repeat(self.column - 1);
        write!(out, "{margin} | {indent}{}", "^".repeat(self.length))?;
        match self.advice.as_str() {
            "" => Ok(()),
            advice => write!(out, "\n{margin} = {advice}"),
        }
    }
}

impl std::error::Error for SpecError {}
