//! What would happen to a packet, and why: the same look-ups that packets go through, with the reason for each step.

use super::{Decision, SaIndex, Snapshot};
use crate::Dropped;
use crate::packet::Outline;
use crate::policy::{Action, Direction, Policy};
use std::sync::Arc;

/// What would happen to an outbound packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The policy that decides, with its number.
    pub policy: Option<(u32, Arc<Policy>)>,
    /// The associations it would go through, innermost first.
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
    /// It is dropped.
    Dropped(Dropped),
}

/// Something that looks wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// An `in` policy has exactly this traffic, and no `out` policy does: the directions are swapped.
    DirectionsSwapped {
        /// Number of the `in` policy.
        inbound: u32,
    },
    /// The policy requires an association and none has those addresses, protocol, mode and reqid.
    NoAssociation,
    /// Answers would arrive without a policy that lets them in.
    NoWayBack,
    /// Another association fits as well and carries nothing; it has other algorithms or another encapsulation.
    Shadowed {
        /// That one.
        idle: SaIndex,
    },
    /// A tunnel's endpoint lies in the protected network itself, so the tunnel would have to carry itself.
    TunnelInsideItself,
}

impl Finding {
    /// The finding in one sentence, with what to do.
    pub fn advice(self) -> String {
        match self {
            Self::DirectionsSwapped { inbound } => format!(
                "no `out` policy matches this traffic, but `in` policy {inbound} does: the two directions are swapped, \
                 or this is the other gateway's file"
            ),
            Self::NoAssociation => "the policy requires protection and no association fits it; compare addresses, mode and \
                                    reqid (`-u`, `unique:N`) in `setkey -D` and `setkey -DP`"
                .to_owned(),
            Self::NoWayBack => "no `in` policy matches the answers to this traffic, so they would be dropped; add the \
                                mirror image of the `out` policy"
                .to_owned(),
            Self::Shadowed { .. } => "another association fits this policy too, with other algorithms or another encapsulation; \
                                   the youngest carries everything: delete the wrong one, or distinguish them \
                                   by `-u N` and `unique:N`"
                .to_owned(),
            Self::TunnelInsideItself => "the tunnel's far end lies inside the protected network; outer packets are kept \
                                         out by their mark, but a narrower selector would be clearer"
                .to_owned(),
        }
    }
}

impl Snapshot {
    /// What would happen to `packet` on its way out, and what looks wrong about it.
    pub fn explain(&self, packet: &Outline) -> Explanation {
        let decision = self.outbound(packet);
        let (outcome, path) = match decision {
            Decision::Bypass => (Outcome::InClear, &[][..]),
            Decision::Drop(reason) => (Outcome::Dropped(reason), &[][..]),
            Decision::Protect(path) => (Outcome::Protected, path),
            Decision::Acquire { .. } => (Outcome::Dropped(Dropped::Acquire), &[][..]),
        };
        let policy = self.matching(Direction::Out, packet);
        let findings = self.findings(
            packet,
            decision,
            policy.as_ref().map(|(_, policy)| &**policy),
        );
        Explanation {
            policy,
            path: path.to_vec(),
            spread: self.alternatives(packet),
            outcome,
            findings,
        }
    }

    fn findings(
        &self,
        packet: &Outline,
        decision: Decision<'_>,
        policy: Option<&Policy>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        let inbound = self
            .matching(Direction::In, packet)
            .or_else(|| self.matching(Direction::Fwd, packet));
        if let (None, Some((inbound, _))) = (policy, &inbound) {
            findings.push(Finding::DirectionsSwapped { inbound: *inbound });
        }
        if matches!(decision, Decision::Acquire { .. }) {
            findings.push(Finding::NoAssociation);
        }
        let Some(Policy {
            action: Action::Protect(templates),
            selector,
            ..
        }) = policy
        else {
            return findings;
        };
        let answer = answer_to(packet);
        if self
            .matching(Direction::In, &answer)
            .or_else(|| self.matching(Direction::Fwd, &answer))
            .is_none()
        {
            findings.push(Finding::NoWayBack);
        }
        if let Decision::Protect(path) = decision {
            let shadowed = self.shadowed().into_iter();
            let of_path = shadowed.filter(|shadowed| path.contains(&shadowed.carrier));
            findings.extend(of_path.map(|shadowed| Finding::Shadowed {
                idle: shadowed.idle,
            }));
        }
        let far_ends = templates
            .iter()
            .filter_map(|template| template.endpoints)
            .map(|(_, far)| far);
        if far_ends
            .into_iter()
            .any(|far| selector.destination.contains(far))
        {
            findings.push(Finding::TunnelInsideItself);
        }
        findings
    }
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
