//! Finds policies that contradict the host they are loaded on: selectors, ends or directions in each other's place, and
//! tunnels that start or end at addresses that the host does not have.

use super::finding::{Finding, NumberedPolicy};
use super::surroundings::{Surroundings, Way};
use crate::packet::Outline;
use crate::policy::{Action, Direction, Policy};
use crate::sa::Mode;
use std::net::IpAddr;

/// The first policies that fit a packet and its answer, in each direction. `fwd` counts as `in` where no `in` policy
/// fits.
pub(super) struct Matched {
    pub out: Option<NumberedPolicy>,
    pub inbound: Option<NumberedPolicy>,
    pub answer_out: Option<NumberedPolicy>,
    pub answer_in: Option<NumberedPolicy>,
}

/// How the ends of a tunnel agree with the direction of its policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// The end that is to be here is here, or the policy has no tunnel, or this host's addresses are not known.
    Right,
    /// The other end is here, at this address.
    Exchanged(IpAddr),
    /// Neither is here; this one is to be.
    Foreign(IpAddr),
}

impl Matched {
    /// The ends of these policies' tunnels that are not at this host.
    pub(super) fn far_ends(&self, host: &Surroundings) -> Vec<IpAddr> {
        let is_far = |end: &IpAddr| host.has_outer(*end) == Some(false);
        let mut far: Vec<_> = self.all_ends().filter(is_far).collect();
        far.sort_unstable();
        far.dedup();
        far
    }

    /// The ends of these policies' tunnels.
    pub(super) fn all_ends(&self) -> impl Iterator<Item = IpAddr> {
        let ends = self
            .all()
            .filter_map(|(_, policy)| outermost_tunnel(policy));
        ends.flat_map(|(from, to)| [from, to])
    }

    fn all(&self) -> impl Iterator<Item = &NumberedPolicy> {
        let all = [&self.out, &self.inbound, &self.answer_out, &self.answer_in];
        all.into_iter().flatten()
    }
}

/// What contradicts the host in the policies of a packet that goes this way.
pub(super) fn mistakes(
    matched: &Matched,
    packet: &Outline,
    way: Way,
    host: &Surroundings,
) -> Vec<Finding> {
    let of_other_way = of_the_other_way(matched, packet, way);
    let (exchanged, selectors): (Vec<_>, Vec<_>) = of_other_way
        .iter()
        .cloned()
        .partition(|(_, policy)| matches!(ends(policy, host), Ends::Exchanged(_)));
    let leaving = match way {
        Way::Arriving => (packet.destination, packet.source),
        Way::Leaving | Way::Unknown => (packet.source, packet.destination),
    };
    let mut findings = Vec::new();
    if !selectors.is_empty() {
        let policies = selectors;
        findings.push(Finding::SelectorsExchanged { policies, leaving });
    }
    if !exchanged.is_empty() {
        let policies = exchanged;
        findings.push(Finding::DirectionsExchanged { policies });
    }
    let mut judged = Vec::new();
    for policy in matched.all() {
        if !judged.contains(&policy.0) {
            judged.push(policy.0);
            findings.extend(wrong_ends(policy, &of_other_way, host));
        }
    }
    findings
}

/// The policies that select packets of the other direction than theirs, the `out` policy first. A policy that selects
/// both ways between these hosts is right either way.
fn of_the_other_way(matched: &Matched, packet: &Outline, way: Way) -> Vec<NumberedPolicy> {
    let suspects = match way {
        Way::Leaving if matched.out.is_none() && matched.inbound.is_some() => {
            let out = matched.answer_out.as_ref();
            [
                out.filter(|_| matched.answer_in.is_none()),
                matched.inbound.as_ref(),
            ]
        }
        Way::Arriving if matched.inbound.is_none() && matched.out.is_some() => {
            let inbound = matched.answer_in.as_ref();
            [
                matched.out.as_ref(),
                inbound.filter(|_| matched.answer_out.is_none()),
            ]
        }
        Way::Leaving | Way::Arriving | Way::Unknown => [None, None],
    };
    let suspects = suspects.into_iter().flatten();
    let is_one_way = |policy: &Policy| {
        let selector = &policy.selector;
        let both = [packet.source, packet.destination]
            .into_iter()
            .all(|end| selector.source.contains(end) && selector.destination.contains(end));
        !both && is_written(policy)
    };
    suspects
        .filter(|(_, policy)| is_one_way(policy))
        .cloned()
        .collect()
}

/// What is wrong with the ends of a policy's tunnel, unless its direction is wrong as a whole.
fn wrong_ends(
    policy: &NumberedPolicy,
    of_other_way: &[NumberedPolicy],
    host: &Surroundings,
) -> Option<Finding> {
    let has_other_way = of_other_way.iter().any(|(id, _)| *id == policy.0);
    let numbered = policy.clone();
    match ends(&policy.1, host) {
        Ends::Exchanged(local) if !has_other_way && is_written(&policy.1) => {
            let policy = numbered;
            Some(Finding::EndsExchanged { policy, local })
        }
        Ends::Foreign(address) => {
            let policy = numbered;
            Some(Finding::NotOfThisHost { policy, address })
        }
        Ends::Right | Ends::Exchanged(_) => None,
    }
}

fn ends(policy: &Policy, host: &Surroundings) -> Ends {
    let Some((from, to)) = outer_ends(policy) else {
        return Ends::Right;
    };
    let (local, remote) = match policy.direction {
        Direction::Out => (from, to),
        Direction::In | Direction::Fwd => (to, from),
    };
    match (host.has_outer(local), host.has_outer(remote)) {
        (Some(false), Some(true)) => Ends::Exchanged(remote),
        (Some(false), _) => Ends::Foreign(local),
        (Some(true) | None, _) => Ends::Right,
    }
}

/// Whether it protects and comes from a setkey file.
fn is_written(policy: &Policy) -> bool {
    !policy.is_negotiated && matches!(policy.action, Action::Protect(_))
}

/// The ends that a policy demands of the outermost tunnel. A policy with a device leaves them to its associations.
pub(super) fn outer_ends(policy: &Policy) -> Option<(IpAddr, IpAddr)> {
    outermost_tunnel(policy).filter(|_| policy.device.is_none())
}

/// The ends of the outermost tunnel. While a peer of IKE is down its policies have none.
fn outermost_tunnel(policy: &Policy) -> Option<(IpAddr, IpAddr)> {
    let Action::Protect(templates) = &policy.action else {
        return None;
    };
    let mut tunnels = templates.iter().rev();
    let outermost = tunnels.find(|template| template.mode == Mode::Tunnel)?;
    let (from, to) = outermost.endpoints?;
    (!from.is_unspecified() && !to.is_unspecified()).then_some((from, to))
}
