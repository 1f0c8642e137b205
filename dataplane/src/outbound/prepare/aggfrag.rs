//! AGGFRAG mode outbound (RFC 9347): packets of one SA share payloads, each of which is protected as if it were one
//! packet.
//!
//! ```text
//!   without a rate   the packets of one batch ──► Packer ──► payloads; the open one leaves with its batch
//!   with a rate      the packets of all batches ──► Packer ──► queue ──► one payload whenever it is due,
//!                                                                        padding where there is none
//! ```

use super::assign::Assigner;
use super::classify::aggfrag_plan;
use crate::buffers::append;
use crate::counters::PacketCounts;
use crate::io::Wait;
use crate::outbound::batch::Planned;
use crate::outbound::item::{ClassifiedItem, Item, PlanId};
use crate::train::segments::Segments;
use arc_swap::ArcSwap;
use ipsec::Dropped;
use ipsec::aggfrag::Packer;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::sa::{Sa, SaId, SaState};
use std::collections::VecDeque;
use std::mem::take;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Bytes of payloads that may wait for their turn at a constant rate; more would only delay every packet.
const MAX_QUEUE_BYTES: usize = 1 << 20;
/// Payloads that leave in one batch after a late wake-up; what is later than that is not made up for.
const MAX_LATE_PAYLOADS: usize = 64;

/// The packers of all SAs in AGGFRAG mode, from batch to batch.
#[derive(Default)]
pub(super) struct Packers {
    /// Those without a rate; the first `used` belong to the batch.
    unpaced: Vec<Unpaced>,
    used: usize,
    paced: Vec<Paced>,
    /// The snapshot that `paced` was made for.
    known: Weak<Snapshot>,
    /// Payloads that waited for an SA that was deleted.
    orphans: u64,
    head: Vec<u8>,
    /// A copy of the packet that is packed, where payloads are appended to the bytes that hold it.
    copy: Vec<u8>,
    full: Vec<Range<usize>>,
}

/// The packer of an SA without a rate.
struct Unpaced {
    sa: SaIndex,
    plan: PlanId,
    packer: Packer,
}

/// The packer of an SA with a constant rate.
struct Paced {
    id: SaId,
    state: Arc<SaState>,
    packer: Packer,
    queue: VecDeque<Vec<u8>>,
    due: Instant,
}

/// Which packer an SA has: its index among those with or without a rate.
#[derive(Clone, Copy)]
enum PackerSlot {
    Unpaced(usize),
    Paced(usize),
}

/// An SA whose next payload is due.
pub(super) struct Due {
    pub sa: SaIndex,
    now: Instant,
    interval: Duration,
    fragments: bool,
}

/// Where payloads go: they get sequence numbers and become items of the batch.
pub(super) struct Sealing<'b, 'a> {
    pub assigner: &'b mut Assigner<'a>,
    pub planned: &'b mut Planned,
    pub counts: &'b mut PacketCounts,
    pub payloads: &'b mut Vec<u8>,
}

impl Packers {
    /// Follows changes of the databases; returns how long the source may wait at most.
    pub fn shorten(&mut self, databases: &ArcSwap<Snapshot>, wait: Wait) -> Wait {
        let snapshot = databases.load();
        if Weak::as_ptr(&self.known) != Arc::as_ptr(&snapshot) {
            self.follow(&snapshot);
        }
        match (self.due(), wait) {
            (Some(due), Wait::AtMost(limit)) => {
                let left = due.saturating_duration_since(Instant::now());
                Wait::AtMost(limit.min(left))
            }
            (_, wait) => wait,
        }
    }

    /// Whether a payload must leave now, even if the source has no packet.
    pub fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    fn due(&self) -> Option<Instant> {
        self.paced.iter().map(|paced| paced.due).min()
    }

    /// An SA sends at its rate from the moment it exists, so that an observer cannot see when traffic begins.
    fn follow(&mut self, snapshot: &Arc<Snapshot>) {
        self.known = Arc::downgrade(snapshot);
        let mut before = take(&mut self.paced);
        for index in outbound_sas(snapshot) {
            let sa = snapshot.sa(index);
            let known = before.iter().position(|paced| paced.is_of(sa));
            match known {
                Some(place) => self.paced.push(before.swap_remove(place)),
                None => _ = self.paced_slot(sa),
            }
        }
        self.orphans += before
            .iter()
            .map(|paced| paced.queue.len() as u64)
            .sum::<u64>();
    }

