//! What looks wrong about the policies of a packet: each finding with a sentence about what to do, and with the
//! policies to write instead.

use crate::database::SaIndex;
use crate::policy::{Action, Direction, Policy, Template};
use std::net::IpAddr;
use std::sync::Arc;

/// A policy with its number.
pub type NumberedPolicy = (u32, Arc<Policy>);

/// Something that looks wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// Source and destination of these policies are in each other's place: an `out` policy selects what arrives, or an
    /// `in` policy what leaves. Their tunnels' ends are right.
    SelectorsExchanged {
        /// One of each direction, or one alone.
        policies: Vec<NumberedPolicy>,
        /// Source and destination of packets that leave.
        leaving: (IpAddr, IpAddr),
    },
    /// The same, and the tunnels' ends are exchanged too: `out` and `in` are in each other's place.
    DirectionsExchanged {
        /// One of each direction, or one alone.
        policies: Vec<NumberedPolicy>,
    },
    /// The tunnel starts at the peer and ends here where the policy's direction demands the reverse, or the reverse of
    /// that.
    EndsExchanged {
        /// The policy.
        policy: NumberedPolicy,
        /// The end that is this host's address.
        local: IpAddr,
    },
    /// The end of the tunnel that is to be here is not an address of this host.
    NotOfThisHost {
        /// The policy.
        policy: NumberedPolicy,
        /// That end.
        address: IpAddr,
    },
    /// Only a policy for arriving packets has this traffic, and the addresses do not tell whether it arrives.
    OnlyInbound {
        /// That policy.
        policy: NumberedPolicy,
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
    /// Its name, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SelectorsExchanged { .. } => "selectors-exchanged",
            Self::DirectionsExchanged { .. } => "directions-exchanged",
            Self::EndsExchanged { .. } => "ends-exchanged",
            Self::NotOfThisHost { .. } => "not-of-this-host",
            Self::OnlyInbound { .. } => "only-inbound",
            Self::NoAssociation => "no-association",
            Self::NoWayBack => "no-way-back",
            Self::Shadowed { .. } => "shadowed",
            Self::TunnelInsideItself => "tunnel-inside-itself",
        }
    }

    /// The finding in one sentence, with what to do.
    pub fn advice(&self) -> String {
        match self {
            Self::SelectorsExchanged { policies, leaving } => selectors_exchanged(policies, *leaving),
            Self::DirectionsExchanged { policies } => format!(
                "the directions of {} are exchanged: selectors and tunnel's ends are those of the other direction, as \
                 in the other gateway's file; load this gateway's own file, or correct the policies",
                named(policies)
            ),
            Self::EndsExchanged { policy, local } => ends_exchanged(policy, *local),
            Self::NotOfThisHost { policy, address } => not_of_this_host(policy, *address),
            Self::OnlyInbound { policy } => format!(
                "only {} selects this traffic, so it is expected from the peer; if it is to leave here, source and \
                 destination of the policies are exchanged: `out` has to select it",
                name(policy)
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

    /// The policies it is about.
    pub fn policies(&self) -> &[NumberedPolicy] {
        match self {
            Self::SelectorsExchanged { policies, .. } | Self::DirectionsExchanged { policies } => {
                policies
            }
            Self::EndsExchanged { policy, .. }
            | Self::NotOfThisHost { policy, .. }
            | Self::OnlyInbound { policy } => std::slice::from_ref(policy),
            Self::NoAssociation
            | Self::NoWayBack
            | Self::Shadowed { .. }
            | Self::TunnelInsideItself => &[],
        }
    }

    /// What to write instead of these, in their order; nothing where that is not known.
    pub fn instead(&self) -> Vec<Policy> {
        let corrected: fn(&Policy) -> Policy = match self {
            Self::SelectorsExchanged { .. } => with_selector_exchanged,
            Self::DirectionsExchanged { .. } => with_direction_exchanged,
            Self::EndsExchanged { .. } => with_ends_exchanged,
            _ => return Vec::new(),
        };
        let policies = self.policies().iter();
        policies.map(|(_, policy)| corrected(policy)).collect()
    }
}

fn selectors_exchanged(policies: &[NumberedPolicy], leaving: (IpAddr, IpAddr)) -> String {
    let (here, there) = leaving;
    let (what, are) = match policies.len() {
        1 => ("the selector", "has source and destination"),
        _ => ("the selectors", "have source and destination"),
    };
    format!(
        "{what} of {} {are} exchanged: {here} is on this side and {there} on the peer's, so `out` goes from {here} to \
         {there} and `in` comes back; the tunnel's ends are right",
        named(policies)
    )
}

fn ends_exchanged(policy: &NumberedPolicy, local: IpAddr) -> String {
    let (is, must) = match policy.1.direction {
        Direction::Out => ("ends", "start"),
        Direction::In | Direction::Fwd => ("starts", "end"),
    };
    format!(
        "the ends of the tunnel of {} are exchanged: it {is} at {local}, an address of this host, where it must {must}",
        name(policy)
    )
}

fn not_of_this_host(policy: &NumberedPolicy, address: IpAddr) -> String {
    let is = match policy.1.direction {
        Direction::Out => "starts",
        Direction::In | Direction::Fwd => "ends",
    };
    format!(
        "{address} is not an address of this host, and the tunnel of {} {is} there: correct it in the policy and its \
         association, or give this host the address (`ip address`)",
        name(policy)
    )
}

fn name((id, policy): &NumberedPolicy) -> String {
    let direction = match policy.direction {
        Direction::Out => "out",
        Direction::In => "in",
        Direction::Fwd => "fwd",
    };
    format!("`{direction}` policy {id}")
}

fn named(policies: &[NumberedPolicy]) -> String {
    let names: Vec<_> = policies.iter().map(name).collect();
    names.join(" and ")
}

fn with_selector_exchanged(policy: &Policy) -> Policy {
    Policy {
        selector: policy.selector.exchanged(),
        ..policy.clone()
    }
}

fn with_direction_exchanged(policy: &Policy) -> Policy {
    let direction = match policy.direction {
        Direction::Out => Direction::In,
        Direction::In | Direction::Fwd => Direction::Out,
    };
    Policy {
        direction,
        spread: 1,
        ..policy.clone()
    }
}

fn with_ends_exchanged(policy: &Policy) -> Policy {
    let exchanged = |template: &Template| Template {
        endpoints: template.endpoints.map(|(from, to)| (to, from)),
        ..*template
    };
    let action = match &policy.action {
        Action::Protect(templates) => Action::Protect(templates.iter().map(exchanged).collect()),
        other => other.clone(),
    };
    Policy {
        action,
        ..policy.clone()
    }
}
