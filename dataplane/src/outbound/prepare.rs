//! The first step outbound, in order: reads a batch and decides what becomes of each packet, before a byte of payload
//! is touched.
//!
//! ```text
//!   planner ──► classify ──► chain            which encapsulation plan: policy, SAs, path MTU
//!      ├──────► fragment                      too big for its path, or a fragment for transport mode
//!      ├──────► assign ────► nested           sequence numbers, IVs, where each packet will lie
//!      ├──────► compress ──► assign           packets that become shorter, or do not
//!      └──────► aggfrag ───► assign           where packets share payloads
//! ```

mod aggfrag;
mod assign;
mod chain;
mod classify;
mod compress;
mod fragment;
mod nested;
mod planner;

use super::OutboundBatch;
use super::chain::ChainLayer;
use super::compression::Compression;
use crate::clock;
use crate::io::{PlaintextSource, Wait};
use crate::iv::IvSource;
use crate::notice::Hook;
use crate::path_mtu::PathMtus;
use crate::pipeline::pump::Prepare;
use aggfrag::Packers;
use arc_swap::ArcSwap;
use ipsec::database::Snapshot;
use ipsec::fragment::{Reassembler, ReassemblyLimits};
use planner::Planner;
use std::io;
use std::sync::Arc;

/// The first step.
pub struct OutboundPrepare {
    source: Box<dyn PlaintextSource>,
    databases: Arc<ArcSwap<Snapshot>>,
    ivs: IvSource,
    paths: PathMtus,
    hook: Hook,
    /// Fragments of packets for transport mode, until they are whole.
    reassembler: Reassembler,
    /// The SA chains of the flows of one batch; empty between batches.
    chains: Vec<ChainLayer>,
    packers: Packers,
    /// Absent until the first packet that is to be compressed.
    compression: Option<Compression>,
}

impl OutboundPrepare {
    pub(super) fn new(
        source: Box<dyn PlaintextSource>,
        databases: Arc<ArcSwap<Snapshot>>,
        ivs: IvSource,
        paths: PathMtus,
        hook: Hook,
    ) -> Self {
        Self {
            source,
            databases,
            ivs,
            paths,
            hook,
            reassembler: Reassembler::new(ReassemblyLimits::default()),
            chains: Vec::new(),
            packers: Packers::default(),
            compression: None,
        }
    }
}

impl Prepare for OutboundPrepare {
    type Batch = OutboundBatch;

    fn fill(&mut self, batch: &mut OutboundBatch, wait: Wait) -> io::Result<usize> {
        let wait = self.packers.shorten(&self.databases, wait);
        let count = self.source.fill(&mut batch.intake, wait)?;
        batch.interface = self.source.interface();
        Ok(count.max(usize::from(self.packers.is_due())))
    }

    fn prepare(&mut self, batch: &mut OutboundBatch) {
        let snapshot = self.databases.load_full();
        let classifier = classify::Classifier {
            snapshot: &snapshot,
            paths: &mut self.paths,
            hook: &*self.hook,
            interface: batch.interface,
            chains: &mut self.chains,
            last: None,
        };
        let now = clock::now();
        let mut planner = Planner {
            classifier,
            assigner: assign::Assigner::new(&snapshot, &mut self.ivs, now),
            reassembler: &mut self.reassembler,
            packers: &mut self.packers,
            compression: &mut self.compression,
            now,
        };
        planner.plan(batch);
        drop(planner);
        self.chains.clear();
        batch.snapshot = Some(snapshot);
    }
}
