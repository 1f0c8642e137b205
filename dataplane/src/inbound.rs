//! Inbound: protected packets become plaintext packets and trains again.
//!
//! ```text
//!   prepare     the association of each packet; a look at its replay window sheds cheap floods
//!   transform   the ciphers, in place; then what each packet alone can tell: padding, ECN, inner header, policy
//!   commit      replay window and lifetimes, in order; what belongs together becomes a train; one call of the sink
//! ```
//!
//! AH and bundles go on from `open` to `deeper`, layer by layer. Nothing of a packet is exposed, counted or believed before
//! its ICV was right and, in order, its window admitted it.

mod batch;
mod commit;
mod deeper;
mod exit;
mod look;
mod open;
mod unpack;

pub use batch::InboundBatch;
pub use commit::InboundCommit;

use crate::buffers::{BatchSize, Pool};
use crate::clock;
use crate::counters::Counters;
use crate::io::{PlaintextSink, ProtectedSource, Wait};
use crate::path_mtu::PathMtus;
use crate::pipeline::event::Event;
use crate::pipeline::pump::{LaneConfig, Prepare, Pump};
use arc_swap::ArcSwap;
use ipsec::database::Snapshot;
use std::io;
use std::sync::Arc;

/// What an inbound direction works with.
pub struct Inbound {
    /// Where packets come from.
    pub source: Box<dyn ProtectedSource>,
    /// Where they go.
    pub sink: Box<dyn PlaintextSink>,
    /// The databases; each batch keeps to the snapshot of its beginning.
    pub databases: Arc<ArcSwap<Snapshot>>,
    /// How large packets back to each peer may be, for what TCP is told.
    pub paths: PathMtus,
    /// The numbers.
    pub counters: Arc<Counters>,
}

/// The inbound pump.
pub type InboundPump = Pump<InboundPrepare, InboundCommit>;

impl Inbound {
    /// Puts the direction together.
    pub fn pump(self, size: BatchSize, lane_config: &LaneConfig, bell: Arc<Event>) -> InboundPump {
        let (prepare, commit, pool) = self.steps(size, lane_config.slots + 1);
        Pump::new(prepare, commit, pool, lane_config, bell)
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
        let deadline = unpack::Deadline::default();
        let prepare = InboundPrepare {
            source: self.source,
            databases: self.databases,
            paths: self.paths,
            deadline: deadline.clone(),
        };
        let commit = InboundCommit::new(self.sink, self.counters, Arc::clone(&pool), deadline);
        (prepare, commit, pool)
    }
}

/// The first step.
pub struct InboundPrepare {
    source: Box<dyn ProtectedSource>,
    databases: Arc<ArcSwap<Snapshot>>,
    paths: PathMtus,
    /// When packets that wait for a lost one are let go: a batch of nothing does it.
    deadline: unpack::Deadline,
}

impl Prepare for InboundPrepare {
    type Batch = InboundBatch;

    fn fill(&mut self, batch: &mut InboundBatch, wait: Wait) -> io::Result<usize> {
        let wait = self.deadline.shorten(wait);
        let count = self.source.fill(&mut batch.intake, wait)?;
        let any = self.deadline.is_over() || !batch.intake.drops.is_empty();
        Ok(count.max(usize::from(any)))
    }

    fn prepare(&mut self, batch: &mut InboundBatch) {
        let snapshot = self.databases.load_full();
        batch.now = clock::now();
        batch.counts.missed(&mut batch.intake.drops);
        look::Looker::new(&snapshot, &mut self.paths).look(batch);
        batch.snapshot = Some(snapshot);
    }
}
