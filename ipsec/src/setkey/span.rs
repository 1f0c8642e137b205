//! Places in a text.

/// A range of bytes in the text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte behind the last.
    pub end: usize,
}

impl Span {
    /// The bytes from `start` up to, not including, `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// From the start of this span to the end of `last`.
    pub fn to(self, last: Span) -> Self {
        Self::new(self.start, last.end.max(self.start))
    }

    /// Line and column of the start in `text`, both counted from 1, the column in characters.
    pub fn line_and_column(self, text: &[u8]) -> (usize, usize) {
        let before = &text[..self.start.min(text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        let line_start = before.iter().rposition(|&byte| byte == b'\n');
        let on_line = &before[line_start.map_or(0, |newline| newline + 1)..];
        (line, 1 + String::from_utf8_lossy(on_line).chars().count())
    }
}
