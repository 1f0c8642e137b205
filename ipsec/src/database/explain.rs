//! What would happen to a packet, and why: the same look-ups that packets go through, with the reason for each step.
//!
//! ```text
//!   packet ──► policies of it and its answer ──► which way? ──► leaving: outbound policy, associations
//!                                                   ▲      └──► arriving: what is expected of the peer
//!                              Surroundings ────────┘           and what contradicts this host (`mistakes`)
//! ```

mod finding;
mod mistakes;
mod surroundings;

pub use finding::{Finding, NumberedPolicy};
pub use surroundings::{Hop, Surroundings, Way};

use super::choices::is_for;
use super::resolve::{satisfies, serves};
use super::{Decision, SaIndex, Snapshot};
use crate::Dropped;
use crate::packet::Outline;
use crate::policy::{Action, Direction, Level, Policy, Template};
use crate::sa::{Protocol, Sa};
use mistakes::{Matched, mistakes, outer_ends};
use std::net::IpAddr;

/// What would happen to a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Which way it goes, as far as the addresses tell.
    pub way: Way,
    /// The policy that decides, with its number.
    pub policy: Option<NumberedPolicy>,
    /// The associations it would go through, innermost first; of an arriving packet those it is expected to have come
    /// through.
    pub path: Vec<SaIndex>,
    /// Over how many associations the flows of the policy are spread, of which `path` names this one's; 0 where they
    /// are not.
    pub spread: usize,
    /// What would happen.
    pub outcome: Outcome,
    /// What looks wrong, each with what to do about it.
    pub findings: Vec<Finding>,
}

/// What would happen to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It leaves protected.
    Protected,
    /// It is sent unencrypted, by normal routing.
    InClear,
    /// It is accepted if it arrives protected, and only then.
    AcceptedProtected,
    /// It is accepted whether it arrives protected or not.
    AcceptedEitherWay,
    /// It is accepted if it arrives unencrypted, and only then.
    AcceptedInClear,
    /// It is not forwarded to where it would leave: a `fwd` policy does not let it come in unencrypted.
    NotForwarded,
    /// It is dropped.
    Dropped(Dropped),
}

