//! One security association: its configuration, fixed for life, apart from its state, which outlives snapshots.
//!
//! ```text
//!   SaConfig ── immutable, part of every Snapshot ──►  Sa { config, key, state: Arc<SaState> }
//!   SaState  ── sequence numbers, replay window, lifetimes, counters: shared by all snapshots that hold the SA
//! ```
//!
//! An update replaces the configuration and keeps the state; delete and add makes a new state (RFC 4301 4.4.2.1).

mod lifetime_limits;
pub mod replay;
mod state;

pub use lifetime_limits::{Lifetimes, Limits};
pub use state::{Held, Kept, LifeEvent, SaState, Tally};

use crate::aggfrag::Aggfrag;
use crate::suite::Suite;
use multibuffer::{Key, prefetch};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Security parameters index (RFC 4301 4.1). 0 never travels and 1–255 are reserved (RFC 4303 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Spi(u32);

impl Spi {
    /// SPI 0, which never travels but stands in one of the packets printed in a draft.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self(0);

    /// The SPI of this value, unless it is 0. setkey accepts 1–255 with a warning, as its users know it.
    pub fn new(value: u32) -> Option<Self> {
        (value != 0).then_some(Self(value))
    }

    /// The value.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Whether IANA reserves it (RFC 4303 2.1).
    pub fn is_reserved(self) -> bool {
        self.0 < 256
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Ties policies to associations: setkey's `-u` and `unique:N`. 0 is "none".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reqid(pub u32);

/// A sequence number in full, 64 bits when extended (RFC 4303 2.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// The half that travels.
    pub fn low(self) -> u32 {
        self.0 as u32
    }

    /// The half that does not travel but is authenticated.
    pub fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Which IPsec protocol an association speaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// Encapsulating Security Payload (RFC 4303).
    Esp,
    /// Authentication Header (RFC 4302).
    Ah,
}

impl Protocol {
    /// The IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Self::Esp => 50,
            Self::Ah => 51,
        }
    }
}

/// What an association is found by (RFC 4301 4.4.2.1; Linux and setkey always take the destination too).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SaId {
    /// Outer destination address.
    pub destination: IpAddr,
    /// ESP or AH.
    pub protocol: Protocol,
    /// The SPI the receiver chose.
    pub spi: Spi,
}

/// Whether the inner IP header travels inside (RFC 4301 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// Either, as policies ask; setkey's default `any`.
    #[default]
    Any,
    /// The upper layer alone is protected.
    Transport,
    /// A whole packet inside a new header.
    Tunnel,
}

/// ESP inside UDP (RFC 3948).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdpEncapsulation {
    /// Source port, 4500 by default.
    pub source_port: u16,
    /// Destination port, 4500 by default.
    pub destination_port: u16,
}

/// How a header field of the outer packet comes about (RFC 4301 5.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DontFragment {
    /// From the inner header; IPv6 counts as set.
    #[default]
    Copy,
    /// Always set.
    Set,
    /// Always clear.
    Clear,
}

/// How the outer DSCP comes about (RFC 2983, RFC 4301 5.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dscp {
    /// From the inner header.
    #[default]
    Copy,
    /// A fixed value, 0 to 63.
    Set(u8),
}

