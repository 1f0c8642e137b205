//! Whether compression is tried (RFC 3173 2.2): flows whose packets do not become shorter are left alone for a while.

use ipsec::ipcomp::Compressor;
use ipsec::packet::Outline;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Flows that are remembered. Two in one place are treated alike, which costs compression and nothing else.
const FLOWS: usize = 1024;

/// After this many packets in a row that did not become shorter the pauses grow no longer.
const MAX_FAILURES: u8 = 8;

/// The compressor of one lane, and what it knows of flows.
pub(super) struct Compression {
    pub compressor: Compressor,
    history: Box<[History]>,
    /// The packet that is worked on.
    pub packet: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct History {
    /// Packets in a row that did not become shorter.
    failures: u8,
    /// Packets that are not tried before the next one is.
    pause: u8,
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            compressor: Compressor::default(),
            history: vec![History::default(); FLOWS].into(),
            packet: Vec::new(),
        }
    }
}

impl Compression {
    /// Where the history of a flow is kept.
    pub fn flow_of(outline: &Outline) -> usize {
        let mut hasher = DefaultHasher::new();
        let Outline {
            source,
            destination,
            protocol,
            ports,
            ..
        } = outline;
        (source, destination, protocol, ports).hash(&mut hasher);
        hasher.finish() as usize % FLOWS
    }

    /// Whether the next packet of a flow is tried.
    pub fn tries(&mut self, flow: usize) -> bool {
        let history = &mut self.history[flow];
        let tries = history.pause == 0;
        history.pause = history.pause.saturating_sub(1);
        tries
    }

    /// Notes whether a packet that was tried became shorter. Of a flow that never does, 1 packet of 256 is tried.
    pub fn note(&mut self, flow: usize, is_shorter: bool) {
        let history = &mut self.history[flow];
        history.failures = if is_shorter {
            0
        } else {
            (history.failures + 1).min(MAX_FAILURES)
        };
        history.pause = ((1_u16 << history.failures) - 1) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_does_not_become_shorter_is_tried_ever_less_often_and_again_at_once_when_it_does()
    {
        let mut compression = Compression::default();
        let mut tried = 0;
        for _ in 0..2000 {
            if compression.tries(7) {
                tried += 1;
                compression.note(7, false);
            }
        }
        // 1 + 2 + 4 + … + 128 packets for the first eight, then one of 256.
        assert_eq!(tried, 8 + (2000 - 255) / 256);
        assert!(compression.tries(8), "another flow is not concerned");
        while !compression.tries(7) {}
        compression.note(7, true);
        assert!(compression.tries(7));
    }
}
