//! A data plane in memory: pairs of child SAs as the endpoint has them installed, and stamped frames that use them.

use ikev2::endpoint::{ChildId, ChildSa, Outbound};
use ipsec::suite::Suite;
use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

/// The data plane of one host.
#[derive(Default)]
pub struct Plane {
    pub pairs: BTreeMap<ChildId, Pair>,
    /// Which pair outbound frames take.
    pub outbound: Option<ChildId>,
    next_stamp: u64,
    /// The only pair that takes frames, if the others have gone without a word.
    only: Option<ChildId>,
    arrived: HashSet<u64>,
    pub counts: Counts,
}

/// A pair with what it has carried.
pub struct Pair {
    pub sa: ChildSa,
    has_received: bool,
    /// Hashes of the keys: inbound, outbound.
    keys: (u64, u64),
}

/// What became of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub sent: u64,
    /// Frames that no pair could take.
    pub refused: u64,
    pub received: u64,
    pub duplicated: u64,
    /// Frames for a pair that is not there, or that has other keys.
    pub lost: u64,
}

/// A frame on the wire.
#[derive(Clone, Debug)]
pub struct Frame {
    spi: u32,
    stamp: u64,
    keys: u64,
}

impl Plane {
    pub fn install(&mut self, sa: ChildSa) {
        let id = sa.id;
        if sa.outbound_state == Outbound::Active {
            self.outbound = Some(id);
        }
        let pair = Pair {
            has_received: false,
            keys: (hash(&sa.inbound), hash(&sa.outbound)),
            sa,
        };
        let old = self.pairs.insert(id, pair);
        assert!(old.is_none(), "{id:?} is installed twice");
    }

    pub fn use_outbound(&mut self, id: ChildId) {
        assert!(self.pairs.contains_key(&id), "{id:?} is not installed");
        self.outbound = Some(id);
    }

    /// From now on the host has this pair alone, and its endpoint does not know it.
    pub fn refuses_all_but(&mut self, id: ChildId) {
        self.only = Some(id);
    }

    pub fn remove(&mut self, id: ChildId) {
        assert!(self.pairs.remove(&id).is_some(), "{id:?} is removed twice");
        if self.outbound == Some(id) {
            self.outbound = None;
        }
    }

    /// The next frame, if there is a pair for it.
    pub fn send(&mut self) -> Option<Frame> {
        let pair = self.outbound.and_then(|id| self.pairs.get(&id));
        let Some(pair) = pair else {
            self.counts.refused += 1;
            return None;
        };
        self.counts.sent += 1;
        self.next_stamp += 1;
        Some(Frame {
            spi: pair.sa.outbound_spi,
            stamp: self.next_stamp,
            keys: pair.keys.1,
        })
    }

    /// A frame arrives. The pair is returned that has received its first one.
    pub fn receive(&mut self, frame: &Frame) -> Option<ChildId> {
        let pairs = self.pairs.iter_mut();
        let mut pairs = pairs.filter(|(_, pair)| pair.sa.inbound_spi == frame.spi);
        let Some((id, pair)) = pairs.next() else {
            self.counts.lost += 1;
            return None;
        };
        let is_gone = self.only.is_some_and(|only| only != *id);
        if is_gone || pair.keys.0 != frame.keys {
            self.counts.lost += 1;
            return None;
        }
        self.counts.received += 1;
        if !self.arrived.insert(frame.stamp) {
            self.counts.duplicated += 1;
        }
        let is_first = !std::mem::replace(&mut pair.has_received, true);
        is_first.then_some(*id)
    }
}

fn hash(suite: &Suite) -> u64 {
    let mut hasher = DefaultHasher::new();
    for key in [
        suite.encryption().map(|(_, key)| key),
        suite.integrity().map(|(_, key)| key),
    ] {
        key.map(|key| key.expose()).hash(&mut hasher);
    }
    hasher.finish()
}
