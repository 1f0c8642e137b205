//! Statements from standard input: those that arrive together are applied together, without waiting for its
//! end.
//!
//! So a program may keep `setkey -c` open and send statements one by one, a user may type, and a text that is piped in
//! as a whole is still applied as a whole.

use ipsec::setkey::parse;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;
use zeroize::Zeroizing;

/// Statements that follow each other within this time are sent together.
const MAX_GAP_NANOSECONDS: i64 = 20_000_000;

/// A source of statements, such as standard input.
pub(super) struct StatementReader<Source> {
    source: Source,
    /// What has arrived and is not yet applied.
    text: Zeroizing<Vec<u8>>,
    /// The position of the text in the input (lines, and bytes of the last line), for messages.
    behind: (usize, usize),
    ended: bool,
    began: bool,
}

impl<Source: Read + AsFd> StatementReader<Source> {
    /// A reader that has read nothing yet.
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            text: Zeroizing::new(Vec::with_capacity(1 << 16)),
            behind: (0, 0),
            ended: false,
            began: false,
        }
    }

    /// The next statements, preceded by blanks so that positions in messages are right; `None` after the last.
    pub(super) fn next(&mut self) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        while !self.ended {
            self.read()?;
            while !self.ended && self.has_more() {
                self.read()?;
            }
            let end = complete(&self.text);
            if end > 0 && !self.ended {
                return Ok(Some(self.take(end)));
            }
        }
        let end = self.text.len();
        let rest = parse(&self.text);
        let is_blank = rest.file.statements.is_empty() && rest.problems.is_empty();
        if self.began && (end == 0 || is_blank) {
            return Ok(None);
        }
        Ok(Some(self.take(end)))
    }

    fn read(&mut self) -> io::Result<()> {
        grow(&mut self.text);
        let (start, room) = (self.text.len(), self.text.capacity());
        self.text.resize(room, 0);
        let got = self.source.read(&mut self.text[start..]);
        self.text.truncate(start + *got.as_ref().unwrap_or(&0));
        match got {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            got => {
                self.ended = matches!(got, Ok(0));
                Ok(())
            }
        }
    }

    fn has_more(&self) -> bool {
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: MAX_GAP_NANOSECONDS,
        };
        let mut watched = [PollFd::new(&self.source, PollFlags::IN)];
        // If the source cannot be polled, statements are applied as they are read.
        poll(&mut watched, Some(&pause)).is_ok_and(|count| count > 0)
    }

    fn take(&mut self, end: usize) -> Zeroizing<Vec<u8>> {
        let (lines, columns) = self.behind;
        let mut taken = Zeroizing::new(Vec::with_capacity(lines + columns + end));
        taken.resize(lines, b'\n');
        taken.resize(lines + columns, b' ');
        taken.extend_from_slice(&self.text[..end]);
        let mut rest = Zeroizing::new(Vec::with_capacity(1 << 16));
        rest.extend_from_slice(&self.text[end..]);
        self.text = rest;
        self.began = true;
        let last_line = taken.iter().rev().position(|&byte| byte == b'\n');
        let new_lines = taken.iter().filter(|&&byte| byte == b'\n').count();
        self.behind = (new_lines, last_line.unwrap_or(taken.len()));
        taken
    }
}

/// Grows the text without leaving copies: a vector that reallocates would leave its old bytes behind.
pub(super) fn grow(text: &mut Zeroizing<Vec<u8>>) {
    if text.len() == text.capacity() {
        let mut larger = Zeroizing::new(Vec::with_capacity(text.capacity() * 2));
        larger.extend_from_slice(text);
        *text = larger;
    }
}

/// How much of a text is whole statements: up to its last semicolon outside of comments and quoted strings, each of
/// which ends on its line.
fn complete(text: &[u8]) -> usize {
    let (mut end, mut inside) = (0, None);
    for (place, &byte) in text.iter().enumerate() {
        match (inside, byte) {
            (Some(_), b'\n') | (Some(b'"'), b'"') => inside = None,
            (None, b'#' | b'"') => inside = Some(byte),
            (None, b';') => end = place + 1,
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn semicolons_in_comments_and_strings_end_no_statement() {
        for (text, whole) in [
            ("dump;", 5),
            ("dump", 0),
            ("dump; # and; so on", 5),
            ("dump; # and\nflush;", 18),
            ("add \"a;b\" x", 0),
            ("add \"a;b;\n x;", 13),
        ] {
            assert_eq!(complete(text.as_bytes()), whole, "{text}");
        }
    }

    #[test]
    fn what_comes_later_keeps_its_place() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut statements = StatementReader::new(reader);
        writer.write_all(b"dump;\n  flu").unwrap();
        assert_eq!(**statements.next().unwrap().unwrap(), *b"dump;");
        writer.write_all(b"sh; # done").unwrap();
        assert_eq!(**statements.next().unwrap().unwrap(), *b"     \n  flush;");
        drop(writer);
        assert!(statements.next().unwrap().is_none());
    }

    #[test]
    fn a_text_without_its_last_semicolon_is_shown_in_the_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"dump; flush").unwrap();
        drop(writer);
        let mut statements = StatementReader::new(reader);
        assert_eq!(**statements.next().unwrap().unwrap(), *b"dump; flush");
        assert!(statements.next().unwrap().is_none());
    }
}
