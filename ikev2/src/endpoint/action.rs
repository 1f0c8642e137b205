//! What an endpoint wants done.

use super::{ChildId, Event};
use crate::{
    connection::{ChildLifetime, ChildMode, Traffic},
    keys::IkeSpis,
    message::payload::Protocol,
    serialized,
    work::{Work, WorkId},
};
use ipsec::suite::Suite;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// What the driver does, in the order in which it comes.
pub enum Action {
    /// Send these datagrams. An unspecified address in `from`: the kernel chooses. On port 4500 the driver puts the
    /// non-ESP marker in front.
    Send {
        /// Local address and port.
        from: SocketAddr,
        /// The peer's address and port.
        to: SocketAddr,
        /// One message, in several datagrams where it is cut into fragments.
        datagrams: Vec<Vec<u8>>,
    },
    /// Do this, then give [`Input::Done`](super::Input::Done).
    Work(WorkId, Work),
    /// Install a pair of child SAs, inbound before outbound, then give [`Input::Installed`](super::Input::Installed).
    Install(Box<ChildSa>),
    /// Move outbound traffic to this child SA. The one it replaces still receives.
    UseOutbound(ChildId),
    /// Take both SAs away.
    Remove {
        /// Which.
        child: ChildId,
        /// Why.
        reason: RemoveReason,
    },
    /// The keys of an IKE SA, for a file that Wireshark reads: only where [`Settings::log_keys`] is set. Those of child
    /// SAs are in [`Action::Install`].
    ///
    /// [`Settings::log_keys`]: super::Settings::log_keys
    LogKeys(Box<LoggedKeys>),
    /// Something that people and programs want to know.
    Event(Event),
}

/// What opens the messages of an IKE SA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LoggedKeys {
    /// The SPIs.
    pub spis: IkeSpis,
    /// SK_ei and SK_ai.
    #[serde(with = "serialized::suite")]
    pub initiator: Suite,
    /// SK_er and SK_ar.
    #[serde(with = "serialized::suite")]
    pub responder: Suite,
}

/// A pair of child SAs, complete: what the data plane installs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildSa {
    /// Which.
    pub id: ChildId,
    /// The connection's name.
    pub connection: String,
    /// The child's name in it.
    pub child: String,
    /// The identity that the peer has proven, as text.
    pub peer: String,
    /// ESP or AH.
    pub protocol: Protocol,
    /// Tunnel or transport mode.
    pub mode: ChildMode,
    /// The SPI of packets that arrive here.
    pub inbound_spi: u32,
    /// The SPI of packets that leave.
    pub outbound_spi: u32,
    /// Algorithms and keys of packets that arrive here.
    #[serde(with = "serialized::suite")]
    pub inbound: Suite,
    /// Algorithms and keys of packets that leave.
    #[serde(with = "serialized::suite")]
    pub outbound: Suite,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence_numbers: bool,
    /// Packets of the replay window.
    pub replay_window: u32,
    /// The outer addresses.
    pub local: IpAddr,
    /// The outer addresses.
    pub remote: IpAddr,
    /// ESP in UDP from the first port to the second, if there is a NAT in between or it is forced.
    pub encapsulation: Option<(u16, u16)>,
    /// Whether NAT keepalives are due from this side: it is behind the NAT, or the encapsulation is forced here.
    pub sends_keepalives: bool,
    /// Traffic on this side.
    pub local_traffic: Vec<Traffic>,
    /// Traffic on the peer's side.
    pub remote_traffic: Vec<Traffic>,
    /// Limits. The time limits are also watched here: the plane reports bytes and packets, and enforces the hard ones.
    pub lifetime: ChildLifetime,
    /// Whether outbound traffic moves to it at once.
    pub outbound_state: Outbound,
    /// The pair that it replaces: it goes when [`Action::Remove`] names it.
    pub replaces: Option<ChildId>,
}

/// Whether a new outbound SA carries traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outbound {
    /// At once.
    Active,
    /// After [`Action::UseOutbound`].
    Standby,
}

/// Why a pair of child SAs is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RemoveReason {
    /// Another pair has replaced it: its inbound SA is kept for packets on their way, at least 5 s.
    Replaced,
    /// One side deleted it.
    Deleted,
    /// The peer does not answer any more.
    PeerDead,
    /// It was never complete: the exchange failed after it was installed.
    Failed,
}
