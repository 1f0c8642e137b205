//! What is known about each peer: its state, and its last negotiation as a story.

use super::ChildId;
use crate::child_sa::Stage;
use crate::connection::{ChildMode, Traffic};
use crate::message::payload::Protocol;
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, time::Duration};

/// One connection at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerReport {
    /// Its name.
    pub connection: String,
    /// Whether it is up.
    pub state: PeerState,
    /// Its IKE SAs: one, several where any peer may use the connection, or during a rekey.
    pub ike: Vec<IkeReport>,
}

/// Whether a connection is up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerState {
    /// Neither up nor on the way.
    Down {
        /// Why: the last failure, or that nothing has begun yet.
        why: String,
        /// Until the next attempt.
        next_in: Option<Duration>,
    },
    /// An attempt is on the way.
    Connecting {
        /// The address.
        remote: SocketAddr,
        /// What is waited for.
        step: String,
        /// Why the last attempt failed.
        last_failure: Option<String>,
    },
    /// The peer is authenticated.
    Up,
}

/// The state that a connection has come to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateChange {
    /// The connection's name.
    pub connection: String,
    /// Its state now.
    pub state: PeerState,
}

/// One IKE SA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IkeReport {
    /// The initiator's and the responder's SPI.
    pub spis: ([u8; 8], [u8; 8]),
    /// Whether this side began it.
    pub is_initiator: bool,
    /// The peer's identity.
    pub identity: String,
    /// How the peer proved it.
    pub proof: String,
    /// The local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// The algorithms.
    pub suite: String,
    /// Whether a NAT is in front of this side, and of the peer.
    pub nat: (bool, bool),
    /// Since it is up.
    pub age: Duration,
    /// Until it is rekeyed.
    pub rekey_in: Option<Duration>,
    /// Its child SAs.
    pub children: Vec<ChildReport>,
}

/// One pair of child SAs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildReport {
    /// Which.
    pub id: ChildId,
    /// The child's name.
    pub child: String,
    /// ESP or AH.
    pub protocol: Protocol,
    /// Tunnel or transport mode.
    pub mode: ChildMode,
    /// The SPIs of packets that arrive, and of those that leave.
    pub spis: (u32, u32),
    /// The algorithms.
    pub suite: String,
    /// Traffic on this side, and on the peer's.
    pub traffic: (Vec<Traffic>, Vec<Traffic>),
    /// Since it is up.
    pub age: Duration,
    /// Until it is rekeyed.
    pub rekey_in: Option<Duration>,
    /// Where it is in its life.
    pub stage: Stage,
}

/// The last negotiation with a peer, in steps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Story {
    /// The connection's name.
    pub connection: String,
    /// What happened, the oldest first.
    pub steps: Vec<StoryStep>,
}

/// One step of a negotiation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoryStep {
    /// How long ago.
    pub ago: Duration,
    /// Whether it ended the attempt.
    pub is_failure: bool,
    /// What happened. It may have several lines.
    pub text: String,
}