impl Snapshot {
    /// The addresses whose first hops decide which way `packet` goes: its own, and the ends of its policies' tunnels.
    pub fn addresses_around(&self, packet: &Outline) -> Vec<IpAddr> {
        let ends = self.matched(packet);
        let mut all: Vec<_> = ends.all_ends().collect();
        all.extend([packet.source, packet.destination]);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What would happen to `packet` on this host, and what looks wrong about it.
    pub fn explain(&self, packet: &Outline, host: &Surroundings) -> Explanation {
        let matched = self.matched(packet);
        let way = host.way(packet, &matched.far_ends(host));
        let mut explanation = match (way, &matched.out, &matched.inbound) {
            (Way::Arriving, _, Some(inbound)) | (Way::Unknown, None, Some(inbound)) => {
                self.explain_arriving(packet, way, inbound)
            }
            _ => self.explain_leaving(packet, &matched, way, host),
        };
        let wrong = mistakes(&matched, packet, way, host);
        explanation.findings.splice(0..0, wrong);
        explanation
    }

    fn matched(&self, packet: &Outline) -> Matched {
        let inbound = |packet: &Outline| {
            let here = self.matching(Direction::In, packet);
            here.or_else(|| self.matching(Direction::Fwd, packet))
        };
        let answer = answer_to(packet);
        Matched {
            out: self.matching(Direction::Out, packet),
            inbound: inbound(packet),
            answer_out: self.matching(Direction::Out, &answer),
            answer_in: inbound(&answer),
        }
    }

    fn explain_leaving(
        &self,
        packet: &Outline,
        matched: &Matched,
        way: Way,
        host: &Surroundings,
    ) -> Explanation {
        let decision = self.outbound(packet);
        let (outcome, path) = match decision {
            Decision::Bypass => (Outcome::InClear, &[][..]),
            Decision::Drop(reason) => (Outcome::Dropped(reason), &[][..]),
            Decision::Protect(path) => (Outcome::Protected, path),
            Decision::Acquire { .. } => (Outcome::Dropped(Dropped::Acquire), &[][..]),
        };
        let is_refused = way == Way::Leaving && self.is_refused_on_the_way(packet, outcome, host);
        let outcome = match outcome {
            _ if is_refused => Outcome::NotForwarded,
            Outcome::Protected if self.has_foreign_start(matched, path, host) => {
                Outcome::Dropped(Dropped::SendFailed)
            }
            outcome => outcome,
        };
        Explanation {
            way,
            policy: matched.out.clone(),
            path: path.to_vec(),
            spread: self.alternatives(packet),
            outcome,
            findings: self.about_leaving(matched, decision, way),
        }
    }

    /// What `policy` expects of a packet from the peer.
    fn explain_arriving(&self, packet: &Outline, way: Way, policy: &NumberedPolicy) -> Explanation {
        let (outcome, templates) = match &policy.1.action {
            Action::Discard => (Outcome::Dropped(Dropped::PolicyDiscard), &[][..]),
            Action::Bypass | Action::Entrust => (Outcome::AcceptedInClear, &[][..]),
            Action::Protect(all) if is_optional(all) => (Outcome::AcceptedEitherWay, &all[..]),
            Action::Protect(all) => (Outcome::AcceptedProtected, &all[..]),
        };
        let through = |template| self.expected_of(packet, &policy.1, template);
        let path: Vec<_> = templates.iter().filter_map(through).collect();
        let mut findings = Vec::new();
        if path.len() < templates.len() && outcome == Outcome::AcceptedProtected {
            findings.push(Finding::NoAssociation);
        }
        if way == Way::Unknown && !policy.1.is_negotiated {
            let policy = policy.clone();
            findings.push(Finding::OnlyInbound { policy });
        }
        Explanation {
            way,
            policy: Some(policy.clone()),
            path,
            spread: 0,
            outcome,
            findings,
        }
    }

    /// The youngest association that satisfies a template for a packet from the peer.
    fn expected_of(
        &self,
        packet: &Outline,
        policy: &Policy,
        template: &Template,
    ) -> Option<SaIndex> {
        let fits = |sa: &Sa| match &policy.device {
            Some(device) => {
                let config = &sa.config;
                // The one of the other direction has the same number, and selectors the other way round.
                config.interface.as_ref() == Some(device)
                    && serves(config, policy)
                    && is_for(config, packet)
            }
            None => satisfies(sa, template),
        };
        let hosts = (packet.source, packet.destination);
        let is_between = |sa: &Sa| {
            let has_ends = template.endpoints.is_some() || policy.device.is_some();
            has_ends || (sa.config.source, sa.config.id.destination) == hosts
        };
        let numbered = (0..).zip(&self.sas);
        let fitting = numbered.filter(|(_, sa)| sa.is_alive() && fits(sa) && is_between(sa));
        fitting.last().map(|(place, _)| SaIndex(place))
    }

    /// Whether the outermost packet would be from an address of another host, so that the kernel refuses it. AH leaves
    /// with a header of its own making, from whatever address.
    fn has_foreign_start(&self, matched: &Matched, path: &[SaIndex], host: &Surroundings) -> bool {
        let outermost = path.last().map(|index| self.sa(*index).config.id.protocol);
        let ends = matched
            .out
            .as_ref()
            .and_then(|(_, policy)| outer_ends(policy));
        let is_foreign = ends.is_some_and(|(start, _)| host.has_outer(start) == Some(false));
        is_foreign && outermost == Some(Protocol::Esp)
    }

    /// Whether the kernel does not forward a packet from this side, because a `fwd` policy has it.
    fn is_refused_on_the_way(
        &self,
        packet: &Outline,
        outcome: Outcome,
        host: &Surroundings,
    ) -> bool {
        let passes_the_kernel = match outcome {
            Outcome::Protected => host.kernel_forwards,
            Outcome::InClear | Outcome::Dropped(Dropped::NoPolicy) => true,
            _ => false,
        };
        if host.own.contains(&packet.source) || !passes_the_kernel {
            return false;
        }
        let forwarding = self.matching(Direction::Fwd, packet);
        forwarding.is_some_and(|(_, policy)| match &policy.action {
            Action::Discard => true,
            Action::Protect(templates) => !is_optional(templates),
            Action::Bypass | Action::Entrust => false,
        })
    }

    fn about_leaving(&self, matched: &Matched, decision: Decision<'_>, way: Way) -> Vec<Finding> {
        let mut findings = Vec::new();
        if matches!(decision, Decision::Acquire { .. }) {
            findings.push(Finding::NoAssociation);
        }
        let Some((_, out)) = &matched.out else {
            return findings;
        };
        let Action::Protect(templates) = &out.action else {
            return findings;
        };
        if way != Way::Arriving && matched.answer_in.is_none() {
            findings.push(Finding::NoWayBack);
        }
        if let Decision::Protect(path) = decision {
            findings.extend(self.shadowed_by(path));
        }
        if leads_into_itself(out, templates) {
            findings.push(Finding::TunnelInsideItself);
        }
        findings
    }

    fn shadowed_by(&self, path: &[SaIndex]) -> impl Iterator<Item = Finding> {
        let shadowed = self.shadowed().into_iter();
        let of_path = shadowed.filter(|shadowed| path.contains(&shadowed.carrier));
        of_path.map(|shadowed| Finding::Shadowed {
            idle: shadowed.idle,
        })
    }
}

fn leads_into_itself(policy: &Policy, templates: &[Template]) -> bool {
    let ends = templates.iter().filter_map(|template| template.endpoints);
    ends.into_iter()
        .any(|(_, far)| policy.selector.destination.contains(far))
}

fn is_optional(templates: &[Template]) -> bool {
    let mut templates = templates.iter();
    templates.all(|template| template.level == Level::Use)
}

/// The packet that answers `packet`.
fn answer_to(packet: &Outline) -> Outline {
    let is_icmp = matches!(packet.protocol, 1 | 58);
    Outline {
        source: packet.destination,
        destination: packet.source,
        ports: packet.ports.map(|(source, destination)| {
            if is_icmp {
                (0, 0)
            } else {
                (destination, source)
            }
        }),
        ..*packet
    }
}

#[cfg(test)]
mod tests;
