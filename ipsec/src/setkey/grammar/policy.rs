//! Statements about policies.

use super::{Cursor, Parse};
use crate::setkey::ast::*;
use crate::setkey::lexer::Kind;
use crate::setkey::protocol::{self, GRE, ICMP, ICMP6, MOBILITY};
use crate::setkey::spelling::nearest;
use crate::setkey::{Problem, Span, shown};

const DIRECTIONS: [(&str, DirectionWord); 3] = [
    ("in", DirectionWord::In),
    ("out", DirectionWord::Out),
    ("fwd", DirectionWord::Forward),
];

const ACTIONS: [(&str, ActionWord); 5] = [
    ("ipsec", ActionWord::Ipsec),
    ("none", ActionWord::None),
    ("discard", ActionWord::Discard),
    ("entrust", ActionWord::Entrust),
    ("bypass", ActionWord::Bypass),
];

const PRIORITY_BASES: [(&str, PriorityBase); 3] = [
    ("low", PriorityBase::Low),
    ("def", PriorityBase::Default),
    ("high", PriorityBase::High),
];

const TEMPLATE_PROTOCOLS: [(&str, TemplateProtocol); 3] = [
    ("esp", TemplateProtocol::Esp),
    ("ah", TemplateProtocol::Ah),
    ("ipcomp", TemplateProtocol::IpComp),
];

const TEMPLATE_MODES: [(&str, ModeWord); 2] = [
    ("transport", ModeWord::Transport),
    ("tunnel", ModeWord::Tunnel),
];

/// `unique:N` apart.
const LEVELS: [(&str, LevelWord); 4] = [
    ("require", LevelWord::Require),
    ("use", LevelWord::Use),
    ("default", LevelWord::Default),
    ("unique", LevelWord::Unique(None)),
];

