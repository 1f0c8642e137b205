//! Inbound: protected packets become plaintext packets and trains again.
//!
//! ```text
//!   prepare     the SA of each packet, its header parsed; a pre-check against the replay window sheds cheap floods
//!   transform   the ciphers, in place; then what follows from one packet alone: padding, ECN, inner header, policy
//!   commit      replay window and lifetimes, in order; packets of one flow become a train; one call of the sink
//!
//!   types below these steps:  packet, chain ◄── layer ◄── batch
//! ```
//!
//! AH and nested SAs are opened layer by layer. Nothing of a packet is delivered or counted as received before its ICV
//! was right and, in order, the replay window admitted it.

mod batch;
mod chain;
mod commit;
mod deadline;
mod inner;
mod layer;
mod packet;
mod policy;
mod prepare;
mod sa_id;
mod transform;

pub use batch::InboundBatch;
pub use commit::InboundCommit;
pub use prepare::InboundPrepare;

use crate::buffers::{BatchSize, Pool};
use crate::counters::Counters;
use crate::io::{PlaintextSink, ProtectedSource};
use crate::path_mtu::PathMtus;
use crate::pipeline::event::Event;
use crate::pipeline::pump::{LaneConfig, Pump};
use arc_swap::ArcSwap;
use deadline::Deadline;
use ipsec::database::Snapshot;
use std::sync::Arc;

/// What the inbound direction needs.
pub struct Inbound {
    /// Where packets come from.
    pub source: Box<dyn ProtectedSource>,
    /// Where they go.
    pub sink: Box<dyn PlaintextSink>,
    /// The databases; each batch uses the snapshot at its beginning.
    pub databases: Arc<ArcSwap<Snapshot>>,
    /// How large packets back to each peer may be: the MSS of TCP SYNs is clamped to it.
    pub paths: PathMtus,
    /// Counts of the direction.
    pub counters: Arc<Counters>,
}

/// The inbound pump.
pub type InboundPump = Pump<InboundPrepare, InboundCommit>;

impl Inbound {
    /// Connects the steps by a lane.
    pub fn pump(
        self,
        size: BatchSize,
        lane_config: &LaneConfig,
        work_ready: Arc<Event>,
    ) -> InboundPump {
        let (prepare, commit, pool) = self.steps(size, lane_config.slots + 1);
        Pump::new(prepare, commit, pool, lane_config, work_ready)
    }

    /// The first and the last step by themselves, and the pool of at most `spare` batches between them.
    pub fn steps(
        self,
        size: BatchSize,
        spare: usize,
    ) -> (InboundPrepare, InboundCommit, Arc<Pool<InboundBatch>>) {
        let (train_kinds, forwards) = (self.sink.train_kinds(), self.sink.only_forwards());
        let make = move || InboundBatch::new(size, train_kinds, forwards);
        let pool = Arc::new(Pool::new(spare, make));
        let deadline = Deadline::default();
        let prepare =
            InboundPrepare::new(self.source, self.databases, self.paths, deadline.clone());
        let commit = InboundCommit::new(self.sink, self.counters, Arc::clone(&pool), deadline);
        (prepare, commit, pool)
    }
}
