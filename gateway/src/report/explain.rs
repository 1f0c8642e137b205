//! What would happen to a packet, for `explain`.

use super::traits::{Directions, traits};
use super::{action_text, kind_of, suite_name};
use crate::control::Explain;
use crate::events::{SaName, direction_name, selector_text};
use crate::status::{Correction, DecidingPolicy, Explained, FindingStatus, SaOnPath};
use ipsec::Dropped;
use ipsec::database::{Explanation, Finding, NumberedPolicy, Outcome, Snapshot, Surroundings, Way};
use ipsec::packet::{FragmentKind, Outline};
use ipsec::setkey::policy_statement;

/// The packet of a question. Ports that it does not name are 0.
pub(crate) fn packet_of(question: &Explain) -> Outline {
    let has_ports = question.source_port.is_some() || question.destination_port.is_some();
    Outline {
        source: question.source,
        destination: question.destination,
        protocol: question.protocol,
        header_len: 20,
        transport_offset: 20,
        total_len: 20,
        ports: (has_ports || [6, 17].contains(&question.protocol)).then_some((
            question.source_port.unwrap_or(0),
            question.destination_port.unwrap_or(0),
        )),
        fragment: FragmentKind::Whole,
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 64,
    }
}

/// Which policy and associations a packet would meet on a host, and what looks wrong about them.
pub(crate) fn explain(
    snapshot: &Snapshot,
    question: &Explain,
    host: &Surroundings,
    directions: &Directions,
) -> Explained {
    let packet = packet_of(question);
    let explanation = snapshot.explain(&packet, host);
    let names_ports = question.source_port.is_some() && question.destination_port.is_some();
    let (outcome, reason) = outcome_name(explanation.outcome);
    let on_path = explanation.path.iter().map(|index| {
        let config = &snapshot.sa(*index).config;
        SaOnPath {
            name: SaName::of(config),
            suite: suite_name(config),
            traits: traits(config, directions),
        }
    });
    let findings = explanation.findings.iter();
    Explained {
        source: question.source,
        destination: question.destination,
        protocol: question.protocol,
        way: way_name(explanation.way).to_owned(),
        policy: explanation.policy.as_ref().map(deciding),
        associations: on_path.collect(),
        spread: explanation.spread,
        is_one_flow: names_ports || packet.ports.is_none(),
        outcome: outcome.to_owned(),
        reason: reason.map(str::to_owned),
        sentence: sentence(&explanation),
        findings: findings.map(|found| finding(snapshot, found)).collect(),
    }
}

fn deciding((id, policy): &NumberedPolicy) -> DecidingPolicy {
    DecidingPolicy {
        id: *id,
        direction: direction_name(policy.direction).to_owned(),
        selector: selector_text(&policy.selector),
        action: action_text(&policy.action),
    }
}

fn way_name(way: Way) -> &'static str {
    match way {
        Way::Leaving => "leaving",
        Way::Arriving => "arriving",
        Way::Unknown => "unknown",
    }
}

fn outcome_name(outcome: Outcome) -> (&'static str, Option<&'static str>) {
    match outcome {
        Outcome::Protected => ("protected", None),
        Outcome::InClear | Outcome::Dropped(Dropped::NoPolicy) => ("in-clear", None),
        Outcome::AcceptedProtected => ("accepted-protected", None),
        Outcome::AcceptedEitherWay => ("accepted-either-way", None),
        Outcome::AcceptedInClear => ("accepted-in-clear", None),
        Outcome::NotForwarded => ("dropped", Some("not-forwarded")),
        Outcome::Dropped(reason) => ("dropped", Some(reason.name())),
    }
}

fn sentence(explanation: &Explanation) -> String {
    let text = match explanation.outcome {
        Outcome::Protected => "sent protected",
        Outcome::InClear => "sent unencrypted",
        Outcome::AcceptedProtected => {
            "expected from the peer, protected; dropped if it arrives unencrypted"
        }
        Outcome::AcceptedEitherWay => "expected from the peer, protected or not",
        Outcome::AcceptedInClear => {
            "expected from the peer, unencrypted; dropped if it arrives protected"
        }
        Outcome::NotForwarded => {
            "dropped (not-forwarded): a `fwd` policy wants it protected, and it comes from this side unencrypted; \
             `esplanade drops` counts it under `clear_passing` or `clear_at_devices`"
        }
        // The kernel routes what no policy matches.
        Outcome::Dropped(Dropped::NoPolicy) if explanation.way == Way::Arriving => {
            "passes unencrypted via normal routing (no matching policy)"
        }
        Outcome::Dropped(Dropped::NoPolicy) => {
            "sent unencrypted via normal routing (no matching policy)"
        }
        Outcome::Dropped(reason) => {
            return format!("dropped ({reason}): {}", reason.advice());
        }
    };
    text.to_owned()
}

fn finding(snapshot: &Snapshot, found: &Finding) -> FindingStatus {
    let wrong = found.policies().iter();
    let corrections = wrong
        .zip(found.instead())
        .map(|((_, is), right)| Correction {
            instead_of: policy_statement(is),
            write: policy_statement(&right),
        });
    let unused = match found {
        Finding::Shadowed { idle } => Some(kind_of(&snapshot.sa(*idle).config)),
        _ => None,
    };
    FindingStatus {
        finding: found.name().to_owned(),
        advice: found.advice(),
        policies: found.policies().iter().map(|(id, _)| *id).collect(),
        corrections: corrections.collect(),
        unused,
    }
}

#[cfg(test)]
mod tests;
