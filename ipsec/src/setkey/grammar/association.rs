//! Statements about security associations.

use zeroize::Zeroizing;

use super::{Cursor, Parse, proposal};
use crate::setkey::ast::*;
use crate::setkey::lexer::Kind;
use crate::setkey::{Problem, Span, shown};
use crate::suite::Secret;

const FLAGS: [&str; 14] = [
    "-m", "-r", "-u", "-f", "-lh", "-ls", "-bh", "-bs", "-ctx", "-o", "-E", "-A", "-C", "-R",
];

const MODES: [(&str, ModeWord); 3] = [
    ("transport", ModeWord::Transport),
    ("tunnel", ModeWord::Tunnel),
    ("any", ModeWord::Any),
];

pub(super) const PROTOCOLS: [(&str, ProtocolWord); 7] = [
    ("esp", ProtocolWord::Esp),
    ("ah", ProtocolWord::Ah),
    ("esp-udp", ProtocolWord::EspUdp(None)),
    ("ipcomp", ProtocolWord::IpComp),
    ("esp-old", ProtocolWord::EspOld),
    ("ah-old", ProtocolWord::AhOld),
    ("tcp", ProtocolWord::Tcp),
];

impl Cursor<'_> {
    /// Everything behind `add` and `update`.
    pub(super) fn sa_entry(&mut self) -> Parse<Box<SaEntry>> {
        let mut entry = Box::new(self.sa_head()?);
        while self.at_flag() {
            self.extension_or_algorithm(&mut entry)?;
        }
        Ok(entry)
    }

    /// Everything behind `get`, `getspi` and `delete`.
    pub(super) fn sa_name(&mut self) -> Parse<Box<SaName>> {
        let mut entry = self.sa_head()?;
        while self.at_flag() {
            let flag = self.here();
            self.extension_or_algorithm(&mut entry)?;
            let has_algorithm = entry.encryption.is_some() || entry.integrity.is_some();
            if has_algorithm || entry.compression.is_some() {
                let problem = Problem::new(flag, "no algorithm can be given here");
                return Err(problem.advise("algorithms belong to `add` and `update`"));
            }
        }
        Ok(Box::new(entry.name))
    }

    /// Everything behind `deleteall`.
    pub(super) fn sa_group(&mut self) -> Parse<Box<SaGroup>> {
        Ok(Box::new(SaGroup {
            lookup: self.lookup(),
            source: self.endpoint("the source address")?,
            destination: self.endpoint("the destination address")?,
            protocol: self.protocol()?,
        }))
    }

    fn sa_head(&mut self) -> Parse<SaEntry> {
        let name = SaName {
            lookup: self.lookup(),
            source: self.endpoint("the source address")?,
            destination: self.endpoint("the destination address")?,
            protocol: self.protocol()?,
            spi: self.spi()?,
            extensions: Extensions::default(),
        };
        Ok(SaEntry {
            name,
            encryption: None,
            integrity: None,
            compression: None,
        })
    }

    pub(super) fn protocol(&mut self) -> Parse<At<ProtocolWord>> {
        let protocol = self.choice("a protocol", &PROTOCOLS)?;
        let is_address = self
            .peek_word()
            .is_some_and(|word| word.contains(['.', ':']));
        if protocol.node == ProtocolWord::EspUdp(None) && is_address {
            let original = self.host("the original address")?;
            return Ok(protocol.map(|_| ProtocolWord::EspUdp(Some(original))));
        }
        Ok(protocol)
    }

    fn spi(&mut self) -> Parse<At<u32>> {
        let missing = self.expected("an SPI");
        let word = self.word("an SPI")?;
        let digits = word
            .node
            .strip_prefix("0x")
            .or(word.node.strip_prefix("0X"));
        let (digits, radix) = digits.map_or((&*word.node, 10), |digits| (digits, 16));
        if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
            return Err(
                missing.advise("an SPI is a decimal number, or a hexadecimal one behind `0x`")
            );
        }
        let spi = u32::from_str_radix(digits, radix).map_err(|_| {
            let problem = Problem::new(word.span, "this SPI is too large");
            problem.advise("an SPI has 32 bits: at most 0xffffffff")
        })?;
        Ok(At::new(spi, word.span))
    }

    fn at_flag(&self) -> bool {
        self.peek_word().is_some_and(|word| word.starts_with('-')) && !self.is_word("-P")
    }

    fn extension_or_algorithm(&mut self, entry: &mut SaEntry) -> Parse<()> {
        let flag = self.word("an option")?;
        let span = flag.span;
        let extensions = &mut entry.name.extensions;
        match &*flag.node {
            "-E" => once(
                &mut entry.encryption,
                span,
                self.algorithm("an encryption algorithm")?,
            ),
            "-A" => once(
                &mut entry.integrity,
                span,
                self.algorithm("an integrity algorithm")?,
            ),
            "-C" => once(&mut entry.compression, span, self.compression()?),
            "-f" => self.padding(extensions),
            "-m" => once(&mut extensions.mode, span, self.choice("a mode", &MODES)?),
            "-r" => once(
                &mut extensions.replay,
                span,
                self.number("the size of the replay window")?,
            ),
            "-u" => once(&mut extensions.reqid, span, self.number("an identifier")?),
            "-lh" => once(
                &mut extensions.hard_seconds,
                span,
                self.number("a number of seconds")?,
            ),
            "-ls" => once(
                &mut extensions.soft_seconds,
                span,
                self.number("a number of seconds")?,
            ),
            "-bh" => once(
                &mut extensions.hard_bytes,
                span,
                self.number("a number of bytes")?,
            ),
            "-bs" => once(
                &mut extensions.soft_bytes,
                span,
                self.number("a number of bytes")?,
            ),
            "-ctx" => once(&mut extensions.label, span, self.label()?),
            "-o" => self
                .named_option()
                .map(|option| extensions.options.push(option)),
            "-R" => Err(Problem::new(
                span,
                "`-R` belongs behind the algorithm of `-C`",
            )),
            other => Err(unknown_flag(other, span)),
        }
    }

    fn padding(&mut self, extensions: &mut Extensions) -> Parse<()> {
        let paddings = [
            ("zero-pad", Some(Padding::Zero)),
            ("random-pad", Some(Padding::Random)),
            ("seq-pad", Some(Padding::Sequential)),
            ("nocyclic-seq", None),
        ];
        let At { node, span } = self.choice("what `-f` asks for", &paddings)?;
        match node {
            Some(padding) => once(&mut extensions.padding, span, At::new(padding, span)),
            None => once(&mut extensions.nocyclic, span, At::new((), span)),
        }
    }

    pub(super) fn label(&mut self) -> Parse<At<Label>> {
        let domain = self.number("a domain of interpretation")?;
        let algorithm = self.number("the number of the label's algorithm")?;
        let text = self.label_text("a label in double quotes")?;
        let span = domain.span.to(text.span);
        let label = Label {
            domain: domain.node,
            algorithm: algorithm.node,
            text: text.node,
        };
        Ok(At::new(label, span))
    }

    /// What stands behind `-o`. The names are checked by the lowering.
    pub(super) fn named_option(&mut self) -> Parse<At<NamedOption>> {
        let word = self.word("`name=value` behind `-o`")?;
        let (name, value) = match word.node.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&*word.node, None),
        };
        if name.is_empty() || name.starts_with('-') {
            let problem = Problem::new(word.span, "`-o` lacks the name of an option");
            return Err(problem.advise("write `-o name=value`"));
        }
        Ok(At::new(
            NamedOption {
                name: name.to_owned(),
                value,
            },
            word.span,
        ))
    }

    fn compression(&mut self) -> Parse<At<Compression>> {
        let name = self.algorithm_name("a compression algorithm")?;
        let raw = self.take_word("-R");
        let span = name.span.to(raw.unwrap_or(name.span));
        Ok(At::new(
            Compression {
                name,
                raw: raw.is_some(),
            },
            span,
        ))
    }

    fn algorithm(&mut self, what: &str) -> Parse<At<Algorithm>> {
        let name = self.algorithm_name(what)?;
        let key = self.optional_key()?;
        let span = name.span.to(key.as_ref().map_or(name.span, |key| key.span));
        Ok(At::new(Algorithm { name, key }, span))
    }

    fn algorithm_name(&mut self, what: &str) -> Parse<At<String>> {
        if self.at_flag() {
            return Err(self.expected(what));
        }
        Ok(self.word(what)?.map(|name| name.into_owned()))
    }

    fn optional_key(&mut self) -> Parse<Option<At<Key>>> {
        let span = self.here();
        match self.peek_kind() {
            Some(Kind::Quoted { .. }) => {
                let bytes = self.quoted("a key")?;
                Ok(Some(At::new(
                    Key::Quoted(Secret::new(bytes.to_vec())),
                    span,
                )))
            }
            Some(Kind::Word) if !self.at_flag() && !self.at_next_statement() => {
                let key = hexadecimal(&self.text[span.start..span.end], span)?;
                self.skip();
                Ok(Some(At::new(Key::Hexadecimal(key), span)))
            }
            _ => Ok(None),
        }
    }
}

