//! Addresses, names, ports and prefixes.

use std::net::IpAddr;

use super::association::PROTOCOLS;
use super::{Cursor, Parse};
use crate::setkey::ast::*;
use crate::setkey::lexer::{Kind, may_be_key};
use crate::setkey::{Problem, Span, shown};

impl Cursor<'_> {
    /// `-4`, `-6`, `-n` and their combinations, as `-6n`.
    pub(super) fn lookup(&mut self) -> Lookup {
        let mut lookup = Lookup::default();
        while let Some(word) = self.peek_word() {
            let Some(flags) = word.strip_prefix('-') else {
                break;
            };
            if flags.is_empty() || !flags.bytes().all(|flag| b"46n".contains(&flag)) {
                break;
            }
            for flag in flags.bytes() {
                match flag {
                    b'4' => lookup.family = Some(Family::V4),
                    b'6' => lookup.family = Some(Family::V6),
                    _ => lookup.numeric = true,
                }
            }
            self.skip();
        }
        lookup
    }

    /// An address with an optional port.
    pub(super) fn endpoint(&mut self, what: &str) -> Parse<Endpoint> {
        let host = self.host(what)?;
        let port = self.optional_port()?;
        Ok(Endpoint { host, port })
    }

    /// `address/prefix[port]`.
    pub(super) fn range(&mut self, what: &str) -> Parse<Range> {
        let host = self.host(what)?;
        let prefix = self.optional_prefix(&host.node)?;
        let port = self.optional_port()?;
        Ok(Range { host, prefix, port })
    }

    /// An address or a name. `esp` is never a host name: it is the protocol, and the address before it is missing.
    pub(super) fn host(&mut self, what: &str) -> Parse<At<Host>> {
        let missing = self.expected(what);
        let Some(word) = self.peek_word() else {
            return Err(missing);
        };
        let span = self.here();
        if word.starts_with('-') || PROTOCOLS.iter().any(|(name, _)| *name == word) {
            return Err(missing);
        }
        let host = host(&word, span)?;
        self.skip();
        Ok(At::new(host, span))
    }

    fn optional_prefix(&mut self, host: &Host) -> Parse<Option<At<u8>>> {
        if self.take(Kind::Slash).is_none() {
            return Ok(None);
        }
        let prefix = self.number("the length of the prefix")?;
        let most = match host {
            Host::Address(IpAddr::V4(_)) => 32,
            _ => 128,
        };
        match u8::try_from(prefix.node) {
            Ok(bits) if bits <= most => Ok(Some(At::new(bits, prefix.span))),
            _ => {
                let message = format!(
                    "a prefix of {} bits is longer than the address",
                    prefix.node
                );
                Err(Problem::new(prefix.span, message).advise(format!("at most {most} fit here")))
            }
        }
    }

    fn optional_port(&mut self) -> Parse<Option<At<Port>>> {
        let Some(open) = self.take(Kind::Open) else {
            return Ok(None);
        };
        let word = self.word("a port")?;
        let port = port(&word.node, word.span)?;
        let close = self.expect(Kind::Close, "`]` behind the port")?;
        Ok(Some(At::new(port, open.to(close))))
    }
}

fn host(word: &str, span: Span) -> Parse<Host> {
    if let Ok(address) = word.parse() {
        return Ok(Host::Address(address));
    }
    if let Some((address, zone)) = word.split_once('%') {
        return scoped(address, zone).ok_or_else(|| no_address(word, span));
    }
    if is_name(word) && !may_be_key(word) {
        Ok(Host::Name(word.to_owned()))
    } else {
        Err(no_address(word, span))
    }
}

fn scoped(address: &str, zone: &str) -> Option<Host> {
    let is_zone = !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let address = address.parse().ok().filter(IpAddr::is_ipv6)?;
    is_zone.then(|| Host::Scoped(address, zone.to_owned()))
}

/// Whether `word` can be the name of a host. One that has only digits and dots is a mistyped address.
fn is_name(word: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    word.bytes().all(allowed) && word.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn no_address(word: &str, span: Span) -> Problem {
    let is_numeric = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let kind = if word.contains(':') {
        "an IPv6 address"
    } else if word.bytes().all(is_numeric) {
        "an IPv4 address"
    } else {
        "an address or the name of a host"
    };
    let problem = Problem::new(span, format!("`{}` is not {kind}", shown(word)));
    match word.bytes().filter(|&byte| byte == b'.').count() {
        1 | 2 if kind == "an IPv4 address" => problem.advise("write all four numbers"),
        _ => problem,
    }
}

fn port(word: &str, span: Span) -> Parse<Port> {
    if word == "any" {
        return Ok(Port::Any);
    }
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = word.parse().map(Port::Number);
        return number.map_err(|_| {
            Problem::new(span, format!("{} is no port", shown(word))).advise("ports end at 65535")
        });
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-+._".contains(&byte);
    if word.bytes().all(allowed) && !word.starts_with('-') {
        Ok(Port::Service(word.to_owned()))
    } else {
        Err(Problem::new(span, format!("`{}` is no port", shown(word)))
            .advise("write a number or `any`"))
    }
}
