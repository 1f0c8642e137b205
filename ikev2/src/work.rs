//! What an IKE SA needs of others: secrets, which may lie in another process, and public-key work, which takes long.
//!
//! An endpoint sends out [`Work`] and goes on when it gets [`Done`] back. All of it is plain data:
//!
//! ```text
//!   endpoint ── Work ──► Secrets::perform    pre-shared keys, private keys, SK_d, key exchanges in progress
//!            ◄── Done ─┘ Verifier::perform   trusted roots: certificates and signatures of peers, no secret
//! ```
//!
//! SK_d and private values of key exchanges stay behind a [`Handle`] in [`Secrets`].

use crate::{
    identity::Identity, keys::IkeSpis, negotiation::Chosen, serialized,
    signatures::choice::RsaPadding,
};
use ipsec::suite::{Secret, Suite};
use serde::{Deserialize, Serialize};
use std::fmt;

mod secrets;
mod verifier;

pub use secrets::Secrets;
pub use verifier::Verifier;

/// Prepares a thread for work: the library's generator of random numbers is seeded, of which each thread has its own,
/// and which otherwise delays the first work by tens of milliseconds.
pub fn prepare_thread() {
    // If it fails now, it fails again when it is needed, and is told there.
    let _ = aws_lc_rs::rand::fill(&mut [0]);
}

/// Which work was done: unique in an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct WorkId(pub u64);

/// Something that [`Secrets`] keeps: SK_d of an IKE SA, or a private value until the exchange is complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Handle(pub u64);

/// A request.
#[derive(Clone, Serialize, Deserialize)]
pub enum Work {
    /// A fresh key pair for a key exchange that this side begins: [`Output::Begun`].
    BeginExchange {
        /// The group's transform ID.
        group: u16,
    },
    /// The keys of an IKE SA, the first one's or a rekeyed one's: [`Output::IkeKeys`].
    IkeKeys {
        /// The key exchange.
        exchange: ExchangeStep,
        /// The algorithms.
        chosen: Chosen,
        /// The nonces, initiator's first.
        nonces: (Vec<u8>, Vec<u8>),
        /// The SPIs.
        spis: IkeSpis,
        /// SK_d of the IKE SA that is replaced.
        replaced: Option<Handle>,
    },
    /// The keys of a pair of child SAs: [`Output::ChildKeys`].
    ChildKeys {
        /// SK_d of the IKE SA.
        sk_d: Handle,
        /// The key exchange, if there is one.
        exchange: Option<ExchangeStep>,
        /// The algorithms.
        chosen: Chosen,
        /// The nonces, initiator's first.
        nonces: (Vec<u8>, Vec<u8>),
    },
    /// AUTH by a pre-shared key: the peer's is checked where there is one, then the own one is made where that is
    /// wanted: [`Output::Proof`].
    SharedSecret {
        /// The number of the key.
        secret: u32,
        /// The transform ID of the pseudorandom function.
        prf: u16,
        /// The peer's AUTH payload (method and data), and the octets that it covers.
        check: Option<(u8, Vec<u8>, Vec<u8>)>,
        /// The octets that the own AUTH payload covers.
        prove: Option<Vec<u8>>,
    },
    /// AUTH by a private key: [`Output::Proof`].
    Sign {
        /// The number of the key.
        key: u32,
        /// The hashes that the peer supports, if it sent them (RFC 7427 4).
        announced: Option<Vec<u16>>,
        /// How an RSA key signs.
        padding: RsaPadding,
        /// The octets that AUTH covers.
        octets: Vec<u8>,
    },
    /// Whether certificates lead to a trusted root and name the peer, and whether AUTH is a signature by its key:
    /// [`Output::Verified`]. Needs no secret.
    Verify {
        /// The number of the trusted roots.
        trust: u32,
        /// Certificates in DER, the peer's own first.
        chain: Vec<Vec<u8>>,
        /// The identity that the peer claims.
        claimed: Identity,
        /// The peer's AUTH payload: method and data.
        auth: (u8, Vec<u8>),
        /// The octets that it covers.
        octets: Vec<u8>,
    },
    /// These are not needed any more: [`Output::Forgotten`], of which nothing depends.
    Forget(Vec<Handle>),
}

