//! One inbound packet: its header as it was parsed, what transform found, and the packet inside.

use super::chain::SaChain;
use crate::train::merge::GroCandidate;
use ipsec::Dropped;
use ipsec::database::SaIndex;
use ipsec::ipcomp::InboundIpComp;
use ipsec::sa::{LockedState, Protocol, Sa, SequenceNumber};
use ipsec::{ah, esp};
use std::ops::Range;

/// One packet from SPI to ICV, on its way.
pub(super) struct InboundPacket {
    /// Where it lies in the intake: ascending from packet to packet, never overlapping.
    pub range: Range<usize>,
    /// Index of the intake's item that it came in.
    pub item: u32,
    pub sa: SaIndex,
    /// Bytes of its IP headers directly before it; 0 if they are not there.
    pub headers: u16,
    /// Its SA chain's index among the batch's, counted from 1; 0 for a single ESP header.
    pub chain: u32,
    /// The largest packet that fits the path back to the peer.
    pub inner_mtu: usize,
    pub header: LayerHeader,
    pub outcome: Outcome,
}

/// One layer's ESP, AH or IPComp header, parsed and pre-checked; its ICV is not verified.
#[derive(Clone, Debug)]
pub(super) enum LayerHeader {
    Esp(esp::InboundEsp),
    Ah(ah::InboundAh),
    IpComp(InboundIpComp),
    /// None: the packet came in the AGGFRAG payload of another one.
    Inside,
}

impl LayerHeader {
    /// Parses the ESP or AH header at the start of `packet` and looks it up in the replay window, without moving it.
    pub fn parse(sa: &Sa, packet: &[u8]) -> Result<Self, Dropped> {
        match sa.config.id.protocol {
            Protocol::Esp => esp::InboundEsp::parse(sa, packet).map(Self::Esp),
            Protocol::Ah => ah::InboundAh::parse(sa, packet).map(Self::Ah),
            Protocol::IpComp => InboundIpComp::parse(packet).map(Self::IpComp),
        }
    }

    /// The same for a packet of a run, whose SA's state is locked.
    #[inline]
    pub fn parse_locked(locked: &LockedState<'_>, sa: &Sa, packet: &[u8]) -> Result<Self, Dropped> {
        match sa.config.id.protocol {
            Protocol::Esp => esp::InboundEsp::parse_locked(locked, sa, packet).map(Self::Esp),
            Protocol::Ah => ah::InboundAh::parse_locked(locked, sa, packet).map(Self::Ah),
            // Nothing proves where such a packet comes from: it is accepted inside ESP or AH alone.
            Protocol::IpComp => Err(Dropped::PolicyMismatch),
        }
    }

    /// The full sequence number.
    pub fn sequence(&self) -> SequenceNumber {
        match self {
            Self::Esp(esp) => esp.sequence(),
            Self::Ah(ah) => ah.sequence(),
            Self::IpComp(_) | Self::Inside => SequenceNumber::default(),
        }
    }
}

/// Where a packet from inside lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerSpan {
    /// Whether it lies in the batch's rebuilt bytes instead of its intake.
    pub rebuilt: bool,
    pub start: usize,
    pub len: usize,
    /// Whether it came out of a tunnel, as a packet of its own.
    pub in_tunnel: bool,
}

/// What transform found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// Not opened.
    Pending,
    /// Its ICV is wrong: nothing else about it can be trusted.
    Forged,
    /// Authentic, and here is an AGGFRAG payload, which commit takes apart in order.
    Aggfrag(InnerSpan),
    /// Authentic, and either fit to be delivered or not.
    Genuine(Result<Inner, Dropped>),
}

/// A whole packet from inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner {
    pub rebuilt: bool,
    pub start: usize,
    pub len: usize,
    pub candidate: GroCandidate,
    /// The number of the device through which it is given to the kernel.
    pub interface: u32,
}

impl InboundPacket {
    /// A packet that came in another one's payload.
    pub fn from_payload(sa: SaIndex, inner: Inner) -> Self {
        Self {
            range: 0..0,
            item: 0,
            sa,
            headers: 0,
            chain: 0,
            inner_mtu: 0,
            header: LayerHeader::Inside,
            outcome: Outcome::Genuine(Ok(inner)),
        }
    }

    /// Its SA chain; a new one if it has none.
    pub fn chain<'a>(&mut self, chains: &'a mut Vec<SaChain>) -> &'a mut SaChain {
        if self.chain == 0 {
            chains.push(SaChain::new(self.sa));
            self.chain = chains.len() as u32;
        }
        &mut chains[self.chain as usize - 1]
    }
}
