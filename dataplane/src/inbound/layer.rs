//! One layer of a nested packet that is to be opened next, and the memory for all of them.

use super::packet::{InnerSpan, LayerHeader};
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::pmtu;
use ipsec::sa::Mode;
use ipsec::transport::UnprotectedHeaders;
use multibuffer::VerifyJob;
use std::ops::Range;

/// A packet and the layer of it that is opened next.
#[derive(Clone, Debug)]
pub(super) struct NestedLayer {
    /// Index of the packet in its chunk.
    pub packet: usize,
    /// The whole packet, its IP headers included.
    pub span: InnerSpan,
    /// Bytes of its headers before ESP or AH.
    pub headers: usize,
    pub sa: SaIndex,
    pub header: LayerHeader,
    /// The largest packet that fits the path back to the peer, this layer included.
    pub mtu: usize,
    pub state: LayerState,
}

/// What is known of a layer's ICV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LayerState {
    Pending,
    Genuine,
    Failed(Dropped),
}

/// The layers of one chunk of packets. Its memory is reused.
#[derive(Default)]
pub(super) struct NestedLayers {
    pub current: Vec<NestedLayer>,
    /// The layers inside those that are open.
    pub next: Vec<NestedLayer>,
    /// Headers in the form that AH's ICV covers.
    pub covered: Vec<u8>,
    pub verify_jobs: Vec<VerifyJob<'static>>,
}

impl NestedLayer {
    /// From ESP or AH to the end.
    pub fn body(&self) -> Range<usize> {
        self.span.start + self.headers..self.span.start + self.span.len
    }

    /// Bytes of the headers that AH's ICV covers; 0 for ESP.
    pub fn covered_len(&self) -> usize {
        match &self.header {
            LayerHeader::Ah(ah) => self.headers + ah.header_len(),
            LayerHeader::Esp(_) | LayerHeader::IpComp(_) | LayerHeader::Inside => 0,
        }
    }

    /// The largest packet inside this layer that fits the path back to the peer.
    pub fn mtu_inside(&self, snapshot: &Snapshot) -> usize {
        let config = &snapshot.sa(self.sa).config;
        let outside = match config.mode {
            Mode::Tunnel => None,
            _ => Some(UnprotectedHeaders::plain(config.id.destination.is_ipv6(), 0).len),
        };
        pmtu::bundle_mtu(std::iter::once((config, outside)), self.mtu)
    }
}
