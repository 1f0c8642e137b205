//! Statements about policies.

use std::net::IpAddr;
use std::sync::Arc;

use super::option::PolicyOptions;
use super::{Forwarding, Lower, Lowering};
use crate::command::Command;
use crate::policy::{self, Prefix};
use crate::sa::{self, Reqid};
use crate::setkey::ast::*;
use crate::setkey::protocol::{GRE, ICMP, ICMP6, MOBILITY};
use crate::setkey::{Problem, Span};

/// Protocols that have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

impl Lowering<'_> {
    pub(super) fn policy_entry(
        &mut self,
        entry: &PolicyEntry,
        span: Span,
        command: fn(Arc<policy::Policy>) -> Command,
    ) -> Lower<()> {
        let selector = self.selector(entry);
        let selector = self.note(selector);
        let action = self.action(entry);
        let spread = self.note(spread(entry));
        let (Some(selector), Some(action), Some(spread)) = (selector, self.note(action), spread)
        else {
            return Ok(());
        };
        let priority = entry
            .policy
            .priority
            .map_or(0, |priority| priority_value(priority.node));
        let direction = direction(entry.policy.direction.node);
        let written = policy::Policy {
            selector,
            direction,
            action,
            spread,
            priority,
            is_negotiated: false,
            device: None,
        };
        let forwarded = self.forwarded(&written);
        self.push(command(Arc::new(written)), span)?;
        match forwarded {
            Some(policy) => self.push(command(Arc::new(policy)), span),
            None => Ok(()),
        }
    }

    pub(super) fn spddelete(&mut self, entry: &PolicyEntry, span: Span) -> Lower<()> {
        check_no_options(entry)?;
        let selector = self.selector(entry)?;
        let direction = direction(entry.policy.direction.node);
        self.push(
            Command::DeletePolicy {
                selector,
                direction,
            },
            span,
        )?;
        if self.is_doubled(direction) {
            let direction = policy::Direction::Fwd;
            self.push(
                Command::DeletePolicy {
                    selector,
                    direction,
                },
                span,
            )?;
        }
        Ok(())
    }

    pub(super) fn spdget(&mut self, entry: &PolicyEntry, span: Span) -> Lower<()> {
        check_no_options(entry)?;
        let selector = self.selector(entry)?;
        let direction = direction(entry.policy.direction.node);
        self.push(
            Command::GetPolicy {
                selector,
                direction,
            },
            span,
        )
    }

    fn is_doubled(&self, direction: policy::Direction) -> bool {
        direction == policy::Direction::In && self.forwarding == Forwarding::WithIn
    }

    /// The policy for forwarded packets that comes with one for `in`.
    ///
    /// A level that leaves the choice of an identifier to the gateway would make it choose two; the second policy
    /// accepts any association instead, as in ipsec-tools.
    fn forwarded(&self, written: &policy::Policy) -> Option<policy::Policy> {
        if !self.is_doubled(written.direction) {
            return None;
        }
        let mut forwarded = policy::Policy {
            direction: policy::Direction::Fwd,
            ..written.clone()
        };
        if let policy::Action::Protect(templates) = &mut forwarded.action {
            for template in templates {
                if template.level == policy::Level::Unique(None) {
                    template.level = policy::Level::Require;
                }
            }
        }
        Some(forwarded)
    }

    fn selector(&mut self, entry: &PolicyEntry) -> Lower<policy::Selector> {
        check_label(entry)?;
        let ranges = match &entry.selector {
            SelectorClause::Ranges(ranges) => ranges,
            SelectorClause::Tagged(tag) => {
                let problem = Problem::unsupported(
                    tag.span,
                    "tags are known to a packet filter inside a BSD kernel only",
                );
                return Err(problem.advise("select packets by address, protocol and port"));
            }
        };
        let Ranges {
            source,
            destination,
            upper,
        } = &**ranges;
        let (from, to) = self.pair(entry.lookup, &source.host, &destination.host)?;
        Ok(policy::Selector {
            source: prefix(from, source)?,
            destination: prefix(to, destination)?,
            upper: self.upper(ranges, upper)?,
        })
    }

    fn upper(&mut self, ranges: &Ranges, upper: &At<UpperClause>) -> Lower<policy::Upper> {
        let source_port = self.port(&ranges.source.port)?;
        let destination_port = self.port(&ranges.destination.port)?;
        let has_port = source_port.or(destination_port).is_some();
        match upper.node {
            UpperClause::Any if has_port => Ok(policy::Upper::Ports {
                source_port,
                destination_port,
            }),
            UpperClause::Any => Ok(policy::Upper::Any),
            UpperClause::Protocol(number) if WITH_PORTS.contains(&number) => {
                Ok(policy::Upper::Protocol {
                    number,
                    source_port,
                    destination_port,
                })
            }
            _ if has_port => Err(port_misplaced(ranges, upper.span)),
            UpperClause::Protocol(number @ (ICMP | ICMP6)) => Ok(policy::Upper::Icmp {
                number,
                kind: None,
                code: None,
            }),
            UpperClause::Protocol(number) => Ok(policy::Upper::Protocol {
                number,
                source_port: None,
                destination_port: None,
            }),
            UpperClause::Message {
                protocol: MOBILITY, ..
            }
            | UpperClause::Gre(_) => Err(detail_unsupported(upper)),
            UpperClause::Message {
                protocol: number,
                kind,
                code,
            } => {
                if kind == 0 {
                    self.warn(upper.span, "type 0 stands for every type, as setkey has it");
                }
                let wildcard = |field: u8| (field != 0).then_some(field);
                Ok(policy::Upper::Icmp {
                    number,
                    kind: wildcard(kind),
                    code: code.and_then(wildcard),
                })
            }
        }
    }

    fn action(&mut self, entry: &PolicyEntry) -> Lower<policy::Action> {
        let Some(action) = entry.policy.action else {
            let problem = Problem::new(
                entry.policy.direction.span,
                "this policy does not say what to do",
            );
            return Err(problem.advise("write `ipsec`, `none` or `discard` behind the direction"));
        };
        match action.node {
            ActionWord::Discard => Ok(policy::Action::Discard),
            ActionWord::None => Ok(policy::Action::Bypass),
            ActionWord::Ipsec => self.templates(entry).map(policy::Action::Protect),
            ActionWord::Entrust => {
                self.warn(action.span, "`entrust` leaves the choice to sockets; for a gateway it is the same as `none`");
                Ok(policy::Action::Entrust)
            }
            ActionWord::Bypass => {
                let problem =
                    Problem::unsupported(action.span, "`bypass` is a word for policies of sockets");
                Err(problem.advise("write `none` for traffic that is left alone"))
            }
        }
    }

    fn templates(&mut self, entry: &PolicyEntry) -> Lower<Vec<policy::Template>> {
        let mut templates = Vec::new();
        for template in &entry.policy.templates {
            let template = self.template(entry.lookup, &template.node);
            templates.extend(self.note(template));
        }
        Ok(templates)
    }

    fn template(&mut self, lookup: Lookup, template: &TemplateClause) -> Lower<policy::Template> {
        let protocol = match template.protocol.node {
            TemplateProtocol::Esp => sa::Protocol::Esp,
            TemplateProtocol::Ah => sa::Protocol::Ah,
            TemplateProtocol::IpComp => sa::Protocol::IpComp,
        };
        let ends = template.ends.as_ref().map(|ends| self.ends(lookup, ends));
        Ok(policy::Template {
            protocol,
            mode: match template.mode.node {
                ModeWord::Tunnel => sa::Mode::Tunnel,
                _ => sa::Mode::Transport,
            },
            endpoints: ends.transpose()?,
            level: level(template.level.node),
        })
    }

    fn ends(&mut self, lookup: Lookup, ends: &At<Ends>) -> Lower<(IpAddr, IpAddr)> {
        let Ends::Between(between) = &ends.node else {
            let problem = Problem::unsupported(
                ends.span,
                "this gateway cannot know which of its addresses `me` is",
            );
            return Err(problem.advise("write both addresses"));
        };
        let [near, far] = &**between;
        if near.port.is_some() || far.port.is_some() {
            self.warn(
                ends.span,
                "ports in a template change nothing: those of the association count",
            );
        }
        self.pair(lookup, &near.host, &far.host)
    }
}

