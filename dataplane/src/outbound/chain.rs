//! The SA chain of a flow: the SAs that its packets go through, innermost first, and what each does to the headers.
//!
//! ```text
//!   packet ──► layer 0, innermost ──► layer 1 ──► … ──► the packet that leaves
//!              transport: its IP header stays outside     tunnel: a new IP header around all of it
//! ```

use ipsec::database::SaIndex;
use ipsec::sa::SaConfig;
use ipsec::transport::UnprotectedHeaders;
use ipsec::tunnel::Outer;
use std::ops::Range;

/// The most SAs that one packet goes through.
pub const MAX_NESTED_SAS: usize = 4;

/// One SA of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainLayer {
    pub sa: SaIndex,
    pub mode: LayerMode,
}

/// What a layer does to the headers.
#[derive(Clone, Copy, Debug)]
pub(super) enum LayerMode {
    /// The whole packet goes behind this header.
    Tunnel {
        outer: Outer,
        /// Next header of the packet inside: IPv4 or IPv6.
        inside: u8,
    },
    /// These headers stay outside.
    Transport(UnprotectedHeaders),
}

impl LayerMode {
    /// Bytes at the start of the packet that stay outside.
    pub fn outside(&self) -> usize {
        match self {
            Self::Tunnel { .. } => 0,
            Self::Transport(outside) => outside.len,
        }
    }

    /// The next header that ESP or AH names.
    pub fn next_header(&self) -> u8 {
        match self {
            Self::Tunnel { inside, .. } => *inside,
            Self::Transport(outside) => outside.next,
        }
    }

    /// Bytes of IP headers, and of UDP's if there is one, in front of ESP or AH.
    pub fn headers_len(&self, config: &SaConfig) -> usize {
        match self {
            Self::Tunnel { outer, .. } => outer.len(),
            Self::Transport(outside) => outside.len + config.encapsulation_len(),
        }
    }
}

/// Where the layers of one flow lie among those of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ChainRange {
    start: u32,
    count: u32,
}

impl ChainRange {
    pub fn new(range: Range<usize>) -> Self {
        Self {
            start: range.start as u32,
            count: range.len() as u32,
        }
    }

    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    pub fn of(self, layers: &[ChainLayer]) -> &[ChainLayer] {
        &layers[self.indices()]
    }

    /// Indices of its layers.
    pub fn indices(self) -> Range<usize> {
        self.start as usize..(self.start + self.count) as usize
    }
}