/// Configuration of one association; nothing here changes while it lives.
///
/// The order is kept in memory: what every packet needs comes first (`Sa::fetch`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct SaConfig {
    /// Destination, protocol, SPI.
    pub id: SaId,
    /// Outer source address.
    pub source: IpAddr,
    /// Tunnel, transport, or as the policy says.
    pub mode: Mode,
    /// ESP inside UDP, or native.
    pub encapsulation: Option<UdpEncapsulation>,
    /// Extended sequence numbers (RFC 4303 2.2.1).
    pub esn: bool,
    /// The outer DF bit.
    pub df: DontFragment,
    /// The outer DSCP.
    pub dscp: Dscp,
    /// Whether ECN is carried across the tunnel (RFC 6040 normal mode) or the outer field stays 0 (compatibility mode).
    pub ecn: bool,
    /// Pad plaintext to this many bytes where it is shorter (traffic-flow confidentiality, RFC 4303 2.7); 0 for none.
    pub tfc: u16,
    /// Replay window in packets, 0 for no check, at most [`replay::MAX_WINDOW`].
    pub replay_window: u32,
    /// Aggregation and fragmentation of what it carries (RFC 9347); none for one inner packet in each outer one.
    pub aggfrag: Option<Aggfrag>,
    /// Algorithms and keys.
    pub suite: Suite,
    /// When it should be replaced and when it must die.
    pub lifetimes: Lifetimes,
    /// Ties it to policies that ask for this number.
    pub reqid: Reqid,
    /// The last sequence number that an earlier incarnation used: the association goes on behind it. 0 for a new one.
    pub sequence: u64,
    /// Whether whoever chose the keys says that they were never used.
    pub key_is_fresh: bool,
    /// The network device whose traffic it carries, whatever policies say; none for an association that policies use.
    pub interface: Option<Arc<str>>,
    /// Idle seconds after which the peer's NAT is reminded of us (RFC 3948 2.3); 0 for never.
    pub keepalive: u16,
    /// Idle seconds after which a dummy packet is sent (RFC 4303 2.6); 0 for never.
    pub dummy: u16,
    /// Pad AH to a multiple of 8 bytes over IPv4 too, as Linux peers without `align4` want it (RFC 4302 2.6 forbids).
    pub ah_align8: bool,
    /// Whether nothing is sent by it yet: policies and devices take another one until its peer is known to have the key.
    pub is_standby: bool,
}

/// An association in use: configuration, expanded key and shared state. Where there are many, none is in a cache when its
/// packet comes, so what a packet needs lies in two places and not in a chain of them.
pub struct Sa {
    /// The configuration.
    pub config: SaConfig,
    /// The expanded key; zeroed with the last snapshot that holds it.
    pub key: Key,
    /// What outlives snapshots.
    pub state: Arc<SaState>,
}

impl Sa {
    /// A new association, added at `now`; `counter_start` is random (see [`SaState::new`]).
    pub fn new(config: SaConfig, now: u64, counter_start: u64) -> Self {
        let state = Arc::new(SaState::new(&config, now, counter_start));
        Self::with_state(config, state)
    }

    /// The association of `config` that goes on from `state`.
    pub fn with_state(config: SaConfig, state: Arc<SaState>) -> Self {
        Self {
            key: config.suite.expand(),
            config,
            state,
        }
    }
}

impl Sa {
    /// Asks for what every packet needs of the configuration. The state lies elsewhere, and the rest of the key is the
    /// ciphers' to ask for.
    pub(crate) fn fetch(&self) {
        let config = &self.config;
        prefetch(&config.id);
        prefetch(&config.mode);
        prefetch(&config.suite);
        prefetch(&self.state);
        self.key.prefetch();
    }
}

impl SaConfig {
    /// An association with nothing but the necessary: any mode, native, no replay check, no lifetimes.
    pub fn new(id: SaId, source: IpAddr, suite: Suite) -> Self {
        Self {
            id,
            source,
            mode: Mode::default(),
            suite,
            reqid: Reqid::default(),
            replay_window: 0,
            esn: false,
            sequence: 0,
            key_is_fresh: false,
            encapsulation: None,
            lifetimes: Lifetimes::default(),
            df: DontFragment::default(),
            dscp: Dscp::default(),
            ecn: true,
            tfc: 0,
            interface: None,
            keepalive: 0,
            dummy: 0,
            aggfrag: None,
            ah_align8: false,
            is_standby: false,
        }
    }

    /// Whether its explicit IV is empty because the sequence number is the IV (RFC 8750).
    pub fn has_implicit_iv(&self) -> bool {
        self.suite
            .encryption()
            .is_some_and(|(row, _)| row.iv_len == 0 && row.salt_len > 0)
    }

    /// Bytes of headers between the outer IP header and the ESP header: 8 when in UDP.
    pub fn encapsulation_len(&self) -> usize {
        if self.encapsulation.is_some() { 8 } else { 0 }
    }
}