/// Labels have no meaning in a policy.
fn check_label(entry: &PolicyEntry) -> Lower<()> {
    let Some(label) = &entry.label else {
        return Ok(());
    };
    let problem = Problem::unsupported(
        label.span,
        "security labels mean nothing outside the kernel",
    );
    Err(problem.advise("leave out `-ctx`"))
}

fn check_no_options(entry: &PolicyEntry) -> Lower<()> {
    match entry.options.first() {
        Some(option) => {
            let problem = Problem::new(option.span, "a policy that is merely named has no options");
            Err(problem.advise("leave it out: traffic and direction name the policy"))
        }
        None => Ok(()),
    }
}

/// Over how many associations flows are spread: what leaves, by one template. What arrives may come through any of
/// them.
fn spread(entry: &PolicyEntry) -> Lower<u8> {
    let Some(spread) = PolicyOptions::read(&entry.options)?.spread else {
        return Ok(1);
    };
    let policy = &entry.policy;
    let refused = |what, advice| Err(Problem::new(spread.span, what).advise(advice));
    match (policy.direction.node, &policy.templates[..]) {
        (DirectionWord::Out, [_]) => Ok(spread.node),
        (DirectionWord::Out, []) => refused(
            "there is nothing to spread over",
            "only `ipsec` policies lead to associations",
        ),
        (DirectionWord::Out, _) => refused(
            "`spread` goes with a single template",
            "spread flows, or put one protocol around another",
        ),
        _ => refused(
            "only what leaves is spread",
            "leave it out here: what arrives may come through any of the associations",
        ),
    }
}

