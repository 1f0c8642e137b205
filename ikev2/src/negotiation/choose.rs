//! The responder's choice (RFC 7296 2.7 and 3.3.6): one proposal, and of each type in it one transform.

use super::{
    Algorithm, Difference, Offer, Refused, Subject,
    algorithm::{NONE, joined},
    difference::{Comparison, MAX_COMPARISONS},
};
use crate::{
    groups::Group,
    keys::Protection,
    message::payload::{Proposal, Protocol, TransformType},
    prf,
};
use multibuffer::Prf;

/// The types that are understood.
const TYPES: [TransformType; 5] = [
    TransformType::ENCRYPTION,
    TransformType::PRF,
    TransformType::INTEGRITY,
    TransformType::KEY_EXCHANGE,
    TransformType::SEQUENCE_NUMBERS,
];

/// The key exchange of the request, apart from its proposals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyExchangeOffered {
    /// It has a KE payload of this group.
    Payload(u16),
    /// It has none: no group can be chosen.
    Absent,
    /// It is IKE_AUTH, where groups in a proposal have no meaning (RFC 7296 1.2).
    Ignored,
}

/// What was chosen. INVARIANT: algorithms of both the local offer and the peer's proposal, at most one of each type.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Chosen {
    /// The number of the peer's proposal.
    pub number: u8,
    /// IKE, ESP or AH.
    pub protocol: Protocol,
    algorithms: Vec<Algorithm>,
}

/// The outcome of a negotiation that can succeed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// This is the answer.
    Chosen(Chosen),
    /// The KE payload has another group than the one that was chosen: answered by INVALID_KE_PAYLOAD with this one, and
    /// the peer repeats the request with it (RFC 7296 1.2 and 1.3).
    OtherGroup(u16),
}

