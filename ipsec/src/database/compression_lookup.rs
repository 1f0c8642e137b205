//! Which IPComp association a packet belongs to that does not name one.

use super::{SaIndex, Snapshot};
use crate::sa::Mode;
use std::net::IpAddr;

impl Snapshot {
    /// The youngest IPComp association between two hosts that carries packets in tunnel mode, or in transport mode:
    /// for packets that do not name one, because they were not compressed or name the algorithm by its well-known CPI.
    pub fn compressing(&self, ends: (IpAddr, IpAddr), in_tunnel: bool) -> Option<SaIndex> {
        let other = if in_tunnel {
            Mode::Transport
        } else {
            Mode::Tunnel
        };
        let fits = |index: &&SaIndex| self.sa(**index).config.mode != other;
        self.compressing
            .0
            .get(&ends)?
            .iter()
            .rev()
            .find(fits)
            .copied()
    }
}