/// How the shared secret of a key exchange comes about.
#[derive(Clone, Serialize, Deserialize)]
pub enum ExchangeStep {
    /// This side began it: the peer's public value completes it.
    Complete {
        /// Of [`Output::Begun`]. It is gone afterwards.
        begun: Handle,
        /// The peer's public value.
        peer: Vec<u8>,
    },
    /// The peer began it: a fresh key pair is made, and its public value comes back.
    Answer {
        /// The group's transform ID.
        group: u16,
        /// The peer's public value.
        peer: Vec<u8>,
    },
}

/// The answer to [`Work`].
#[derive(Clone, Serialize, Deserialize)]
pub enum Output {
    /// A key exchange has begun.
    Begun {
        /// By which it is completed or forgotten.
        begun: Handle,
        /// The own public value.
        public: Vec<u8>,
    },
    /// The keys of an IKE SA.
    IkeKeys(Box<IkeKeyParts>),
    /// The keys of a pair of child SAs.
    ChildKeys {
        /// The own public value, where the peer began the key exchange.
        public: Vec<u8>,
        /// For packets from the initiator of the exchange to its responder.
        #[serde(with = "serialized::suite")]
        initiator: Suite,
        /// For packets from its responder to its initiator.
        #[serde(with = "serialized::suite")]
        responder: Suite,
    },
    /// The own AUTH payload. Empty where the peer's was checked alone.
    Proof {
        /// The method.
        method: u8,
        /// The data.
        data: Vec<u8>,
    },
    /// The peer is who it claims to be.
    Verified {
        /// The algorithm of its signature, for people.
        scheme: String,
        /// The subject of its certificate.
        subject: String,
    },
    /// Handles are forgotten.
    Forgotten,
}

/// The keys of an IKE SA, but for SK_d. Zeroed when dropped.
#[derive(Clone, Serialize, Deserialize)]
pub struct IkeKeyParts {
    /// SK_d.
    pub sk_d: Handle,
    /// The own public value, where the peer began the key exchange.
    pub public: Vec<u8>,
    /// SK_ei and SK_ai.
    #[serde(with = "serialized::suite")]
    pub initiator: Suite,
    /// SK_er and SK_ar.
    #[serde(with = "serialized::suite")]
    pub responder: Suite,
    /// SK_pi.
    #[serde(with = "serialized::secret")]
    pub pi: Secret,
    /// SK_pr.
    #[serde(with = "serialized::secret")]
    pub pr: Secret,
}

/// The result of a [`Work`].
#[derive(Clone, Serialize, Deserialize)]
pub struct Done {
    /// Which work.
    pub id: WorkId,
    /// What came out.
    pub result: Result<Output, WorkError>,
}

/// Why there is no result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WorkError {
    /// No pre-shared key, private key or set of roots has this number.
    Unknown(u32),
    /// No such handle, or of another kind.
    UnknownHandle,
    /// No more handles are given out: too many exchanges are in progress.
    Full,
    /// The group or another algorithm is not one that can be computed with.
    Algorithm,
    /// The peer's public value is refused: the reason.
    KeyExchange(String),
    /// The peer does not prove its identity: the reason.
    Authentication(String),
    /// The peer's certificate is not accepted: which one, and at which check.
    Certificate(String),
    /// There is no signature that the own key makes and the peer checks: the reason.
    Signature(String),
    /// The process that should have done it has gone.
    Lost,
}

impl Work {
    /// Whether it is for [`Secrets`]; else for a [`Verifier`].
    pub fn needs_secrets(&self) -> bool {
        !matches!(self, Self::Verify { .. })
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "there is no key or set of roots number {number}"),
            Self::UnknownHandle => f.write_str("the keys of this exchange are gone"),
            Self::Full => f.write_str("too many key exchanges are in progress"),
            Self::Algorithm => f.write_str("the algorithms do not fit each other"),
            Self::KeyExchange(why)
            | Self::Authentication(why)
            | Self::Certificate(why)
            | Self::Signature(why) => f.write_str(why),
            Self::Lost => f.write_str("the process that keeps the keys ended before it answered"),
        }
    }
}

impl std::error::Error for WorkError {}

#[cfg(test)]
mod tests;
