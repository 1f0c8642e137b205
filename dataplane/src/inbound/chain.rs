//! The SA chain of a nested packet: the SAs that it was proven to come through, outermost first.

use crate::outbound::MAX_NESTED_SAS;
use ipsec::database::SaIndex;
use ipsec::sa::SequenceNumber;

/// The SAs of one packet whose ICVs were right. Commit checks and moves the window of each, outermost first.
#[derive(Clone, Copy, Debug)]
pub(super) struct SaChain {
    layers: [ProvenLayer; MAX_NESTED_SAS],
    depth: usize,
    /// The SA that a drop is counted for, unless one of the replay windows or lifetimes is the reason.
    pub charged: SaIndex,
}

/// One SA of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProvenLayer {
    pub sa: SaIndex,
    pub sequence: SequenceNumber,
    /// What it carried, as lifetimes count it.
    pub bytes: u64,
}

impl SaChain {
    pub fn new(charged: SaIndex) -> Self {
        let layer = ProvenLayer {
            sa: charged,
            sequence: SequenceNumber::default(),
            bytes: 0,
        };
        Self {
            layers: [layer; MAX_NESTED_SAS],
            depth: 0,
            charged,
        }
    }

    pub fn layers(&self) -> &[ProvenLayer] {
        &self.layers[..self.depth]
    }

    pub fn add(&mut self, layer: ProvenLayer) {
        // INVARIANT: no layer is opened for a chain that is full.
        self.layers[self.depth] = layer;
        self.depth += 1;
        self.charged = layer.sa;
    }

    pub fn is_full(&self) -> bool {
        self.depth == MAX_NESTED_SAS
    }
}
