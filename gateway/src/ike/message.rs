//! The messages between the three processes.
//!
//! ```text
//!   main     ── ToIke ──►  ike        commands, what the data plane reports, answers
//!            ◄─ FromIke ──            child SAs to install, events, reports
//!   main     ── ToKeys ──► ike-keys   pre-shared keys and private keys, which the ike process never has
//!            ◄─ FromKeys ─
//!   ike      ── (WorkId, Work) ──► ike-keys ── Done ──► ike
//! ```
//!
//! Keys are in [`FromIke::Install`], [`ToKeys`], [`FromIke::LogKeys`] and the answers of `ike-keys`. None has `Debug`.

use ikev2::certificate::Revocation;
use ikev2::connection::{Connection, Traffic};
use ikev2::endpoint::{
    ChildId, ChildSa, ChildUse, Event, LoggedKeys, PeerReport, RemoveReason, StateChange, Story,
};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use zeroize::Zeroizing;

/// From the main process to the ike process.
#[derive(Serialize, Deserialize)]
pub(crate) enum ToIke {
    /// The connections from now on: at start, and at each reload. The first message.
    Configure(Configuration),
    /// Bring this connection up.
    Up {
        /// Its name.
        connection: String,
    },
    /// Begin with this connection's peer, whose child SAs carry on without their IKE SA.
    Recover {
        /// Its name.
        connection: String,
        /// Where the peer was last.
        remote: SocketAddr,
    },
    /// Take this connection down.
    Down {
        /// Its name.
        connection: String,
    },
    /// Rekey this connection's child SAs, or its IKE SA.
    Rekey {
        /// Its name.
        connection: String,
        /// The IKE SA instead of its children.
        ike: bool,
    },
    /// A packet found no SA.
    Acquire {
        /// The connection's name.
        connection: String,
        /// The child's name.
        child: String,
        /// The packet on this side and on the peer's side.
        packet: Option<(Traffic, Traffic)>,
    },
    /// What the data plane reports about child SAs.
    ChildUse(Vec<ChildUse>),
    /// The answer to [`FromIke::Install`].
    Installed {
        /// Which.
        child: ChildId,
        /// The reason why not.
        outcome: Result<(), String>,
    },
    /// Report peers: [`FromIke::Report`].
    Report {
        /// Comes back with the answer.
        token: u64,
        /// Which.
        which: Reported,
    },
    /// The last negotiation with one peer: [`FromIke::Why`].
    Why {
        /// Comes back with the answer.
        token: u64,
        /// The connection's name.
        connection: String,
    },
    /// Answer with [`FromIke::Alive`].
    Probe,
    /// The gateway stops: every peer gets a Delete, then comes [`FromIke::Stopped`].
    Stop,
}

/// The peers of a report.
#[derive(Serialize, Deserialize)]
pub(crate) enum Reported {
    /// All of them.
    All,
    /// Those that have changed since the last report of all or of what has changed.
    Changed,
    /// Those of these names.
    Named(Vec<String>),
}

/// From the ike process to the main process.
#[derive(Serialize, Deserialize)]
pub(crate) enum FromIke {
    /// Install this pair of child SAs, then send [`ToIke::Installed`].
    Install(Box<ChildSa>),
    /// Move outbound traffic to this pair.
    UseOutbound(ChildId),
    /// Take this pair away.
    Remove {
        /// Which.
        child: ChildId,
        /// Why.
        reason: RemoveReason,
    },
    /// Something that people and programs want to know.
    Event(Event),
    /// Peers whose state has changed, without being asked: at first every peer.
    States(Vec<StateChange>),
    /// The process answers.
    Alive,
    /// Every peer, what has changed, or single ones.
    Report {
        /// Of the request.
        token: u64,
        /// Whether these are all connections.
        is_all: bool,
        /// One for each connection that is reported.
        peers: Vec<PeerReport>,
        /// What was dropped since the process started.
        dropped: IkeDrops,
    },
    /// The last negotiation.
    Why {
        /// Of the request.
        token: u64,
        /// None if there is no such connection.
        story: Option<Story>,
    },
    /// The keys of an IKE SA, where [`Configuration::log_keys`] asks for them.
    LogKeys(Box<LoggedKeys>),
    /// Nothing more is sent.
    Stopped,
}

/// What the ike process works with.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Configuration {
    /// The peers.
    pub connections: Vec<Connection>,
    /// Roots and revocation lists, by the numbers that connections have.
    pub trusted: Vec<Trusted>,
    /// The first [`ChildId`]: above all that earlier ike processes of this gateway have used.
    pub first_child: u64,
    /// Whether keys come out as [`FromIke::LogKeys`].
    pub log_keys: bool,
}

/// Trusted roots and revocation lists.
#[derive(Serialize, Deserialize)]
pub(crate) struct Trusted {
    /// As connections name them.
    pub number: u32,
    /// The files of roots, PEM or DER.
    pub roots: Vec<Vec<u8>>,
    /// The files of revocation lists, PEM or DER.
    pub lists: Vec<Vec<u8>>,
    /// How the lists are applied.
    pub revocation: Revocation,
}

/// What the ike process has dropped since it started, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct IkeDrops {
    /// Datagrams on port 4500 without the non-ESP marker, which the data plane's socket should have received.
    pub not_ike: u64,
    /// Datagrams that the system refused to send; most are sent again.
    pub unsent: u64,
    /// Requests for which there was no room in the queue of the key process or of the threads that verify.
    pub no_room: u64,
}

/// From the main process to the key process.
#[derive(Serialize, Deserialize)]
pub(crate) enum ToKeys {
    /// All secrets from now on, in place of earlier ones.
    Secrets(Vec<SecretEntry>),
}

/// A pre-shared key or a private key, by the number that connections have.
#[derive(Serialize, Deserialize)]
pub(crate) enum SecretEntry {
    /// A pre-shared key.
    SharedSecret(u32, #[serde(with = "octets")] Zeroizing<Vec<u8>>),
    /// A private key in PEM.
    PrivateKey(u32, #[serde(with = "octets")] Zeroizing<Vec<u8>>),
}

/// From the key process to the main process.
#[derive(Serialize, Deserialize)]
pub(crate) enum FromKeys {
    /// The secrets are in force.
    Ready,
}

/// Octets in one piece.
mod octets {
    use serde::{Deserialize, Deserializer, Serializer};
    use zeroize::Zeroizing;

    pub(super) fn serialize<S: Serializer>(octets: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(octets)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Zeroizing<Vec<u8>>, D::Error> {
        <&[u8]>::deserialize(from).map(|octets| Zeroizing::new(octets.to_vec()))
    }
}