fn prefix(address: IpAddr, range: &Range) -> Lower<Prefix> {
    let full = if address.is_ipv4() { 32 } else { 128 };
    match range.prefix {
        Some(prefix) if prefix.node > full => {
            let problem = Problem::new(
                prefix.span,
                format!(
                    "a prefix of {} bits is longer than the address",
                    prefix.node
                ),
            );
            Err(problem.advise(format!("at most {full} fit here")))
        }
        Some(prefix) => Ok(Prefix {
            address,
            len: prefix.node,
        }),
        None => Ok(Prefix { address, len: full }),
    }
}

fn port_misplaced(ranges: &Ranges, upper: Span) -> Problem {
    let ports = [&ranges.source.port, &ranges.destination.port];
    let span = ports
        .into_iter()
        .flatten()
        .find(|port| port.node != Port::Any);
    let problem = Problem::new(
        span.map_or(upper, |port| port.span),
        "this protocol has no ports",
    );
    problem.advise("write `[any]` or nothing; types of ICMP stand behind its name, as `icmp 8,0`")
}

fn detail_unsupported(upper: &At<UpperClause>) -> Problem {
    let what = match upper.node {
        UpperClause::Gre(_) => "keys of GRE are not looked at",
        _ => "types of the mobility header are not looked at",
    };
    let name = if matches!(upper.node, UpperClause::Gre(_)) {
        GRE
    } else {
        MOBILITY
    };
    Problem::unsupported(upper.span, what)
        .advise(format!("protocol {name} as a whole can be selected"))
}

fn direction(direction: DirectionWord) -> policy::Direction {
    match direction {
        DirectionWord::In => policy::Direction::In,
        DirectionWord::Out => policy::Direction::Out,
        DirectionWord::Forward => policy::Direction::Fwd,
    }
}

fn priority_value(priority: Priority) -> i64 {
    let base = match priority.base {
        Some(PriorityBase::Low) => -(1 << 30),
        None | Some(PriorityBase::Default) => 0,
        Some(PriorityBase::High) => 1 << 30,
    };
    base + priority.offset
}

fn level(level: LevelWord) -> policy::Level {
    match level {
        LevelWord::Default => policy::Level::Default,
        LevelWord::Use => policy::Level::Use,
        LevelWord::Require => policy::Level::Require,
        LevelWord::Unique(id) => policy::Level::Unique(id.map(Reqid)),
    }
}