impl Cursor<'_> {
    /// Everything behind `spdadd`, `spdupdate`, `spddelete` and `spdget`. Only the last two may lack an action.
    pub(super) fn policy_entry(&mut self, needs_action: bool) -> Parse<Box<PolicyEntry>> {
        let lookup = self.lookup();
        let selector = self.selector()?;
        let mut label = None;
        let mut options = Vec::new();
        while !self.is_word("-P") {
            match self.take_word("-ctx") {
                Some(flag) if label.is_some() => return Err(given_twice(flag)),
                Some(_) => label = Some(self.label()?),
                None if self.take_word("-o").is_some() => options.push(self.named_option()?),
                None => return Err(self.expected("`-P` and the policy")),
            }
        }
        self.skip();
        let policy = self.policy(needs_action)?;
        Ok(Box::new(PolicyEntry {
            lookup,
            selector,
            label,
            options,
            policy,
        }))
    }

    fn selector(&mut self) -> Parse<SelectorClause> {
        if self.take_word("tagged").is_some() {
            let tag = self.label_text("a tag in double quotes")?;
            return Ok(SelectorClause::Tagged(tag));
        }
        Ok(SelectorClause::Ranges(Box::new(Ranges {
            source: self.range("the source range")?,
            destination: self.range("the destination range")?,
            upper: self.upper()?,
        })))
    }

    fn upper(&mut self) -> Parse<At<UpperClause>> {
        if self.is_word("-P") {
            return Err(self
                .expected("an upper-layer protocol")
                .advise("`any` stands for all of them"));
        }
        let word = self.word("an upper-layer protocol")?;
        let number = protocol_number(&word.node, word.span)?;
        let Some(number) = number else {
            return Ok(word.map(|_| UpperClause::Any));
        };
        let upper = word.map(|_| UpperClause::Protocol(number));
        let more = self.peek_word().filter(|more| !more.starts_with('-'));
        let Some(more) = more else { return Ok(upper) };
        let span = self.here();
        let detail = match number {
            ICMP | ICMP6 | MOBILITY => message_type(number, &more),
            GRE => gre_key(&more).map(UpperClause::Gre),
            _ => {
                return Err(self
                    .expected("`-P` and the policy")
                    .advise("ports stand in square brackets behind the addresses"));
            }
        };
        self.skip();
        let detail = detail.ok_or_else(|| bad_detail(number, &more, span))?;
        Ok(At::new(detail, upper.span.to(span)))
    }

    fn policy(&mut self, needs_action: bool) -> Parse<PolicyClause> {
        let direction = self.choice("a direction", &DIRECTIONS)?;
        let priority = self.optional_priority()?;
        let mut policy = PolicyClause {
            direction,
            priority,
            action: None,
            templates: Vec::new(),
        };
        if !needs_action && priority.is_none() && self.peek_kind() == Some(Kind::Semicolon) {
            return Ok(policy);
        }
        let action = self.choice("what to do with the packets", &ACTIONS)?;
        policy.action = Some(action);
        while self.peek_kind() == Some(Kind::Word) && !self.at_next_statement() {
            policy.templates.push(self.template()?);
        }
        check_templates(action, &policy.templates)?;
        self.no_option_behind()?;
        Ok(policy)
    }

    /// Options behind the policy are a frequent mistake, which gets a clearer message than "expected `;`".
    fn no_option_behind(&self) -> Parse<()> {
        match self.peek() {
            Some(token) if token.kind == Kind::Minus => {
                let problem = Problem::new(token.span, "no option can follow the policy");
                Err(problem.advise("options of a policy stand before its `-P`"))
            }
            _ => Ok(()),
        }
    }

    fn optional_priority(&mut self) -> Parse<Option<At<Priority>>> {
        let Some(word) = self
            .take_word("prio")
            .or_else(|| self.take_word("priority"))
        else {
            return Ok(None);
        };
        let is_number = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
        let bare = self.peek_kind() == Some(Kind::Minus)
            || self.peek_word().is_some_and(|word| is_number(&word));
        let base = if bare {
            None
        } else {
            Some(
                self.choice("a number, `low`, `def` or `high`", &PRIORITY_BASES)?
                    .node,
            )
        };
        let offset = self.priority_offset(bare)?;
        let span = word.to(self.behind());
        Ok(Some(At::new(Priority { base, offset }, span)))
    }

    /// A signed number, or behind a base a sign and a number, or nothing.
    fn priority_offset(&mut self, bare: bool) -> Parse<i64> {
        let negative = self.take(Kind::Minus).is_some();
        if !negative && self.take(Kind::Plus).is_none() && !bare {
            return Ok(0);
        }
        let At { node, span } = self.number("a number")?;
        let most = match (bare, negative) {
            (true, false) => 1 << 31,
            (true, true) => (1 << 31) - 1,
            (false, false) => 1 << 30,
            (false, true) => (1 << 30) - 1,
        };
        match i64::try_from(node) {
            Ok(offset) if offset <= most => Ok(if negative { -offset } else { offset }),
            _ => Err(Problem::new(span, "this priority is too far away")
                .advise(format!("at most {most} can stand here"))),
        }
    }

    fn template(&mut self) -> Parse<At<TemplateClause>> {
        let protocol = self.choice("`esp`, `ah` or `ipcomp`", &TEMPLATE_PROTOCOLS)?;
        self.expect(Kind::Slash, "`/` and the mode")?;
        let mode = self.choice("a mode", &TEMPLATE_MODES)?;
        let mut ends = None;
        let mut level = At::new(LevelWord::Default, self.behind());
        if self.take(Kind::Slash).is_some() {
            ends = self.optional_ends()?;
            if self.take(Kind::Slash).is_some() && !(ends.is_some() && self.at_template_or_end()) {
                level = self.level()?;
            }
        }
        let span = protocol.span.to(self.behind());
        let template = TemplateClause {
            protocol,
            mode,
            ends,
            level,
        };
        check_ends(&template, span)?;
        Ok(At::new(template, span))
    }

    /// Whether the level is left out, as it may be behind addresses.
    fn at_template_or_end(&self) -> bool {
        let protocols = TEMPLATE_PROTOCOLS.iter();
        let mut names = protocols.map(|&(name, _)| name);
        self.peek_kind() != Some(Kind::Word) || names.any(|name| self.is_word(name))
    }

    fn optional_ends(&mut self) -> Parse<Option<At<Ends>>> {
        if self.peek_kind() != Some(Kind::Word) {
            return Ok(None);
        }
        let first = self.here();
        let ends = if self.take_word("me").is_some() {
            self.expect(Kind::Minus, "`-any`")?;
            self.choice("`any`", &[("any", Ends::MeAny)])?.node
        } else if self.take_word("any").is_some() {
            self.expect(Kind::Minus, "`-me`")?;
            self.choice("`me`", &[("me", Ends::AnyMe)])?.node
        } else {
            let from = self.endpoint("the address of the near end")?;
            self.expect(Kind::Minus, "`-` and the address of the far end")?;
            Ends::Between(Box::new([
                from,
                self.endpoint("the address of the far end")?,
            ]))
        };
        Ok(Some(At::new(ends, first.to(self.behind()))))
    }

    fn level(&mut self) -> Parse<At<LevelWord>> {
        let span = self.here();
        let word = self.peek_word().unwrap_or_default();
        let Some(id) = word.strip_prefix("unique:") else {
            return self.choice("a level", &LEVELS);
        };
        let is_decimal = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        let id = id
            .parse()
            .ok()
            .filter(|&id| is_decimal && id > 0)
            .ok_or_else(|| {
                let problem =
                    Problem::new(span, "this identifier is no number from 1 to 4294967295");
                problem.advise("ipsec-tools leaves 1 to 32767 to files like this one")
            })?;
        self.skip();
        Ok(At::new(LevelWord::Unique(Some(id)), span))
    }
}