    /// The index of the packer of an SA with a rate, which is made if it does not exist; none for an SA without a rate.
    fn paced_slot(&mut self, sa: &Sa) -> Option<usize> {
        let aggfrag = sa.config.aggfrag.filter(|aggfrag| aggfrag.rate > 0)?;
        let known = self.paced.iter().position(|paced| paced.is_of(sa));
        Some(known.unwrap_or_else(|| {
            self.paced.push(Paced {
                id: sa.config.id,
                state: Arc::clone(&sa.state),
                packer: Packer::new(0, aggfrag.fragments, true),
                queue: VecDeque::new(),
                due: Instant::now(),
            });
            self.paced.len() - 1
        }))
    }

    fn unpaced_slot(&mut self, index: SaIndex, plan: PlanId, sa: &Sa, room: usize) -> usize {
        let mut used = self.unpaced[..self.used].iter();
        if let Some(place) = used.position(|unpaced| unpaced.sa == index) {
            return place;
        }
        let fragments = sa.config.aggfrag.is_none_or(|aggfrag| aggfrag.fragments);
        if self.used == self.unpaced.len() {
            let packer = Packer::new(room, fragments, false);
            self.unpaced.push(Unpaced {
                sa: index,
                plan,
                packer,
            });
        }
        let unpaced = &mut self.unpaced[self.used];
        (unpaced.sa, unpaced.plan) = (index, plan);
        unpaced.packer.reconfigure(room, fragments);
        self.used += 1;
        self.used - 1
    }

    /// The packer of the item's SA, for payloads of `room` bytes.
    fn slot(&mut self, index: SaIndex, classified: &ClassifiedItem<'_>, room: usize) -> PackerSlot {
        let sa = classified.sa;
        match self.paced_slot(sa) {
            Some(place) => {
                let fragments = sa.config.aggfrag.is_none_or(|aggfrag| aggfrag.fragments);
                self.paced[place].fit(room, fragments);
                PackerSlot::Paced(place)
            }
            None => PackerSlot::Unpaced(self.unpaced_slot(index, classified.plan, sa, room)),
        }
    }

    /// Puts every packet of the item into payloads of `room` bytes. A payload counts as arrived in place of its
    /// packets.
    pub fn pack(
        &mut self,
        intake: &[u8],
        classified: &ClassifiedItem<'_>,
        room: usize,
        sealing: &mut Sealing<'_, '_>,
    ) {
        let slot = self.slot(sealing.planned.plans[classified.plan].sa, classified, room);
        for number in 0..classified.item.segments.count() {
            match self.push(intake, sealing.payloads, &classified.item, number, slot) {
                Ok(()) => {
                    sealing.counts.arrived -= 1;
                    sealing.counts.bytes += classified.item.segments.packet_len(number) as u64;
                }
                Err(reason) => {
                    classified.sa.state.count_drop(reason);
                    sealing.counts.drop(reason, 1);
                }
            }
            self.send_full(sealing, classified.plan);
        }
    }

    fn push(
        &mut self,
        intake: &[u8],
        payloads: &mut Vec<u8>,
        item: &Item,
        number: u32,
        slot: PackerSlot,
    ) -> Result<(), Dropped> {
        let bytes = if item.is_made {
            self.copy.clear();
            self.copy.extend_from_slice(&payloads[item.range.clone()]);
            &self.copy[..]
        } else {
            &intake[item.range.clone()]
        };
        self.head.resize(item.segments.head_len(), 0);
        item.segments.write_head(bytes, number, &mut self.head);
        let payload = &bytes[item.segments.payload(number)];
        match slot {
            PackerSlot::Unpaced(place) => {
                let full = &mut self.full;
                let packer = &mut self.unpaced[place].packer;
                packer.push(&self.head, payload, &mut |payload| {
                    full.push(append(payloads, payload));
                })
            }
            PackerSlot::Paced(place) => {
                let paced = &mut self.paced[place];
                if paced.is_full() {
                    return Err(Dropped::NoBuffer);
                }
                let queue = &mut paced.queue;
                paced.packer.push(&self.head, payload, &mut |payload| {
                    queue.push_back(payload.to_vec());
                })
            }
        }
    }

