//! Outbound: plaintext packets and trains become protected packets for their peers.
//!
//! ```text
//!   prepare     policy, path MTU, sequence numbers and IVs for whole trains at once; where each packet will lie
//!   transform   ESP headers, heads and checksums of segments, then the ciphers, which read the super-packet in place
//!   commit      one call of the sink, counters
//!
//!   types below these steps:  compression, chain ◄── item ◄── nested ◄── batch
//! ```
//!
//! Equal packets for one peer are laid out end to end and leave as one burst (UDP GSO). Packets of a single ESP SA need
//! one header each; AH, nested SAs and rare IP headers go through `nested` in all steps.

mod batch;
mod chain;
mod commit;
mod compression;
mod item;
mod nested;
mod prepare;
mod transform;

pub use batch::OutboundBatch;
pub use chain::MAX_NESTED_SAS;
pub use commit::OutboundCommit;
pub use prepare::OutboundPrepare;

use crate::buffers::{BatchSize, Pool};
use crate::counters::Counters;
use crate::io::{PlaintextSink, PlaintextSource, ProtectedSink};
use crate::iv::IvSource;
use crate::notice::Hook;
use crate::path_mtu::PathMtus;
use crate::pipeline::event::Event;
use crate::pipeline::pump::{LaneConfig, Pump};
use arc_swap::ArcSwap;
use ipsec::database::Snapshot;
use std::sync::Arc;

/// What the outbound direction needs.
pub struct Outbound {
    /// Where packets come from.
    pub source: Box<dyn PlaintextSource>,
    /// Where they go.
    pub sink: Box<dyn ProtectedSink>,
    /// Where ICMP errors go for packets that are too big; without it none are sent.
    pub replies: Option<Box<dyn PlaintextSink>>,
    /// The databases; each batch uses the snapshot at its beginning.
    pub databases: Arc<ArcSwap<Snapshot>>,
    /// IVs for CBC suites.
    pub ivs: IvSource,
    /// How large packets to each peer may be.
    pub paths: PathMtus,
    /// Called when a packet needs an SA that does not exist.
    pub hook: Hook,
    /// Counts of the direction.
    pub counters: Arc<Counters>,
}

/// The outbound pump.
pub type OutboundPump = Pump<OutboundPrepare, OutboundCommit>;

impl Outbound {
    /// Connects the steps by a lane.
    pub fn pump(
        self,
        size: BatchSize,
        lane_config: &LaneConfig,
        work_ready: Arc<Event>,
    ) -> OutboundPump {
        let (prepare, commit, pool) = self.steps(size, lane_config.slots + 1);
        Pump::new(prepare, commit, pool, lane_config, work_ready)
    }

    /// The first and the last step by themselves, and the pool of at most `spare` batches between them.
    pub fn steps(
        self,
        size: BatchSize,
        spare: usize,
    ) -> (OutboundPrepare, OutboundCommit, Arc<Pool<OutboundBatch>>) {
        let pool = Arc::new(Pool::new(spare, move || OutboundBatch::new(size)));
        let prepare =
            OutboundPrepare::new(self.source, self.databases, self.ivs, self.paths, self.hook);
        let commit = OutboundCommit::new(self.sink, self.replies, self.counters, Arc::clone(&pool));
        (prepare, commit, pool)
    }
}
