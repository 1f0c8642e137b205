//! What is wrong with a text, where, whose fault it is and what to do about it.

use std::fmt::Write;

use super::{Span, lexer};

/// Whose fault a [`Problem`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The text is wrong.
    Text,
    /// The text is valid, but Esplanade does not support it.
    Unsupported,
    /// The text is valid, but a name in it could not be resolved.
    Lookup,
}

impl Fault {
    fn label(self) -> &'static str {
        match self {
            Fault::Text => "error",
            Fault::Unsupported => "not supported",
            Fault::Lookup => "lookup failed",
        }
    }
}

/// Why a text, or one statement of it, cannot be carried out. It never quotes a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Where it is.
    pub span: Span,
    /// Whose fault it is.
    pub fault: Fault,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub advice: Option<String>,
}

impl Problem {
    /// A mistake in the text.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self {
            span,
            fault: Fault::Text,
            message: message.into(),
            advice: None,
        }
    }

    /// Something that is right but not done here.
    pub fn unsupported(span: Span, message: impl Into<String>) -> Self {
        Self {
            fault: Fault::Unsupported,
            ..Self::new(span, message)
        }
    }

    /// A name that could not be looked up.
    pub fn lookup(span: Span, message: impl Into<String>) -> Self {
        Self {
            fault: Fault::Lookup,
            ..Self::new(span, message)
        }
    }

    /// The same with advice.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// The problem as a user reads it: place, cause, the line with a caret, advice.
    ///
    /// `name` is what the text is called, `text` the whole of it. Keys on the line are shown as asterisks.
    pub fn render(&self, name: &str, text: &[u8]) -> String {
        self.render_hiding(name, text, &secrets_near(text, self.span))
    }

    /// The same for a text of another language, in which these places must not be shown.
    pub fn render_hiding(&self, name: &str, text: &[u8], secrets: &[Span]) -> String {
        let label = self.fault.label();
        let mut out = excerpt(name, text, self.span, label, &self.message, secrets);
        if let Some(advice) = &self.advice {
            let _ = writeln!(out, "  = help: {advice}");
        }
        out
    }
}

/// Something that is applied although it may not be what was meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// Where it is.
    pub span: Span,
    /// One plain sentence.
    pub message: String,
}

impl Warning {
    /// A warning about `span`.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
        }
    }

    /// The warning as a user reads it, as [`Problem::render`].
    pub fn render(&self, name: &str, text: &[u8]) -> String {
        self.render_hiding(name, text, &secrets_near(text, self.span))
    }

    /// The warning as a user reads it, as [`Problem::render_hiding`].
    pub fn render_hiding(&self, name: &str, text: &[u8], secrets: &[Span]) -> String {
        excerpt(name, text, self.span, "warning", &self.message, secrets)
    }
}

/// The first line of a message and the line of the text it is about, underlined.
fn excerpt(
    name: &str,
    text: &[u8],
    span: Span,
    label: &str,
    message: &str,
    secrets: &[Span],
) -> String {
    let (line, column) = span.line_and_column(text);
    let (shown, underline) = underlined_line(text, span, secrets);
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    format!(
        "{name}:{line}:{column}: {label}: {message}\n{margin} |\n{number} | {shown}\n{margin} | {underline}\n"
    )
}

/// The line on which `span` starts, made safe for a terminal, and the carets that belong under it.
fn underlined_line(text: &[u8], span: Span, secrets: &[Span]) -> (String, String) {
    let line = line_of(text, span);
    let start = span.start.min(text.len());
    let end = span.end.clamp(start, line.end);
    let masked = masked(text, line, secrets);
    let show = |from: usize, to: usize| printable(&masked[from - line.start..to - line.start]);
    let (before, marked, after) = (
        show(line.start, start),
        show(start, end),
        show(end, line.end),
    );
    let underline = format!(
        "{}{}",
        " ".repeat(before.chars().count()),
        "^".repeat(marked.chars().count().max(1))
    );
    let shown = format!("{before}{marked}{after}");
    (shown.trim_end().to_owned(), underline)
}

/// The line on which `span` starts, without its end.
fn line_of(text: &[u8], span: Span) -> Span {
    let start = span.start.min(text.len());
    let newline_before = text[..start].iter().rposition(|&byte| byte == b'\n');
    let newline_after = text[start..].iter().position(|&byte| byte == b'\n');
    Span::new(
        newline_before.map_or(0, |newline| newline + 1),
        newline_after.map_or(text.len(), |newline| start + newline),
    )
}

/// How far before a line its statement may have begun: what counts as a key depends on the words before it.
const CONTEXT: usize = 1 << 14;

/// Every key of setkey's language on the line on which `span` starts, and some before it.
fn secrets_near(text: &[u8], span: Span) -> Vec<Span> {
    let line = line_of(text, span);
    let earliest = line.start.saturating_sub(CONTEXT);
    let newline = text[..earliest].iter().rposition(|&byte| byte == b'\n');
    let context = newline.map_or(0, |newline| newline + 1);
    let secrets = lexer::secrets(&text[context..line.end]).into_iter();
    secrets
        .map(|secret| Span::new(context + secret.start, context + secret.end))
        .collect()
}

/// The line of `text` with every byte of a secret replaced by an asterisk.
fn masked(text: &[u8], line: Span, secrets: &[Span]) -> Vec<u8> {
    let mut shown = text[line.start..line.end].to_vec();
    for secret in secrets {
        let (from, to) = (secret.start.max(line.start), secret.end.min(line.end));
        if from < to {
            shown[from - line.start..to - line.start].fill(b'*');
        }
    }
    shown
}

/// `bytes` for a terminal: tabs become blanks, other control characters question marks.
fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for character in String::from_utf8_lossy(bytes).chars() {
        match character {
            '\t' => out.push_str("    "),
            '\r' => out.push(' '),
            control if control.is_control() => out.push('?'),
            other => out.push(other),
        }
    }
    out
}

/// `word` in a message: short, without control characters, and nothing that may be a key.
pub(super) fn shown(word: &str) -> String {
    if lexer::may_be_key(word) {
        return "***".to_owned();
    }
    let mut out: String = word
        .chars()
        .take(40)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if word.chars().nth(40).is_some() {
        out.push('…');
    }
    out
}
