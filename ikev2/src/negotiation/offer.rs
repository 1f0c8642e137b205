//! What is proposed and accepted: of each type of transform some algorithms, the preferred one first.

use super::{Algorithm, NamedSuite, algorithm::joined};
use crate::message::payload::{Proposal, Protocol, TransformType};
use std::fmt;

/// How many transforms one proposal can have: their number travels in 8 bits.
const MAX_ALGORITHMS: usize = 255;

/// One local proposal. INVARIANT: it has exactly the transform types that its protocol needs, and its ciphers are all
/// AEAD or none is (RFC 7296 3.3 requires two proposals otherwise).
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(
    try_from = "(Protocol, Vec<Algorithm>)",
    into = "(Protocol, Vec<Algorithm>)"
)]
pub struct Offer {
    protocol: Protocol,
    algorithms: Vec<Algorithm>,
}

/// Why a text is not an offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OfferError {
    /// No algorithm has this name.
    Unknown(String),
    /// An algorithm of this type has no place in a suite for this protocol.
    OutOfPlace(Algorithm, Protocol),
    /// A type is missing that this protocol needs.
    Missing(TransformType, Protocol),
    /// Ciphers that authenticate stand beside ciphers that do not, or beside an integrity algorithm.
    MixedWithAead,
    /// The cipher cannot protect IKE messages.
    NotForIke(Algorithm),
    /// More than 255 algorithms.
    TooMany,
}

impl Offer {
    /// Reads names with dashes between, such as `aes256gcm16-prfsha384-x25519`, or the name of a suite. Several of one
    /// type are alternatives. For IKE the pseudorandom function follows from the integrity algorithm where none is
    /// named; for ESP and AH both kinds of sequence numbers are taken where none is named, extended ones rather.
    pub fn parse(text: &str, protocol: Protocol) -> Result<Self, OfferError> {
        let text = NamedSuite::named(text).map_or(text, |suite| suite.text(protocol));
        let named = |name| {
            Algorithm::named_for(name, protocol)
                .ok_or_else(|| OfferError::Unknown(str::to_owned(name)))
        };
        let algorithms = text.split('-').map(named).collect::<Result<Vec<_>, _>>()?;
        Self::new(protocol, algorithms)
    }

    /// The offer of these algorithms, in this order, with what follows from them.
    pub fn new(protocol: Protocol, algorithms: Vec<Algorithm>) -> Result<Self, OfferError> {
        let mut offer = Self {
            protocol,
            algorithms,
        };
        offer.add_implied();
        offer.check_places()?;
        offer.check_authentication()?;
        match offer.algorithms.len() {
            ..=MAX_ALGORITHMS => Ok(offer),
            _ => Err(OfferError::TooMany),
        }
    }

    fn add_implied(&mut self) {
        if self.protocol != Protocol::IKE {
            if !self.has(TransformType::SEQUENCE_NUMBERS) {
                let both = ["esn", "noesn"].into_iter().filter_map(Algorithm::named);
                self.algorithms.extend(both);
            }
        } else if !self.has(TransformType::PRF) {
            let names = self
                .of(TransformType::INTEGRITY)
                .filter_map(|algorithm| algorithm.name());
            let prfs: Vec<_> = names
                .filter_map(|name| Algorithm::named(&format!("prf{name}")))
                .collect();
            self.algorithms.extend(prfs);
        }
    }

    fn check_places(&self) -> Result<(), OfferError> {
        use TransformType as Type;
        let (needed, allowed): (&[Type], &[Type]) = match self.protocol {
            Protocol::IKE => (
                &[Type::ENCRYPTION, Type::PRF, Type::KEY_EXCHANGE],
                &[Type::INTEGRITY],
            ),
            Protocol::AH => (
                &[Type::INTEGRITY, Type::SEQUENCE_NUMBERS],
                &[Type::KEY_EXCHANGE],
            ),
            _ => (
                &[Type::ENCRYPTION, Type::SEQUENCE_NUMBERS],
                &[Type::INTEGRITY, Type::KEY_EXCHANGE],
            ),
        };
        let is_allowed = |algorithm: &&Algorithm| {
            (needed.contains(&algorithm.kind) || allowed.contains(&algorithm.kind))
                && (self.protocol == Protocol::AH || !algorithm.is_only_for_ah())
        };
        if let Some(other) = self
            .algorithms
            .iter()
            .find(|algorithm| !is_allowed(algorithm))
        {
            return Err(OfferError::OutOfPlace(*other, self.protocol));
        }
        let missing = needed.iter().find(|kind| !self.has(**kind));
        missing.map_or(Ok(()), |kind| {
            Err(OfferError::Missing(*kind, self.protocol))
        })
    }

