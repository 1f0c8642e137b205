//! The configuration of an association: fixed for its life, part of every snapshot.

use super::{Lifetimes, Offload, Protocol, Reqid, SaId};
use crate::aggfrag::Aggfrag;
use crate::selector::Selector;
use crate::suite::Suite;
use std::net::IpAddr;
use std::sync::Arc;

/// Whether the inner IP header travels inside (RFC 4301 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// Either, as the policy requires; setkey's default `any`.
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

/// Configuration of one association; it never changes.
///
/// The order is kept in memory: what every packet needs comes first (`Sa::fetch`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct SaConfig {
    /// Destination, protocol, SPI.
    pub id: SaId,
    /// Outer source address.
    pub source: IpAddr,
    /// Tunnel, transport, or the mode of the policy's template.
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
    /// Replay window in packets, 0 for no check, at most
    /// [`MAX_REPLAY_WINDOW_PACKETS`](super::replay::MAX_REPLAY_WINDOW_PACKETS).
    pub replay_window: u32,
    /// Aggregation and fragmentation of what it carries (RFC 9347); none for one inner packet in each outer one.
    pub aggfrag: Option<Aggfrag>,
    /// Algorithms and keys.
    pub suite: Suite,
    /// When it should be replaced and when it must die.
    pub lifetimes: Lifetimes,
    /// Ties it to policies with this number.
    pub reqid: Reqid,
    /// The last sequence number that an earlier incarnation used: the association continues after it. 0 for a new one.
    pub sequence: u64,
    /// Whether the keys were never used before, by the administrator's word (`-o key=fresh`).
    pub key_is_fresh: bool,
    /// The network device whose traffic it carries, independent of policies; none for an association that policies use.
    pub interface: Option<Arc<str>>,
    /// With a device: the packets that it was negotiated for, as they pass in its direction (RFC 4301 4.4.2.1); empty
    /// for any. Nothing else is sent by it, and nothing else that came by it is delivered.
    pub selectors: Arc<[Selector]>,
    /// Idle seconds after which a keepalive keeps NAT mappings open (RFC 3948 2.3); 0 for never.
    pub keepalive: u16,
    /// Idle seconds after which a dummy packet is sent (RFC 4303 2.6); 0 for never.
    pub dummy: u16,
    /// Pad AH to a multiple of 8 bytes over IPv4 too, as Linux peers without `align4` expect (RFC 4302 2.6 forbids it).
    pub ah_align8: bool,
    /// The only processor whose packets leave by it (RFC 9611); none for that of any. On the kernel's plane alone.
    pub cpu: Option<u16>,
    /// The network card that does a part of the work. On the kernel's plane alone.
    pub offload: Option<Offload>,
    /// Whether nothing is sent by it yet: policies and devices use another one until its peer is known to have the key.
    pub is_standby: bool,
    /// Whether IKE negotiated it: its keys exist in memory alone, so none of its numbers are stored, and it belongs to
    /// no setkey file.
    pub is_negotiated: bool,
}

impl SaConfig {
    /// A minimal association: any mode, native, no replay check, no lifetimes.
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
            selectors: Arc::default(),
            keepalive: 0,
            dummy: 0,
            aggfrag: None,
            ah_align8: false,
            cpu: None,
            offload: None,
            is_standby: false,
            is_negotiated: false,
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

    /// The last sequence number that the association can have (RFC 4303 2.2, 2.2.1).
    pub fn last_number(&self) -> u64 {
        // IPComp has no sequence numbers: packets are counted in their place.
        if self.esn || self.id.protocol == Protocol::IpComp {
            u64::MAX
        } else {
            u32::MAX.into()
        }
    }

    /// Whether a sequence number that comes twice could make a nonce come twice: counter modes, whose key bytes end in
    /// a salt (RFC 3686, 4106, 4309, 4543, 7634, 8750).
    pub fn nonce_is_counter(&self) -> bool {
        let encryption = self.suite.encryption().map(|(row, _)| row.salt_len);
        let integrity = self.suite.integrity().map(|(row, _)| row.salt_len);
        encryption.max(integrity).is_some_and(|len| len > 0)
    }
}
