//! Packets that need more than one ESP header: AH, several SAs, IP headers that are written here.
//!
//! Prepare assigns sequence numbers to all layers of a packet and lays out its buffers; transform then runs *stage*
//! after stage, each of which is one call of the ciphers for many packets. ESP encrypts from one buffer into the other;
//! the AH around it is put in front of it where it lies.
//!
//! ```text
//!   stage 0   super-packet ──seal──► buffer 0   [ room │ AH │ IP │ ESP ............ ]   ◄─sign── once for each AH
//!   stage 1   buffer 0 ─────seal──► buffer 1   [ room │ IP │ ESP ................. ]
//!   stage 2   buffer 1 ─────seal──► buffer 0   …
//! ```
//!
//! All memory is reused from batch to batch.

use super::chain::LayerMode;
use super::item::Item;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::sa::{Protocol, Sa, SequenceNumber};
use ipsec::{ah, esp};
use multibuffer::{Iv, SealJob, SignJob};
use std::ops::Range;

/// The nested packets of a batch.
#[derive(Default)]
pub(super) struct NestedPackets {
    pub packets: Vec<NestedPacket>,
    /// The layers of all packets, innermost first.
    pub layers: Vec<PacketLayer>,
    /// Bytes laid out in each buffer.
    pub used: [usize; 2],
    pub heads_len: usize,
    pub covered_len: usize,
    pub buffers: [Vec<u8>; 2],
    /// Heads of segments.
    pub heads: Vec<u8>,
    /// Headers in the form that AH's ICV covers.
    pub covered: Vec<u8>,
    pub seal_jobs: Vec<SealJob<'static>>,
    pub sign_jobs: Vec<SignJob<'static>>,
}

/// One packet of an item.
pub(super) struct NestedPacket {
    pub item: Item,
    /// Which segment of the item.
    pub number: u32,
    pub head: Range<usize>,
    pub layers: Range<usize>,
}

/// One layer of one packet.
pub(super) struct PacketLayer {
    pub sa: SaIndex,
    pub mode: LayerMode,
    pub header: LayerHeader,
    /// IPv4 identification of the headers that are written here.
    pub identification: u16,
    pub stage: usize,
    /// Bytes of IP headers that are written here, in front of the body.
    pub headers: usize,
    /// From the ESP or AH header to the end, in the stage's buffer.
    pub body: Range<usize>,
    /// Where the headers go in the form that AH's ICV covers.
    pub covered: Range<usize>,
}

/// The ESP or AH header that a layer adds.
pub(super) enum LayerHeader {
    Esp(esp::OutboundEsp),
    Ah(ah::OutboundAh),
}

impl LayerHeader {
    /// The header of one layer, and how many bytes the layer has from that header on.
    pub fn new(
        sa: &Sa,
        sequence: SequenceNumber,
        iv: Iv,
        next_header: u8,
        inside: usize,
    ) -> (Self, usize) {
        match sa.config.id.protocol {
            Protocol::Esp => {
                let esp = esp::OutboundEsp::new(sa, sequence, iv, next_header, inside);
                let len = esp.packet_len();
                (Self::Esp(esp), len)
            }
            // INVARIANT: compression is planned apart, and done before the first layer.
            Protocol::Ah | Protocol::IpComp => {
                let ah = ah::OutboundAh::new(&sa.config, sequence, iv, next_header);
                let len = ah.header_len() + inside;
                (Self::Ah(ah), len)
            }
        }
    }
}

impl PacketLayer {
    /// The packet after this layer, its IP headers included.
    pub fn packet(&self) -> Range<usize> {
        self.body.start - self.headers..self.body.end
    }
}

impl NestedPackets {
    pub fn clear(&mut self) {
        self.packets.clear();
        self.layers.clear();
        self.used = [0; 2];
        self.heads_len = 0;
        self.covered_len = 0;
    }

    pub fn buffer(&self, index: usize) -> &[u8] {
        &self.buffers[index]
    }

    /// How many packets go through all their stages together, so that they stay in the cache from stage to stage: as
    /// many as their ciphers need.
    pub fn jobs_at_once(&self, snapshot: &Snapshot) -> usize {
        let wanted = self
            .layers
            .iter()
            .map(|layer| snapshot.sa(layer.sa).key.jobs_at_once());
        wanted.max().unwrap_or(1)
    }
}
