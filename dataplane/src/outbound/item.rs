//! One item of the source, and the encapsulation plans of the flows of a batch.

use super::chain::ChainRange;
use crate::train::segments::Segments;
use ipsec::database::SaIndex;
use ipsec::sa::Sa;
use ipsec::tunnel::Outer;
use std::ops::{Index, Range};

/// A packet or train: where its bytes lie, and how it is segmented.
#[derive(Clone)]
pub(super) struct Item {
    pub range: Range<usize>,
    /// Whether it lies among the bytes made here instead of in the intake.
    pub is_made: bool,
    pub segments: Segments,
}

/// An item whose flow was classified.
pub(super) struct ClassifiedItem<'a> {
    pub item: Item,
    pub plan: PlanId,
    /// The innermost SA of the plan.
    pub sa: &'a Sa,
}

/// The encapsulation plan of a flow: how its packets are protected.
#[derive(Clone, Copy)]
pub(super) struct EncapPlan {
    /// The innermost SA.
    pub sa: SaIndex,
    pub outer: Outer,
    pub next_header: u8,
    /// Bytes at the start of each packet that stay outside.
    pub outside: usize,
    /// The largest packet that fits the path after encapsulation.
    pub inner_mtu: usize,
    /// Empty for a single ESP SA whose packets have no rare headers.
    pub chain: ChainRange,
    /// Whether its packets share AGGFRAG payloads.
    pub is_aggfrag: bool,
    /// Set where packets are compressed first; the innermost SA is then that of IPComp.
    pub compression: Option<CompressionPlan>,
}

/// How the packets of a flow are compressed, and by which plans they go on.
#[derive(Clone, Copy)]
pub(super) struct CompressionPlan {
    /// The new IP header of tunnel mode, as it is before a packet that is not compressed.
    pub tunnel: Option<Outer>,
    pub compressed: PlanId,
    pub plain: PlanId,
}

/// The encapsulation plans of one batch. They are large, so items and bursts name theirs by number.
#[derive(Default)]
pub(super) struct EncapPlans(Vec<EncapPlan>);

/// The number of an encapsulation plan in its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlanId(u32);

impl EncapPlans {
    pub fn push(&mut self, plan: EncapPlan) -> PlanId {
        self.0.push(plan);
        PlanId(self.0.len() as u32 - 1)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Index<PlanId> for EncapPlans {
    type Output = EncapPlan;

    fn index(&self, id: PlanId) -> &EncapPlan {
        &self.0[id.0 as usize]
    }
}