    fn check_authentication(&self) -> Result<(), OfferError> {
        let mut ciphers = self.of(TransformType::ENCRYPTION);
        let aead = ciphers.clone().filter(|cipher| cipher.is_aead()).count();
        let all = ciphers.clone().count();
        let is_mixed = aead > 0 && (aead < all || self.has(TransformType::INTEGRITY));
        if is_mixed {
            return Err(OfferError::MixedWithAead);
        }
        if all > 0 && aead == 0 && !self.has(TransformType::INTEGRITY) {
            return Err(OfferError::Missing(TransformType::INTEGRITY, self.protocol));
        }
        let is_unfit = |cipher: &Algorithm| {
            self.protocol == Protocol::IKE
                && cipher
                    .name()
                    .is_some_and(|name| name == "null" || name.ends_with("gmac"))
        };
        ciphers
            .find(is_unfit)
            .map_or(Ok(()), |cipher| Err(OfferError::NotForIke(cipher)))
    }

    /// IKE, ESP or AH.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The algorithms of one type, the preferred one first.
    pub fn of(&self, kind: TransformType) -> impl Iterator<Item = Algorithm> + Clone {
        self.algorithms
            .iter()
            .copied()
            .filter(move |algorithm| algorithm.kind == kind)
    }

    fn has(&self, kind: TransformType) -> bool {
        self.of(kind).next().is_some()
    }

    /// The same without groups: the first child SA has its keys from the exchange of the IKE SA (RFC 7296 1.2).
    pub fn without_key_exchange(mut self) -> Self {
        if self.protocol != Protocol::IKE {
            self.algorithms
                .retain(|algorithm| algorithm.kind != TransformType::KEY_EXCHANGE);
        }
        self
    }

    /// As it is proposed.
    pub fn proposal<'a>(&self, number: u8, spi: &'a [u8]) -> Proposal<'a> {
        let transforms = self.algorithms.iter().map(Algorithm::transform).collect();
        Proposal {
            number,
            protocol: self.protocol,
            spi,
            transforms,
        }
    }
}

impl TryFrom<(Protocol, Vec<Algorithm>)> for Offer {
    type Error = OfferError;

    fn try_from((protocol, algorithms): (Protocol, Vec<Algorithm>)) -> Result<Self, OfferError> {
        Self::new(protocol, algorithms)
    }
}

impl From<Offer> for (Protocol, Vec<Algorithm>) {
    fn from(offer: Offer) -> Self {
        (offer.protocol, offer.algorithms)
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        joined(&self.algorithms, "-").fmt(f)
    }
}

impl fmt::Display for OfferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(
                f,
                "no algorithm is called '{name}'; a suite is written like aes256gcm16-prfsha384-x25519"
            ),
            Self::OutOfPlace(algorithm, protocol) => {
                write!(f, "{algorithm} ({}) has no place in a suite for {protocol}", algorithm.kind)
            }
            Self::Missing(kind, protocol) => {
                write!(f, "a suite for {protocol} needs an algorithm for {kind}")
            }
            Self::MixedWithAead => f.write_str(
                "a cipher that authenticates by itself (GCM, CCM, ChaCha20-Poly1305) stands beside one that does not, or \
                 beside an integrity algorithm; write two suites",
            ),
            Self::NotForIke(algorithm) => {
                write!(f, "{algorithm} does not encrypt and cannot protect IKE messages")
            }
            Self::TooMany => f.write_str("a suite has at most 255 algorithms"),
        }
    }
}

impl std::error::Error for OfferError {}
