//! From bytes to tokens.
//!
//! The language's words depend on where they stand: `hmac-sha1` is one word, but in the policy that follows `-P` the
//! hyphen of `192.0.2.1-192.0.2.2` separates two addresses. So the lexer knows one bit of context, set by `-P` and
//! cleared by `;`. Every byte that is no blank and no sign belongs to a word: a wrong word is reported by the
//! grammar, which knows what was expected in its place.

use std::borrow::Cow;

use super::Span;

/// Words that open a statement. One that stands first on its line also ends a statement whose `;` was forgotten.
pub(super) const STATEMENTS: [&str; 17] = [
    "add",
    "update",
    "delete",
    "deleteall",
    "get",
    "getspi",
    "flush",
    "dump",
    "spdadd",
    "spdupdate",
    "spddelete",
    "spdget",
    "spdflush",
    "spddump",
    "exit",
    "quit",
    "bye",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Word,
    /// A string in double quotes; the span includes them. A broken one is not `closed`.
    Quoted {
        closed: bool,
    },
    Slash,
    Open,
    Close,
    Semicolon,
    /// Only in a policy.
    Minus,
    /// Only in a policy.
    Plus,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub kind: Kind,
    pub span: Span,
    /// Nothing but blanks stands before it on its line.
    pub leads_line: bool,
}

impl Token {
    /// The token's text; bytes that are not UTF-8 become replacement characters.
    pub fn text<'a>(&self, source: &'a [u8]) -> Cow<'a, str> {
        String::from_utf8_lossy(&source[self.span.start..self.span.end])
    }

    /// Whether a new statement starts here although the last one was not closed.
    pub fn opens_statement(&self, source: &[u8]) -> bool {
        let bytes = &source[self.span.start..self.span.end];
        self.kind == Kind::Word
            && self.leads_line
            && STATEMENTS.iter().any(|word| word.as_bytes() == bytes)
    }
}

/// All tokens of `source`.
pub(super) fn tokens(source: &[u8]) -> Vec<Token> {
    let mut lexer = Lexer {
        source,
        position: 0,
        leads_line: true,
        in_policy: false,
    };
    if source.starts_with(b"\xef\xbb\xbf") {
        lexer.position = 3;
    }
    std::iter::from_fn(|| lexer.next_token()).collect()
}

struct Lexer<'a> {
    source: &'a [u8],
    position: usize,
    leads_line: bool,
    in_policy: bool,
}

impl Lexer<'_> {
    fn next_token(&mut self) -> Option<Token> {
        self.skip_blanks();
        let start = self.position;
        let kind = self.scan(*self.source.get(start)?);
        let token = Token {
            kind,
            span: Span::new(start, self.position),
            leads_line: std::mem::replace(&mut self.leads_line, false),
        };
        self.note_context(&token);
        Some(token)
    }

    /// Passes over white space and comments, which run from `#` to the end of the line.
    fn skip_blanks(&mut self) {
        let mut in_comment = false;
        while let Some(&byte) = self.source.get(self.position) {
            match byte {
                b'\n' => {
                    in_comment = false;
                    self.leads_line = true;
                }
                b'#' => in_comment = true,
                _ if in_comment || is_blank(byte) => {}
                _ => return,
            }
            self.position += 1;
        }
    }

    /// Moves past the token that starts with `first`.
    fn scan(&mut self, first: u8) -> Kind {
        let sign = match first {
            b'"' => return self.scan_quoted(),
            b'/' => Kind::Slash,
            b'[' => Kind::Open,
            b']' => Kind::Close,
            b';' => Kind::Semicolon,
            b'-' if self.in_policy => Kind::Minus,
            b'+' if self.in_policy => Kind::Plus,
            _ => return self.scan_word(),
        };
        self.position += 1;
        sign
    }

    fn scan_word(&mut self) -> Kind {
        let rest = &self.source[self.position..];
        let in_policy = self.in_policy;
        let ends = |&byte: &u8| ends_word(byte) || in_policy && matches!(byte, b'-' | b'+');
        self.position += rest.iter().position(ends).unwrap_or(rest.len());
        Kind::Word
    }

    /// A string ends on its line, and a blank or a sign follows it: where a quote too few or too many has turned the
    /// line inside out, the rest of it is taken as one broken string, so that no message quotes a piece of a key.
    fn scan_quoted(&mut self) -> Kind {
        let rest = &self.source[self.position + 1..];
        let line_end = rest.iter().position(|&byte| byte == b'\n');
        let line = &rest[..line_end.unwrap_or(rest.len())];
        let close = line.iter().position(|&byte| byte == b'"');
        let behind = close.and_then(|close| line.get(close + 1));
        let closed = close.is_some() && behind.is_none_or(|&byte| ends_word(byte) && byte != b'"');
        let length = if closed {
            close.map_or(0, |close| close + 1)
        } else {
            line.len()
        };
        self.position += 1 + length;
        Kind::Quoted { closed }
    }

    fn note_context(&mut self, token: &Token) {
        if token.kind == Kind::Semicolon || token.opens_statement(self.source) {
            self.in_policy = false;
        } else if &self.source[token.span.start..token.span.end] == b"-P" {
            self.in_policy = true;
        }
    }
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn ends_word(byte: u8) -> bool {
    is_blank(byte) || matches!(byte, b'"' | b'/' | b'[' | b']' | b';' | b'#')
}

/// The places in `source` that must not be shown: keys, and everything in the place of a key.
///
/// These are long hexadecimal numbers, quoted strings that are no labels, and what follows `-E NAME` or `-A NAME`. It
/// works on broken texts too, and in doubt hides too much.
pub(super) fn secrets(source: &[u8]) -> Vec<Span> {
    let tokens = tokens(source);
    let is = |index: usize, words: &[&str]| {
        let token = tokens.get(index);
        token.is_some_and(|token| words.contains(&&*token.text(source)))
    };
    let is_secret = |&(index, token): &(usize, &Token)| match token.kind {
        Kind::Quoted { .. } => {
            let labels = index >= 3 && is(index - 3, &["-ctx"]);
            !(labels || index >= 1 && is(index - 1, &["tagged"]))
        }
        Kind::Word => {
            let in_key_place = index >= 2 && is(index - 2, &["-E", "-A"]);
            let text = token.text(source);
            let mut parts = text.split(|character: char| !character.is_ascii_alphanumeric());
            in_key_place && !text.starts_with('-') || parts.any(may_be_key)
        }
        _ => false,
    };
    let secret = tokens.iter().enumerate().filter(is_secret);
    secret.map(|(_, token)| token.span).collect()
}

/// Whether `word` may be a key, in any place: hexadecimal digits, too many for a number of 32 bits.
pub(super) fn may_be_key(word: &str) -> bool {
    let prefixed = word.strip_prefix("0x").or(word.strip_prefix("0X"));
    let digits = prefixed.unwrap_or(word);
    let has_letter = digits.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_long = digits.len() > 20 || digits.len() > 8 && (prefixed.is_some() || has_letter);
    is_long && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}