/// Chooses among the peer's proposals by the local order of preference: the first local offer that fits any of them,
/// and of each transform type the first local algorithm that the peer has too. Only the group is taken from the peer's
/// KE payload, provided that it is offered here: another one would cost a round trip.
pub fn choose(
    offered: &[Proposal<'_>],
    ours: &[Offer],
    key_exchange: KeyExchangeOffered,
) -> Result<Outcome, Refused> {
    let mut comparisons = Vec::new();
    for offer in ours {
        for proposal in offered {
            match fit(proposal, offer, key_exchange) {
                Ok(chosen) => return Ok(chosen.outcome(key_exchange)),
                Err(differences) => comparisons.push(Comparison::new(proposal, offer, differences)),
            }
            if comparisons.len() > 2 * MAX_COMPARISONS {
                keep_closest(&mut comparisons);
            }
        }
    }
    keep_closest(&mut comparisons);
    Err(Refused { comparisons })
}

fn keep_closest(comparisons: &mut Vec<Comparison>) {
    comparisons.sort_by_key(|comparison| comparison.differences.len());
    comparisons.truncate(MAX_COMPARISONS);
}

/// What both have in common, or every type in which they have nothing in common.
fn fit(
    proposal: &Proposal<'_>,
    offer: &Offer,
    key_exchange: KeyExchangeOffered,
) -> Result<Chosen, Vec<Difference>> {
    if proposal.protocol != offer.protocol() {
        let subject = Subject::Protocol(proposal.protocol, offer.protocol());
        return Err(vec![Difference {
            subject,
            theirs: Vec::new(),
            ours: Vec::new(),
        }]);
    }
    let mut differences = unknown_types(proposal);
    let mut algorithms = Vec::new();
    for kind in TYPES {
        let theirs = theirs(proposal, kind, key_exchange);
        let ours = ours(offer, kind);
        if theirs.is_empty() && ours.is_empty() {
            continue;
        }
        match pick(&theirs, &ours, key_exchange) {
            // RFC 7296 3.3.6: the answer has one transform of each type that was offered, and of no other.
            Some(algorithm) if is_answered(proposal, kind, key_exchange) => {
                algorithms.push(algorithm)
            }
            Some(_) => {}
            None => differences.push(Difference {
                subject: Subject::Transform(kind),
                theirs,
                ours,
            }),
        }
    }
    if differences.is_empty() {
        Ok(Chosen {
            number: proposal.number,
            protocol: proposal.protocol,
            algorithms,
        })
    } else {
        Err(differences)
    }
}

/// RFC 7296 3.3.6: a proposal with a type that is not understood is not acceptable.
fn unknown_types(proposal: &Proposal<'_>) -> Vec<Difference> {
    let mut kinds: Vec<_> = proposal
        .transforms
        .iter()
        .map(|transform| transform.kind)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.retain(|kind| !TYPES.contains(kind));
    let unknown = |kind| Difference {
        subject: Subject::UnknownType(kind),
        theirs: Vec::new(),
        ours: Vec::new(),
    };
    kinds.into_iter().map(unknown).collect()
}

/// What the peer offers of one type. No integrity algorithm, no group and 32-bit sequence numbers need not be written
/// (RFC 7296 3.3.2 and 3.3.3).
fn theirs(
    proposal: &Proposal<'_>,
    kind: TransformType,
    key_exchange: KeyExchangeOffered,
) -> Vec<Algorithm> {
    let offered: Vec<_> = proposal.of_type(kind).filter_map(Algorithm::of).collect();
    let is_child = proposal.protocol != Protocol::IKE;
    let none = Algorithm::none(kind);
    match kind {
        TransformType::KEY_EXCHANGE if is_child && key_exchange == KeyExchangeOffered::Ignored => {
            vec![none]
        }
        TransformType::KEY_EXCHANGE if is_child && key_exchange == KeyExchangeOffered::Absent => {
            // Without a KE payload only "none" can be meant.
            let written = proposal.of_type(kind).count() > 0;
            if written && !offered.contains(&none) {
                offered
            } else {
                vec![none]
            }
        }
        TransformType::INTEGRITY if offered.is_empty() => vec![none],
        TransformType::KEY_EXCHANGE | TransformType::SEQUENCE_NUMBERS
            if is_child && offered.is_empty() =>
        {
            vec![none]
        }
        _ => offered,
    }
}

/// The accepted algorithms of one type; "none" where the offer has none of the type and the type is optional.
fn ours(offer: &Offer, kind: TransformType) -> Vec<Algorithm> {
    let ours: Vec<_> = offer.of(kind).collect();
    let is_child = offer.protocol() != Protocol::IKE;
    let may_be_none =
        kind == TransformType::INTEGRITY || (kind == TransformType::KEY_EXCHANGE && is_child);
    if ours.is_empty() && may_be_none {
        vec![Algorithm::none(kind)]
    } else {
        ours
    }
}

fn pick(
    theirs: &[Algorithm],
    ours: &[Algorithm],
    key_exchange: KeyExchangeOffered,
) -> Option<Algorithm> {
    let mut common = ours
        .iter()
        .copied()
        .filter(|algorithm| theirs.contains(algorithm));
    let is_in_payload = |algorithm: &Algorithm| {
        let group = (algorithm.kind == TransformType::KEY_EXCHANGE).then_some(algorithm.id);
        matches!(key_exchange, KeyExchangeOffered::Payload(id) if group == Some(id))
    };
    common.clone().find(is_in_payload).or_else(|| common.next())
}

fn is_answered(
    proposal: &Proposal<'_>,
    kind: TransformType,
    key_exchange: KeyExchangeOffered,
) -> bool {
    let is_ignored =
        kind == TransformType::KEY_EXCHANGE && key_exchange == KeyExchangeOffered::Ignored;
    !is_ignored && proposal.of_type(kind).next().is_some()
}

impl Chosen {
    pub(super) fn new(proposal: &Proposal<'_>, algorithms: Vec<Algorithm>) -> Self {
        Self {
            number: proposal.number,
            protocol: proposal.protocol,
            algorithms,
        }
    }

    fn outcome(self, key_exchange: KeyExchangeOffered) -> Outcome {
        match (self.group_id(), key_exchange) {
            (Some(group), KeyExchangeOffered::Payload(offered)) if group != offered => {
                Outcome::OtherGroup(group)
            }
            (Some(group), KeyExchangeOffered::Absent) => Outcome::OtherGroup(group),
            _ => Outcome::Chosen(self),
        }
    }

    fn of(&self, kind: TransformType) -> Option<&Algorithm> {
        self.algorithms
            .iter()
            .find(|algorithm| algorithm.kind == kind)
    }

    /// Whether `offer` has all of these algorithms.
    pub fn is_of(&self, offer: &Offer) -> bool {
        let mut algorithms = self.algorithms.iter();
        self.protocol == offer.protocol()
            && algorithms.all(|algorithm| {
                algorithm.id == NONE || offer.of(algorithm.kind).any(|own| own == *algorithm)
            })
    }

    /// What protects messages or packets.
    pub fn protection(&self) -> Protection {
        Protection {
            encryption: self
                .of(TransformType::ENCRYPTION)
                .and_then(Algorithm::encryption),
            integrity: self
                .of(TransformType::INTEGRITY)
                .and_then(Algorithm::integrity),
        }
    }

    /// The pseudorandom function, for IKE.
    pub fn prf(&self) -> Option<Prf> {
        self.of(TransformType::PRF)
            .and_then(|algorithm| prf::from_transform(algorithm.id))
    }

    /// The group of a key exchange, if there is one.
    pub fn group(&self) -> Option<Group> {
        self.group_id().and_then(Group::from_transform)
    }

    fn group_id(&self) -> Option<u16> {
        let id = self.of(TransformType::KEY_EXCHANGE)?.id;
        (id != NONE).then_some(id)
    }

    /// Whether sequence numbers have 64 bits.
    pub fn has_extended_sequence_numbers(&self) -> bool {
        self.of(TransformType::SEQUENCE_NUMBERS)
            .is_some_and(|algorithm| algorithm.id == 1)
    }

    /// The proposal of the response, with the own SPI.
    pub fn proposal<'a>(&self, spi: &'a [u8]) -> Proposal<'a> {
        let transforms = self.algorithms.iter().map(Algorithm::transform).collect();
        Proposal {
            number: self.number,
            protocol: self.protocol,
            spi,
            transforms,
        }
    }
}

impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&joined(&self.algorithms, "-"))
    }
}
