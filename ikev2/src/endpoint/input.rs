//! What an endpoint is given.

use super::ChildId;
use crate::{connection::Traffic, work::Done};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What has happened.
pub enum Input<'a> {
    /// A datagram has arrived.
    Datagram {
        /// The peer's address and port.
        from: SocketAddr,
        /// The local address and port.
        to: SocketAddr,
        /// The IKE message, without the non-ESP marker. It is decrypted in place.
        bytes: &'a mut [u8],
    },
    /// A work has finished.
    Done(Done),
    /// The time of [`Endpoint::next_at`](super::Endpoint::next_at) has come.
    Timer,
    /// Bring this connection up.
    Up {
        /// Its name.
        connection: &'a str,
    },
    /// Child SAs of this connection carry on, and the IKE SA that negotiated them is lost. This side begins, also where
    /// it otherwise waits: a peer that holds the lost one takes the tunnel down when its next request is not answered.
    /// An attempt that fails is not repeated, unless the connection is to be up anyway.
    Recover {
        /// Its name.
        connection: &'a str,
        /// Where the peer was last.
        remote: SocketAddr,
    },
    /// Take this connection down, and leave it down until `Up` or a reload.
    Down {
        /// Its name.
        connection: &'a str,
    },
    /// Rekey this connection's child SAs, or its IKE SA.
    Rekey {
        /// Its name.
        connection: &'a str,
        /// The IKE SA instead of its children.
        ike: bool,
    },
    /// A packet found no SA.
    Acquire {
        /// The connection's name.
        connection: &'a str,
        /// The child's name.
        child: &'a str,
        /// The packet on this side and on the peer's side: sent as the first selectors (RFC 7296 2.9).
        packet: Option<(Traffic, Traffic)>,
    },
    /// What the data plane reports about child SAs.
    ChildUse(&'a [ChildUse]),
    /// The data plane has installed a child SA, or not.
    Installed {
        /// Which.
        child: ChildId,
        /// The reason why not.
        outcome: Result<(), String>,
    },
    /// The gateway stops: every peer gets a Delete, and nothing is brought up any more.
    Stop,
}

/// Something that happened to a pair of child SAs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildUse {
    /// Which.
    pub child: ChildId,
    /// What.
    pub what: Use,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Use {
    /// A soft limit in bytes or packets is reached.
    SoftLimit,
    /// A hard limit is reached: it carries nothing any more.
    HardLimit,
    /// Packets have arrived since the last report: the peer lives.
    Received,
    /// The first authentic packet has arrived on its inbound SA.
    FirstReceived,
}