    /// Sends what SAs without a rate still have in their packers.
    pub fn flush(&mut self, sealing: &mut Sealing<'_, '_>) {
        for place in 0..take(&mut self.used) {
            let (full, payloads) = (&mut self.full, &mut *sealing.payloads);
            let unpaced = &mut self.unpaced[place];
            let plan = unpaced.plan;
            unpaced
                .packer
                .flush(&mut |payload| full.push(append(payloads, payload)));
            self.send_full(sealing, plan);
        }
    }

    /// How many payloads waited for SAs that were deleted since the last call.
    pub fn take_orphans(&mut self) -> u64 {
        take(&mut self.orphans)
    }

    /// How many SAs have a rate.
    pub fn paced_count(&self) -> usize {
        self.paced.len()
    }

    /// The SA with a rate of this index, if a payload of it is due.
    pub fn due_sa(&self, index: usize, snapshot: &Snapshot) -> Option<Due> {
        let paced = &self.paced[index];
        let now = Instant::now();
        let found = snapshot.find(&paced.id).filter(|_| paced.due <= now);
        let sa = found.filter(|sa| paced.is_of(snapshot.sa(*sa)))?;
        let aggfrag = snapshot.sa(sa).config.aggfrag;
        let aggfrag = aggfrag.filter(|aggfrag| aggfrag.rate > 0)?;
        Some(Due {
            sa,
            now,
            interval: Duration::from_secs(1) / aggfrag.rate,
            fragments: aggfrag.fragments,
        })
    }

    /// RFC 9347 2.4.1: one payload each interval, whether there is anything to send or not.
    pub fn send_due(
        &mut self,
        index: usize,
        due: &Due,
        room: usize,
        sealing: &mut Sealing<'_, '_>,
    ) {
        let sa = sealing.assigner.sa(due.sa);
        let plan = sealing.planned.plans.push(aggfrag_plan(sa, due.sa, 0));
        self.paced[index].fit(room, due.fragments);
        for _ in 0..MAX_LATE_PAYLOADS {
            let paced = &mut self.paced[index];
            if paced.due > due.now {
                return;
            }
            paced.due += due.interval;
            let range = append(sealing.payloads, &paced.next());
            sealing.send(plan, range);
        }
        self.paced[index].due = due.now + due.interval;
    }

    fn send_full(&mut self, sealing: &mut Sealing<'_, '_>, plan: PlanId) {
        for range in self.full.drain(..) {
            sealing.send(plan, range);
        }
    }
}

impl Sealing<'_, '_> {
    /// Assigns a sequence number to one payload.
    fn send(&mut self, plan: PlanId, range: Range<usize>) {
        self.counts.arrived += 1;
        // The bytes inside were counted when they were packed.
        let bytes = self.counts.bytes;
        let payload = ClassifiedItem {
            item: Item {
                segments: Segments::of_bytes(range.len()),
                range,
                is_made: true,
            },
            plan,
            sa: self.assigner.sa(self.planned.plans[plan].sa),
        };
        self.assigner.assign(self.planned, self.counts, &payload);
        self.counts.bytes = bytes;
    }
}

impl Paced {
    fn is_of(&self, sa: &Sa) -> bool {
        Arc::ptr_eq(&self.state, &sa.state)
    }

    fn is_full(&self) -> bool {
        self.queue.len() * self.packer.capacity() > MAX_QUEUE_BYTES
    }

    /// Changes the length of payloads; the open one leaves with its old length.
    fn fit(&mut self, room: usize, fragments: bool) {
        if self.packer.capacity() != room {
            let queue = &mut self.queue;
            self.packer
                .flush(&mut |payload| queue.push_back(payload.to_vec()));
            self.packer.reconfigure(room, fragments);
        }
    }

    /// The payload that is sent next.
    fn next(&mut self) -> Vec<u8> {
        if self.queue.is_empty() {
            let queue = &mut self.queue;
            self.packer
                .flush(&mut |payload| queue.push_back(payload.to_vec()));
        }
        let payload = self.queue.pop_front();
        payload.unwrap_or_else(|| self.packer.padding())
    }
}

/// The SAs that policies and devices send through.
fn outbound_sas(snapshot: &Snapshot) -> impl Iterator<Item = SaIndex> {
    let paths = snapshot.outbound_paths().flat_map(|(_, paths)| paths);
    let by_policy = paths.filter_map(|path| match *path {
        [index] => Some(index),
        _ => None,
    });
    let devices = snapshot.interfaces().iter();
    let by_device = devices.filter_map(|interface| interface.outbound_sa);
    by_policy.chain(by_device)
}