/// Sets an option that may be given only once.
fn once<T>(slot: &mut Option<At<T>>, flag: Span, value: At<T>) -> Parse<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => {
            let problem = Problem::new(flag, "this option was given before in the same statement");
            Err(problem.advise("remove one of the two"))
        }
    }
}

fn unknown_flag(word: &str, span: Span) -> Problem {
    let problem = Problem::new(
        span,
        format!("`{}` is no option of a security association", shown(word)),
    );
    problem.advise(proposal(word, FLAGS))
}

/// The bytes of `0x…`. The error never quotes the word: it may be a key without its prefix.
fn hexadecimal(word: &[u8], span: Span) -> Parse<Secret> {
    let digits = word.strip_prefix(b"0x").or(word.strip_prefix(b"0X"));
    let Some(digits) = digits else {
        let problem = Problem::new(span, "this is neither a key nor an option");
        return Err(problem
            .advise("a key is hexadecimal digits behind `0x`, or characters in double quotes"));
    };
    if digits.is_empty() {
        return Err(Problem::new(span, "there is no digit behind `0x`"));
    }
    let mut key = Zeroizing::new(Vec::with_capacity(digits.len().div_ceil(2)));
    // The first pair is half a one where the number of digits is odd.
    let (first, rest) = digits.split_at(digits.len() % 2);
    for pair in std::iter::once(first)
        .filter(|half| !half.is_empty())
        .chain(rest.chunks(2))
    {
        key.push(pair_value(pair).ok_or_else(|| not_hexadecimal(word, span))?);
    }
    Ok(Secret::new(std::mem::take(&mut *key)))
}

fn pair_value(pair: &[u8]) -> Option<u8> {
    let mut value = 0;
    for &digit in pair {
        value = value << 4 | char::from(digit).to_digit(16)? as u8;
    }
    Some(value)
}

fn not_hexadecimal(word: &[u8], span: Span) -> Problem {
    let is_wrong = |byte: &u8| !byte.is_ascii_hexdigit();
    let place = word.iter().skip(2).position(is_wrong).unwrap_or(0) + 1;
    let problem = Problem::new(
        span,
        format!("character {place} of this key is no hexadecimal digit"),
    );
    problem.advise("digits are 0 to 9 and a to f")
}
