//! What each packet takes from its SAs, in order: sequence number and IV; and where its bytes will lie.

use super::nested::{Refusal, Unprotected};
use crate::counters::PacketCounts;
use crate::iv::IvSource;
use crate::outbound::batch::{EspItem, OutputBuffer, Planned, SequenceReservation};
use crate::outbound::chain::ChainLayer;
use crate::outbound::item::ClassifiedItem;
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::esp::sealed_len;
use ipsec::sa::{LockedState, Sa, SequenceNumber};
use multibuffer::Iv;
use std::ops::Range;

/// Assigns sequence numbers and IVs for one batch.
pub(super) struct Assigner<'a> {
    snapshot: &'a Snapshot,
    ivs: &'a mut IvSource,
    now: u64,
    /// The SA used last, whose state stays locked for a run of its packets.
    locked: Option<(SaIndex, LockedState<'a>)>,
}

impl<'a> Assigner<'a> {
    pub fn new(snapshot: &'a Snapshot, ivs: &'a mut IvSource, now: u64) -> Self {
        Self {
            snapshot,
            ivs,
            now,
            locked: None,
        }
    }

    /// An SA of the snapshot.
    pub fn sa(&self, index: SaIndex) -> &'a Sa {
        self.snapshot.sa(index)
    }

    /// Unlocks the state of the SA used last: before another SA's is locked, and before anything that may take long.
    pub fn release(&mut self) {
        self.locked = None;
    }

    /// Assigns sequence numbers to all packets of an item with one ESP header each; to a shorter last one by itself, so
    /// that lifetimes count the bytes that are carried.
    #[inline]
    pub fn assign(
        &mut self,
        planned: &mut Planned,
        counts: &mut PacketCounts,
        classified: &ClassifiedItem<'a>,
    ) {
        let segments = &classified.item.segments;
        let count = segments.count();
        let last = count - 1;
        let even = if segments.packet_len(last) == segments.packet_len(0) {
            count
        } else {
            last
        };
        let mut assigned = self.assign_equal(planned, counts, classified, 0..even);
        if assigned == even && even < count {
            assigned += self.assign_equal(planned, counts, classified, even..count);
        }
        if assigned > 0 {
            planned.items.push(EspItem {
                item: classified.item.clone(),
                assigned,
                plan: classified.plan,
            });
        }
    }

    /// Assigns sequence numbers to packets of equal length; returns to how many. The rest is counted as dropped.
    fn assign_equal(
        &mut self,
        planned: &mut Planned,
        counts: &mut PacketCounts,
        classified: &ClassifiedItem<'a>,
        numbers: Range<u32>,
    ) -> u32 {
        let (sa, mut next) = (classified.sa, numbers.start);
        let len = classified.item.segments.packet_len(next);
        let plan = &planned.plans[classified.plan];
        let (index, plaintext_len) = (plan.sa, len - plan.outside);
        let sealed_len = sealed_len(&sa.config, plaintext_len);
        while next < numbers.end {
            let wanted = numbers.end - next;
            match self.reserve(index, sa, wanted, len) {
                Ok((first, granted)) => {
                    for step in 0..granted {
                        let sequence = SequenceNumber(first.0 + u64::from(step));
                        let reservation = SequenceReservation {
                            sequence,
                            iv: self.iv(sa),
                            plaintext_len,
                        };
                        planned.append_sealed(classified.plan, reservation, sealed_len);
                    }
                    planned.heads_len += granted as usize * classified.item.segments.head_len();
                    counts.bytes += u64::from(granted) * len as u64;
                    next += granted;
                }
                Err(reason) => {
                    counts.drop(reason, wanted.into());
                    (0..wanted).for_each(|_| sa.state.count_drop(reason));
                    break;
                }
            }
        }
        next - numbers.start
    }

    /// Reserves up to `wanted` sequence numbers for packets of `len` bytes.
    fn reserve(
        &mut self,
        index: SaIndex,
        sa: &'a Sa,
        wanted: u32,
        len: usize,
    ) -> Result<(SequenceNumber, u32), Dropped> {
        // INVARIANT: the state of one SA is unlocked before that of another is locked.
        self.locked.take_if(|(of, _)| *of != index);
        let (_, locked) = self.locked.get_or_insert_with(|| (index, sa.state.lock()));
        locked.reserve(&sa.config, wanted, len as u64, self.now)
    }

    /// The IV of the next packet, where it is random.
    #[inline]
    fn iv(&mut self, sa: &Sa) -> Iv {
        if sa.has_random_ivs() {
            sa.random_iv(&mut |bytes| self.ivs.fill(bytes))
        } else {
            Iv::default()
        }
    }

    /// Assigns the sequence numbers of all layers to every packet of an item whose plan has an SA chain.
    pub fn assign_nested(
        &mut self,
        planned: &mut Planned,
        counts: &mut PacketCounts,
        chains: &[ChainLayer],
        classified: &ClassifiedItem<'a>,
    ) {
        // INVARIANT: each layer locks its own SA's state, one at a time.
        self.release();
        let plan = &planned.plans[classified.plan];
        let (chain, writes_outer) = (plan.chain.of(chains), plan.outer.emitted_len > 0);
        let (ivs, now) = (&mut *self.ivs, self.now);
        let mut assign = |sa: &Sa, bytes| {
            let (sequence, _) = sa.state.reserve(&sa.config, 1, bytes, now)?;
            let iv = sa.iv_for(sequence, &mut |bytes| ivs.fill(bytes));
            Ok((sequence, iv))
        };
        for number in 0..classified.item.segments.count() {
            let packet = Unprotected {
                item: &classified.item,
                number,
                writes_outer,
            };
            let nested = &mut planned.nested;
            match nested.add(self.snapshot, chain, packet, &mut assign) {
                Ok(output) => {
                    let buffer = OutputBuffer::Nested(output.buffer);
                    planned.append(classified.plan, buffer, output.range);
                    counts.bytes += classified.item.segments.packet_len(number) as u64;
                }
                Err(Refusal { sa, reason }) => {
                    self.snapshot.sa(sa).state.count_drop(reason);
                    counts.drop(reason, 1);
                }
            }
        }
    }
}
