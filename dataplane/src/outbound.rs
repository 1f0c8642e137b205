//! Outbound: plaintext packets and trains become protected packets for their peers.
//!
//! ```text
//!   prepare     policy, path MTU, sequence numbers and IVs for whole trains at once; where each packet will lie
//!   transform   ESP headers, segments' heads and checksums, then the ciphers, straight from the super-packet into the buffer sent
//!   commit      one call of the sink, counters
//! ```
//!
//! What was planned for equal packets of one peer lies end to end and leaves as one parcel (UDP GSO). Packets of one
//! ESP association take the short road of `plan` and `batch`; AH, bundles and rare headers go through `layers`.

mod batch;
mod commit;
mod hops;
mod layers;
mod plan;

pub use batch::OutboundBatch;
pub use commit::OutboundCommit;
pub use hops::MAX_NESTED_SAS;

use crate::buffers::{BatchSize, Pool};
use crate::clock;
use crate::counters::Counters;
use crate::io::{PlaintextSink, PlaintextSource, ProtectedSink, Wait};
use crate::iv::IvSource;
use crate::notice::Hook;
use crate::path_mtu::PathMtus;
use crate::pipeline::event::Event;
use crate::pipeline::pump::{LaneConfig, Prepare, Pump};

use arc_swap::ArcSwap;
use ipsec::database::Snapshot;
use ipsec::fragment::{Limits, Reassembler};
use std::io;
use std::sync::Arc;

/// What an outbound direction works with.
pub struct Outbound {
    /// Where packets come from.
    pub source: Box<dyn PlaintextSource>,
    /// Where they go.
    pub sink: Box<dyn ProtectedSink>,
    /// Where a sender is told that its packet was too big; without it nobody is told.
    pub replies: Option<Box<dyn PlaintextSink>>,
    /// The databases; each batch keeps to the snapshot of its beginning.
    pub databases: Arc<ArcSwap<Snapshot>>,
    /// IVs for CBC suites.
    pub ivs: IvSource,
    /// How large packets to each peer may be.
    pub paths: PathMtus,
    /// Who hears of traffic that asks for an association.
    pub hook: Hook,
    /// The numbers.
    pub counters: Arc<Counters>,
}

/// The outbound pump.
pub type OutboundPump = Pump<OutboundPrepare, OutboundCommit>;

impl Outbound {
    /// Puts the direction together.
    pub fn pump(self, size: BatchSize, lane_config: &LaneConfig, bell: Arc<Event>) -> OutboundPump {
        let (prepare, commit, pool) = self.steps(size, lane_config.slots + 1);
        Pump::new(prepare, commit, pool, lane_config, bell)
    }

    /// The first and the last step by themselves, and the pool of at most `spare` batches between them.
    pub fn steps(
        self,
        size: BatchSize,
        spare: usize,
    ) -> (OutboundPrepare, OutboundCommit, Arc<Pool<OutboundBatch>>) {
        let pool = Arc::new(Pool::new(spare, move || OutboundBatch::new(size)));
        let prepare = OutboundPrepare {
            source: self.source,
            databases: self.databases,
            ivs: self.ivs,
            paths: self.paths,
            hook: self.hook,
            partial: Reassembler::new(Limits::default()),
            hops: Vec::new(),
            packs: plan::Packs::default(),
        };
        let commit = OutboundCommit::new(self.sink, self.replies, self.counters, Arc::clone(&pool));
        (prepare, commit, pool)
    }
}

/// The first step.
pub struct OutboundPrepare {
    source: Box<dyn PlaintextSource>,
    databases: Arc<ArcSwap<Snapshot>>,
    ivs: IvSource,
    paths: PathMtus,
    hook: Hook,
    partial: Reassembler,
    /// Of the flows of one batch; empty between batches.
    hops: Vec<hops::Hop>,
    packs: plan::Packs,
}

impl Prepare for OutboundPrepare {
    type Batch = OutboundBatch;

    fn fill(&mut self, batch: &mut OutboundBatch, wait: Wait) -> io::Result<usize> {
        let wait = self.packs.shorten(&self.databases, wait);
        let count = self.source.fill(&mut batch.intake, wait)?;
        batch.interface = self.source.interface();
        Ok(count.max(usize::from(self.packs.is_due())))
    }

    fn prepare(&mut self, batch: &mut OutboundBatch) {
        let snapshot = self.databases.load_full();
        let mut planner = plan::Planner {
            snapshot: &snapshot,
            ivs: &mut self.ivs,
            paths: &mut self.paths,
            hook: &*self.hook,
            partial: &mut self.partial,
            now: clock::now(),
            interface: batch.interface,
            last: None,
            held: None,
            hops: &mut self.hops,
            packs: &mut self.packs,
        };
        planner.plan(batch);
        drop(planner);
        self.hops.clear();
        batch.snapshot = Some(snapshot);
    }
}