/// The number of a protocol; `None` for any.
fn protocol_number(word: &str, span: Span) -> Parse<Option<u8>> {
    if matches!(word, "any" | "ip") {
        return Ok(None);
    }
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        let number: u8 = word.parse().map_err(|_| {
            let problem = Problem::new(span, format!("{} is no protocol", shown(word)));
            problem.advise("protocols are numbered from 0 to 255")
        })?;
        // PF_KEY has 255 for any, Linux 0 as well.
        return Ok(Some(number).filter(|&number| number != 0 && number != 255));
    }
    protocol::number(word).map(Some).ok_or_else(|| {
        let problem = Problem::new(span, format!("`{}` is no protocol known here", shown(word)));
        match nearest(word, protocol::names()) {
            Some(name) => problem.advise(format!("did you mean `{name}`?")),
            None => problem.advise("write its number, or `any` for all of them"),
        }
    })
}

/// `type` or `type,code`.
fn message_type(protocol: u8, word: &str) -> Option<UpperClause> {
    let decimal = |word: &str| {
        let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit());
        word.parse::<u8>().ok().filter(|_| is_decimal)
    };
    let (kind, code) = match word.split_once(',') {
        Some((kind, code)) => (kind, Some(decimal(code)?)),
        None => (word, None),
    };
    Some(UpperClause::Message {
        protocol,
        kind: decimal(kind)?,
        code,
    })
}

/// A number, or one written like an IPv4 address.
fn gre_key(word: &str) -> Option<u32> {
    let dotted = word.parse::<std::net::Ipv4Addr>().map(u32::from);
    let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit());
    dotted
        .ok()
        .or_else(|| word.parse().ok().filter(|_| is_decimal))
}

fn bad_detail(protocol: u8, word: &str, span: Span) -> Problem {
    match protocol {
        GRE => Problem::new(span, format!("`{}` is no GRE key", shown(word)))
            .advise("a GRE key is a number of 32 bits, or four of 8 with dots between"),
        _ => Problem::new(span, format!("`{}` is no message type", shown(word)))
            .advise("write the type, or type and code as `8,0`, each at most 255"),
    }
}

fn given_twice(flag: Span) -> Problem {
    Problem::new(flag, "this option was given before in the same statement")
        .advise("remove one of the two")
}

/// Only `ipsec` takes templates, and it needs at least one.
fn check_templates(action: At<ActionWord>, templates: &[At<TemplateClause>]) -> Parse<()> {
    match (action.node, templates.first()) {
        (ActionWord::Ipsec, None) => {
            let problem = Problem::new(
                action.span,
                "`ipsec` does not say how packets are protected",
            );
            Err(problem.advise("add a template, as `esp/transport//require`"))
        }
        (ActionWord::Ipsec, Some(_)) | (_, None) => Ok(()),
        (_, Some(template)) => {
            let problem = Problem::new(template.span, "a template has no meaning here");
            Err(problem.advise("only `ipsec` policies protect packets"))
        }
    }
}

fn check_ends(template: &TemplateClause, span: Span) -> Parse<()> {
    if template.mode.node == ModeWord::Tunnel && template.ends.is_none() {
        let problem = Problem::new(span, "a tunnel needs the addresses of its two ends");
        return Err(problem.advise("write `esp/tunnel/NEAR-FAR/require`"));
    }
    Ok(())
}
