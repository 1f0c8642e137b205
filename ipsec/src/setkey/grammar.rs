//! From tokens to the tree, by recursive descent.
//!
//! A statement that cannot be parsed gives one [`Problem`] and is skipped up to its `;` (or up to the next line
//! that starts with a statement's word, for a `;` is easily forgotten); the rest of the text is still read.

use std::borrow::Cow;

use super::ast::*;
use super::lexer::{self, Kind, Token};
use super::spelling::nearest;
use super::{Problem, Span, shown};

mod address;
mod association;
mod policy;

/// After this many problems the rest of a text is not looked at.
const MAX_PROBLEMS: usize = 50;

/// The statements of a text and its errors.
pub struct Parsed {
    /// The statements that could be understood.
    pub file: File,
    /// One problem for each that could not, in order.
    pub problems: Vec<Problem>,
}

/// Reads a whole text. Keys in the result are zeroed when dropped; those in `text` are the caller's.
pub fn parse(text: &[u8]) -> Parsed {
    let mut cursor = Cursor {
        text,
        tokens: lexer::tokens(text),
        at: 0,
    };
    let mut parsed = Parsed {
        file: File::default(),
        problems: Vec::new(),
    };
    while cursor.peek().is_some() && parsed.problems.len() < MAX_PROBLEMS {
        let first = cursor.here();
        match cursor.statement() {
            Ok(node) => {
                let leaves = node == Statement::Exit;
                let statement = At::new(node, first.to(cursor.behind()));
                parsed.file.statements.push(statement);
                if leaves {
                    break;
                }
            }
            Err(problem) => {
                parsed.problems.push(problem);
                cursor.recover();
            }
        }
    }
    parsed
}

/// The value, or the one problem that ends a statement.
type Parse<T> = Result<T, Problem>;

struct Cursor<'a> {
    text: &'a [u8],
    tokens: Vec<Token>,
    at: usize,
}

/// Looking, stepping and complaining.
impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    fn peek_kind(&self) -> Option<Kind> {
        self.peek().map(|token| token.kind)
    }

    /// The next token's text if it is a word.
    fn peek_word(&self) -> Option<Cow<'a, str>> {
        let token = self.peek().filter(|token| token.kind == Kind::Word)?;
        Some(token.text(self.text))
    }

    fn is_word(&self, word: &str) -> bool {
        self.peek_word().is_some_and(|next| next == word)
    }

    /// Where the next token stands; at the end of the text, behind the last.
    fn here(&self) -> Span {
        let end = self.text.len();
        self.peek().map_or(Span::new(end, end), |token| token.span)
    }

    /// Where the last token taken stands.
    fn behind(&self) -> Span {
        let last = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        last.map_or(Span::default(), |token| token.span)
    }

    fn skip(&mut self) {
        self.at += 1;
    }

    fn take(&mut self, kind: Kind) -> Option<Span> {
        let token = self.peek().filter(|token| token.kind == kind)?;
        self.skip();
        Some(token.span)
    }

    fn take_word(&mut self, word: &str) -> Option<Span> {
        self.is_word(word).then(|| self.take(Kind::Word)).flatten()
    }

    fn expect(&mut self, kind: Kind, what: &str) -> Parse<Span> {
        self.take(kind).ok_or_else(|| self.expected(what))
    }

    /// Any word, described as `what` if there is none.
    fn word(&mut self, what: &str) -> Parse<At<Cow<'a, str>>> {
        let Some(word) = self.peek_word() else {
            return Err(self.expected(what));
        };
        let span = self.here();
        self.skip();
        Ok(At::new(word, span))
    }

    /// One of the words of `choices`, with its value.
    fn choice<T: Clone>(&mut self, what: &str, choices: &[(&str, T)]) -> Parse<At<T>> {
        let Some(word) = self.peek_word() else {
            return Err(self.expected(what));
        };
        let found = choices.iter().find(|(name, _)| *name == word);
        let Some((_, meaning)) = found else {
            let names = choices.iter().map(|&(name, _)| name);
            return Err(self.expected(what).advise(proposal(&word, names)));
        };
        let span = self.here();
        self.skip();
        Ok(At::new(meaning.clone(), span))
    }

    /// A decimal number.
    fn number(&mut self, what: &str) -> Parse<At<u64>> {
        let start = self.at;
        let word = self.word(what)?;
        let is_decimal = word.node.bytes().all(|byte| byte.is_ascii_digit());
        word.node
            .parse()
            .map(|number| At::new(number, word.span))
            .map_err(|_| {
                self.at = start;
                if is_decimal {
                    Problem::new(word.span, format!("`{}` is too large", shown(&word.node)))
                } else {
                    self.expected(what)
                        .advise("only decimal digits can stand here")
                }
            })
    }

    /// A quoted string that is not a key.
    fn label_text(&mut self, what: &str) -> Parse<At<String>> {
        let Some(token) = self.peek() else {
            return Err(self.expected(what));
        };
        let bytes = self.quoted(what)?;
        let text = String::from_utf8(bytes.to_vec());
        let text = text.map_err(|_| Problem::new(token.span, format!("{what} must be UTF-8")))?;
        Ok(At::new(text, token.span))
    }

    /// The bytes between two double quotes.
    fn quoted(&mut self, what: &str) -> Parse<&'a [u8]> {
        let span = self.here();
        match self.peek_kind() {
            Some(Kind::Quoted { closed: true }) => {
                self.skip();
                Ok(&self.text[span.start + 1..span.end - 1])
            }
            Some(Kind::Quoted { closed: false }) => {
                let problem = Problem::new(span, "this string does not end on its line");
                Err(problem
                    .advise("end it with a double quote and a blank; it can hold no quote itself"))
            }
            _ => Err(self.expected(what)),
        }
    }

    /// The complaint that `what` should have come next.
    fn expected(&self, what: &str) -> Problem {
        let Some(token) = self.peek() else {
            let end = Span::new(self.behind().end, self.behind().end);
            return Problem::new(end, format!("expected {what}, but the text ends here"));
        };
        let found = match token.kind {
            Kind::Semicolon => "the statement ends here".to_owned(),
            Kind::Quoted { .. } => "found a quoted string".to_owned(),
            _ => format!("found `{}`", shown(&token.text(self.text))),
        };
        Problem::new(token.span, format!("expected {what}, but {found}"))
    }
}

