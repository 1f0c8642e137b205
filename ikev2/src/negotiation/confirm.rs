//! Whether the responder's answer is one of the proposals sent (RFC 7296 2.7): the initiator accepts nothing that it
//! did not offer.

use super::{Algorithm, Chosen, Difference, Offer, Subject};
use crate::message::payload::{Protocol, SecurityAssociation, TransformType};
use std::fmt;

/// Why an answer is not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnfitAnswer {
    /// It has this many proposals, not one.
    Proposals(usize),
    /// It names a proposal that was not offered.
    Number(u8),
    /// It is for another protocol.
    Protocol(Protocol),
    /// Of this type it has not exactly one of what was offered.
    Transform(Difference),
}

/// The proposal of `sent` that the answer chose; they were numbered from 1 in their order.
pub fn confirm(sent: &[Offer], answer: &SecurityAssociation<'_>) -> Result<Chosen, UnfitAnswer> {
    let [proposal] = answer.proposals.as_slice() else {
        return Err(UnfitAnswer::Proposals(answer.proposals.len()));
    };
    let index = usize::from(proposal.number).checked_sub(1);
    let offer = index
        .and_then(|index| sent.get(index))
        .ok_or(UnfitAnswer::Number(proposal.number))?;
    if proposal.protocol != offer.protocol() {
        return Err(UnfitAnswer::Protocol(proposal.protocol));
    }
    let mut kinds: Vec<_> = proposal
        .transforms
        .iter()
        .map(|transform| transform.kind)
        .collect();
    kinds.extend(
        offer
            .proposal(1, &[])
            .transforms
            .iter()
            .map(|transform| transform.kind),
    );
    kinds.sort_unstable();
    kinds.dedup();
    let mut algorithms = Vec::new();
    for kind in kinds {
        let theirs: Vec<_> = proposal.of_type(kind).map(Algorithm::of).collect();
        let ours: Vec<_> = offer.of(kind).collect();
        match theirs.as_slice() {
            [Some(one)] if ours.contains(one) => algorithms.push(*one),
            // "None" that was not offered means the same as no transform of this type.
            [Some(one)]
                if ours.is_empty() && *one == Algorithm::none(kind) && may_be_none(kind) => {}
            // So does no transform where "none" (32-bit sequence numbers too) was offered.
            [] if ours.contains(&Algorithm::none(kind)) => {}
            _ => {
                let theirs = theirs.into_iter().flatten().collect();
                let subject = Subject::Transform(kind);
                return Err(UnfitAnswer::Transform(Difference {
                    subject,
                    theirs,
                    ours,
                }));
            }
        }
    }
    Ok(Chosen::new(proposal, algorithms))
}

fn may_be_none(kind: TransformType) -> bool {
    matches!(kind, TransformType::INTEGRITY | TransformType::KEY_EXCHANGE)
}

impl fmt::Display for UnfitAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proposals(count) => write!(f, "the peer chose {count} proposals, not one"),
            Self::Number(number) => {
                write!(f, "the peer chose proposal {number}, which was not offered")
            }
            Self::Protocol(protocol) => write!(f, "the peer chose a proposal for {protocol}"),
            Self::Transform(difference) => {
                write!(f, "the peer chose what was not offered: {difference}")
            }
        }
    }
}

impl std::error::Error for UnfitAnswer {}
