//! What an IKE SA is doing, and what it works with while it does so: data alone.

use crate::{
    connection::{ChildMode, Traffic},
    encrypted::{MessageKey, Sealer},
    endpoint::ChildId,
    identity::Identity,
    message::payload::{NotifyType, TrafficSelector},
    nat::DetectionHash,
    negotiation::Chosen,
    work::Handle,
};
use ipsec::suite::Secret;
use std::time::Duration;

/// What an IKE SA is doing.
pub(crate) enum State {
    /// IKE_SA_INIT as initiator.
    Initiating(Box<Initiating>),
    /// IKE_SA_INIT as responder: the keys are being made.
    Responding(Box<Responding>),
    /// IKE_AUTH.
    Authenticating,
    /// Both sides are authenticated.
    Established(Box<Established>),
    /// This side has sent a Delete.
    Closing(Box<Established>),
    /// It has ended, and only answers a request that comes again, until this moment.
    Lingering(Duration),
    /// To be removed.
    Gone,
}

/// What is known of an authenticated peer.
pub(crate) struct Established {
    /// The peer's identity, as text.
    pub identity: String,
    /// How it proved it.
    pub proof: String,
    pub since: Duration,
    /// When the IKE SA is rekeyed.
    pub rekey_at: Option<Duration>,
    /// When the last authentic packet came.
    pub heard_at: Duration,
    /// When children that are missing are asked for again.
    pub children_at: Option<Duration>,
}

/// The keys of an IKE SA.
pub(crate) struct SaKeys {
    pub sealer: Sealer,
    pub opener: MessageKey,
    pub sk_d: Handle,
    /// SK_pi and SK_pr, until both sides are authenticated.
    pub authentication: Option<(Secret, Secret)>,
}

/// How an IKE SA ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// An error, or no answer: another attempt follows.
    Failed(String),
    /// One side deleted it.
    Closed {
        /// Why.
        why: String,
        /// Whether the peer did.
        by_peer: bool,
    },
    /// Another IKE SA stands for it.
    Superseded,
}

/// What both sides know after IKE_SA_INIT.
#[derive(Default)]
pub(crate) struct Handshake {
    /// The whole message that this side sent: its AUTH covers it.
    pub own_message: Vec<u8>,
    /// The whole message that the peer sent.
    pub peer_message: Vec<u8>,
    pub own_nonce: Vec<u8>,
    pub peer_nonce: Vec<u8>,
    /// The peer's SIGNATURE_HASH_ALGORITHMS (RFC 7427 4).
    pub announced: Option<Vec<u16>>,
    /// Whether the peer supports IKE SAs without children (RFC 6023 3).
    pub peer_is_childless: bool,
}

/// The initiator's side, until the keys are there.
pub(crate) struct Initiating {
    pub handshake: Handshake,
    /// The group of the KE payload.
    pub group: u16,
    /// The key exchange in progress.
    pub begun: Option<Handle>,
    pub public: Vec<u8>,
    /// NAT detection hashes: the same however often the request changes.
    pub hashes: (DetectionHash, DetectionHash),
    /// The responder's cookie.
    pub cookie: Option<Vec<u8>>,
    /// How often the request was changed because the responder wanted so.
    pub restarts: u32,
    /// Why the first answer is no good. It may be forged: a better one is waited for until the request would be sent
    /// again (RFC 7296 2.21.1).
    pub refusal: Option<String>,
    /// Which child comes up with the IKE SA, and for which packet.
    pub first_child: Wanted,
}

/// The responder's side, until the keys are there.
pub(crate) struct Responding {
    pub handshake: Handshake,
    /// CERTREQ: the authorities that are trusted.
    pub authorities: Vec<u8>,
}

/// What IKE_AUTH works with.
pub(crate) struct Authenticating {
    pub handshake: Handshake,
    /// The identity that the peer claims.
    pub claimed: Option<Claimed>,
    /// The own AUTH payload: method and data.
    pub own_proof: Option<(u8, Vec<u8>)>,
    /// How the peer has proven its identity, for people.
    pub peer_proof: String,
    /// The message ID of the peer's request.
    pub request_id: Option<u32>,
    /// Whether the peer sent INITIAL_CONTACT.
    pub is_initial_contact: bool,
    /// Whether another IKE SA of the same peer carries traffic already.
    pub is_second: bool,
    pub first_child: FirstChild,
}

impl Authenticating {
    pub fn new(handshake: Handshake) -> Self {
        Self {
            handshake,
            claimed: None,
            own_proof: None,
            peer_proof: String::new(),
            request_id: None,
            is_initial_contact: false,
            is_second: false,
            first_child: FirstChild::None,
        }
    }
}

/// An identity with the octets that AUTH covers.
#[derive(Clone)]
pub(crate) struct Claimed {
    pub identity: Identity,
    /// The body of the ID payload as it came.
    pub body: Vec<u8>,
}

/// Which child comes up with the IKE SA.
#[derive(Clone, Default)]
pub(crate) struct Wanted {
    /// Its name; the first one that does not wait for traffic where there is none.
    pub child: Option<String>,
    /// The packet that needs it, from this side to the peer.
    pub packet: Option<(Traffic, Traffic)>,
}

/// How far it is.
pub(crate) enum FirstChild {
    /// None is wanted.
    None,
    /// This side asks for it.
    Offered {
        name: String,
        spi: u32,
        packet: Option<(Traffic, Traffic)>,
    },
    /// Both sides want it.
    Agreed(Box<Agreed>),
    /// It is there.
    Installed(ChildId, Box<Agreed>),
    /// The IKE SA comes up without it.
    Refused { kind: NotifyType, why: String },
    /// The responder's answer is not one to what was asked for.
    Unfit(String),
}

/// What both sides want.
pub(crate) struct Agreed {
    pub name: String,
    pub algorithms: Chosen,
    pub inbound_spi: u32,
    pub outbound_spi: u32,
    pub mode: ChildMode,
    /// The traffic of the initiator's side, and of the responder's.
    pub traffic: (Vec<TrafficSelector<'static>>, Vec<TrafficSelector<'static>>),
}
