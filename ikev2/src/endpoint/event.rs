//! What happens to peers, for people and programs.

use super::ChildId;
use serde::{Deserialize, Serialize};
use std::{fmt, net::SocketAddr};

/// The two ends of an IKE SA as people see them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// The connection's name.
    pub connection: String,
    /// The identity that the peer has proven.
    pub identity: String,
    /// The local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// An IKE SA is up: the peer is authenticated.
    Up {
        /// The peer.
        peer: Peer,
        /// The algorithms.
        suite: String,
        /// How the peer proved its identity.
        proof: String,
    },
    /// An IKE SA has gone, with its children.
    Down {
        /// The peer.
        peer: Peer,
        /// Why.
        reason: String,
    },
    /// An attempt failed; another one follows, if this side begins.
    Failed {
        /// The connection's name.
        connection: String,
        /// The peer's address.
        remote: SocketAddr,
        /// Why.
        reason: String,
        /// Milliseconds until the next attempt.
        next_in_ms: Option<u64>,
    },
    /// A stranger's request was refused.
    Refused {
        /// From where.
        from: SocketAddr,
        /// The connection, if one was found.
        connection: Option<String>,
        /// Why.
        reason: String,
    },
    /// A pair of child SAs is up.
    ChildUp {
        /// The peer.
        peer: Peer,
        /// The child's name.
        child: String,
        /// Which.
        id: ChildId,
        /// The algorithms.
        suite: String,
    },
    /// A pair of child SAs has gone.
    ChildDown {
        /// The peer.
        peer: Peer,
        /// The child's name.
        child: String,
        /// Which.
        id: ChildId,
        /// Why.
        reason: String,
    },
    /// A pair of child SAs has replaced another.
    ChildRekeyed {
        /// The peer.
        peer: Peer,
        /// The child's name.
        child: String,
        /// The old pair.
        old: ChildId,
        /// The new pair.
        new: ChildId,
    },
    /// An IKE SA has replaced another.
    IkeRekeyed {
        /// The peer.
        peer: Peer,
    },
    /// The peer sends from another address; its child SAs follow.
    Moved {
        /// The peer, with its new address.
        peer: Peer,
        /// Its old address.
        from: SocketAddr,
        /// The children that move to the address.
        children: Vec<ChildId>,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connection,
            identity,
            remote,
            ..
        } = self;
        write!(f, "{connection} ({identity} at {remote})")
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { peer, suite, proof } => write!(f, "{peer} is up: {suite}, {proof}"),
            Self::Down { peer, reason } => write!(f, "{peer} is down: {reason}"),
            Self::Failed {
                connection,
                remote,
                reason,
                ..
            } => write!(f, "{connection} at {remote} failed: {reason}"),
            Self::Refused { from, reason, .. } => write!(f, "refused {from}: {reason}"),
            Self::ChildUp {
                peer, child, suite, ..
            } => write!(f, "{peer}: child SA {child} is up: {suite}"),
            Self::ChildDown {
                peer,
                child,
                reason,
                ..
            } => write!(f, "{peer}: child SA {child} is down: {reason}"),
            Self::ChildRekeyed { peer, child, .. } => {
                write!(f, "{peer}: child SA {child} is rekeyed")
            }
            Self::IkeRekeyed { peer } => write!(f, "{peer}: the IKE SA is rekeyed"),
            Self::Moved { peer, from, .. } => write!(f, "{peer} has moved from {from}"),
        }
    }
}