/// Statements.
impl Cursor<'_> {
    fn statement(&mut self) -> Parse<Statement> {
        let verb = self.word("a statement")?;
        let statement = match &*verb.node {
            "add" => Statement::Add(self.sa_entry()?),
            "update" => Statement::Update(self.sa_entry()?),
            "getspi" => Statement::GetSpi(self.sa_name()?),
            "get" => Statement::Get(self.sa_name()?),
            "delete" => Statement::Delete(self.sa_name()?),
            "deleteall" => Statement::DeleteAll(self.sa_group()?),
            "flush" => Statement::Flush(self.optional_protocol()?),
            "dump" => Statement::Dump(self.optional_protocol()?),
            "spdadd" => Statement::SpdAdd(self.policy_entry(true)?),
            "spdupdate" => Statement::SpdUpdate(self.policy_entry(true)?),
            "spddelete" => Statement::SpdDelete(self.policy_entry(false)?),
            "spdget" => Statement::SpdGet(self.policy_entry(false)?),
            "spdflush" => Statement::SpdFlush,
            "spddump" => Statement::SpdDump,
            "exit" | "quit" | "bye" => Statement::Exit,
            other => return Err(unknown_statement(other, verb.span)),
        };
        self.end_of_statement()?;
        Ok(statement)
    }

    fn optional_protocol(&mut self) -> Parse<Option<At<ProtocolWord>>> {
        match self.peek_kind() {
            Some(Kind::Semicolon) | None => Ok(None),
            _ if self.at_next_statement() => Ok(None),
            _ => self.protocol().map(Some),
        }
    }

    fn end_of_statement(&mut self) -> Parse<()> {
        if self.take(Kind::Semicolon).is_some() {
            return Ok(());
        }
        let end = self.behind().end;
        if self.peek().is_none() || self.at_next_statement() {
            let problem = Problem::new(Span::new(end, end), "this statement is not closed");
            return Err(problem.advise("every statement ends with `;`"));
        }
        Err(self.expected("`;`"))
    }

    fn at_next_statement(&self) -> bool {
        self.peek()
            .is_some_and(|token| token.opens_statement(self.text))
    }

    /// Moves to where the next statement can start. The word that opened the failed one was taken before it failed.
    fn recover(&mut self) {
        while let Some(token) = self.peek() {
            if token.opens_statement(self.text) {
                return;
            }
            self.skip();
            if token.kind == Kind::Semicolon {
                return;
            }
        }
    }
}

fn unknown_statement(word: &str, span: Span) -> Problem {
    let problem = Problem::new(span, format!("`{}` is no statement", shown(word)));
    problem.advise(proposal(word, lexer::STATEMENTS))
}

/// Proposes the nearest of `names`, or lists them all.
fn proposal<'a>(word: &str, names: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(word, names.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => {
            let quoted: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
            format!("it is one of {}", quoted.join(", "))
        }
    }
}
