//! AGGFRAG mode outbound (RFC 9347): packets of one association share payloads, each of which goes the short road as if it
//! were one packet.
//!
//! ```text
//!   without a rate   the packets of one batch ──► Packer ──► payloads; the open one leaves with its batch
//!   with a rate      the packets of all batches ──► Packer ──► queue ──► one payload whenever it is due,
//!                                                                        padding where there is none
//! ```

use super::{OutboundBatch, Passage, Planner, Road, RoadNumber};
use crate::io::Wait;
use crate::outbound::hops::HopRange;
use crate::train::segments::Segments;
use arc_swap::ArcSwap;
use ipsec::Dropped;
use ipsec::aggfrag::{self, Packer};
use ipsec::database::{SaIndex, Snapshot};
use ipsec::sa::{Sa, SaId, SaState};
use ipsec::tunnel::Outer;
use std::collections::VecDeque;
use std::mem::take;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Bytes of payloads that may wait for their turn at a constant rate; more would only make every packet late.
const MAX_QUEUE_BYTES: usize = 1 << 20;
/// Payloads that leave in one batch after a late awakening; what is later than that is not made up for.
const MAX_LATE_PAYLOADS: usize = 64;

/// What packs, from batch to batch.
#[derive(Default)]
pub(in crate::outbound) struct Packs {
    /// Those without a rate; the first `used` belong to the batch.
    loose: Vec<Loose>,
    used: usize,
    paced: Vec<Paced>,
    /// The snapshot that `paced` was made for.
    known: Weak<Snapshot>,
    /// Payloads that waited for an association that has gone.
    orphans: u64,
    head: Vec<u8>,
    fragment: Vec<u8>,
    full: Vec<Range<usize>>,
}

struct Loose {
    sa: SaIndex,
    road: RoadNumber,
    packer: Packer,
}

/// One association with a constant rate.
struct Paced {
    id: SaId,
    state: Arc<SaState>,
    packer: Packer,
    queue: VecDeque<Vec<u8>>,
    due: Instant,
}

/// Who packs for an association.
#[derive(Clone, Copy)]
enum Seat {
    Loose(usize),
    Paced(usize),
}

impl Packs {
    /// Keeps up with the databases; how long the source may be waited for at most.
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

    /// Whether something must leave now, whatever the source has brought.
    pub fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    fn due(&self) -> Option<Instant> {
        self.paced.iter().map(|paced| paced.due).min()
    }

    /// A rate is kept from the moment on that an association is there: when traffic begins is nobody's business.
    fn follow(&mut self, snapshot: &Arc<Snapshot>) {
        self.known = Arc::downgrade(snapshot);
        let mut before = take(&mut self.paced);
        for index in outbound(snapshot) {
            let sa = snapshot.sa(index);
            let known = before.iter().position(|paced| paced.is_of(sa));
            match known {
                Some(place) => self.paced.push(before.swap_remove(place)),
                None => _ = self.pace(sa),
            }
        }
        self.orphans += before
            .iter()
            .map(|paced| paced.queue.len() as u64)
            .sum::<u64>();
    }

    /// The place of a paced association, which is made if need be; none for one without a rate.
    fn pace(&mut self, sa: &Sa) -> Option<usize> {
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

    fn loose(&mut self, index: SaIndex, road: RoadNumber, sa: &Sa, room: usize) -> usize {
        let mut used = self.loose[..self.used].iter();
        if let Some(place) = used.position(|loose| loose.sa == index) {
            return place;
        }
        let fragments = sa.config.aggfrag.is_none_or(|aggfrag| aggfrag.fragments);
        if self.used == self.loose.len() {
            let packer = Packer::new(room, fragments, false);
            self.loose.push(Loose {
                sa: index,
                road,
                packer,
            });
        }
        let loose = &mut self.loose[self.used];
        (loose.sa, loose.road) = (index, road);
        loose.packer.reshape(room, fragments);
        self.used += 1;
        self.used - 1
    }
}

/// The associations that policies and devices send through.
fn outbound(snapshot: &Snapshot) -> impl Iterator<Item = SaIndex> {
    let paths = snapshot.ways_out().flat_map(|(_, paths)| paths);
    let by_policy = paths.filter_map(|path| match *path {
        [index] => Some(index),
        _ => None,
    });
    let devices = snapshot.interfaces().iter();
    let by_device = devices.filter_map(|interface| interface.way_out);
    by_policy.chain(by_device)
}

impl Paced {
    fn is_of(&self, sa: &Sa) -> bool {
        Arc::ptr_eq(&self.state, &sa.state)
    }

    fn is_full(&self) -> bool {
        self.queue.len() * self.packer.room() > MAX_QUEUE_BYTES
    }

    /// The path or the configuration has changed: what is open leaves as it was begun.
    fn fit(&mut self, room: usize, fragments: bool) {
        if self.packer.room() != room {
            let queue = &mut self.queue;
            self.packer
                .flush(&mut |payload| queue.push_back(payload.to_vec()));
            self.packer.reshape(room, fragments);
        }
    }

    /// What is sent next.
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

impl Road {
    /// The road of everything that an association in AGGFRAG mode carries.
    pub(super) fn packed(sa: &Sa, index: SaIndex, path_mtu: usize) -> Self {
        Self {
            index,
            outer: Outer::packing(&sa.config),
            next_header: aggfrag::PROTOCOL,
            outside: 0,
            inner_mtu: match sa.config.aggfrag {
                // Whatever an IP packet can be goes on in the next payload.
                Some(aggfrag) if aggfrag.fragments => usize::from(u16::MAX),
                _ => aggfrag::room(&sa.config, path_mtu),
            },
            packs: true,
            hops: HopRange::default(),
        }
    }
}

impl<'a> Planner<'a> {
    /// Puts every packet of the item into payloads. A payload arrives in place of what it carries.
    pub(super) fn pack(&mut self, batch: &mut OutboundBatch, passage: &Passage<'_>) {
        let seat = self.seat(batch.roads[passage.road].index, passage);
        for number in 0..passage.segments.count() {
            match self.push(batch, passage, number, seat) {
                Ok(()) => {
                    batch.counts.arrived -= 1;
                    batch.counts.bytes += passage.segments.packet_len(number) as u64;
                }
                Err(reason) => {
                    passage.sa.state.count_drop(reason);
                    batch.counts.drop(reason, 1);
                }
            }
            self.send_full(batch, passage.road);
        }
    }

    fn seat(&mut self, index: SaIndex, passage: &Passage<'_>) -> Seat {
        let sa = passage.sa;
        let room = self.room(sa);
        match self.packs.pace(sa) {
            Some(place) => {
                let fragments = sa.config.aggfrag.is_none_or(|aggfrag| aggfrag.fragments);
                self.packs.paced[place].fit(room, fragments);
                Seat::Paced(place)
            }
            None => Seat::Loose(self.packs.loose(index, passage.road, sa, room)),
        }
    }

    fn room(&mut self, sa: &Sa) -> usize {
        // As policy, the path MTU may take its time.
        self.held = None;
        aggfrag::room(&sa.config, self.paths.choice(sa.config.id.destination))
    }

    fn push(
        &mut self,
        batch: &mut OutboundBatch,
        passage: &Passage<'_>,
        number: u32,
        seat: Seat,
    ) -> Result<(), Dropped> {
        let packs = &mut *self.packs;
        let item = match passage.in_fragments {
            true => {
                packs.fragment.clear();
                let item = &batch.fragments[passage.item.clone()];
                packs.fragment.extend_from_slice(item);
                &packs.fragment[..]
            }
            false => &batch.intake.bytes[passage.item.clone()],
        };
        packs.head.resize(passage.segments.head_len(), 0);
        passage.segments.write_head(item, number, &mut packs.head);
        let payload = &item[passage.segments.payload(number)];
        match seat {
            Seat::Loose(place) => {
                let (full, bytes) = (&mut packs.full, &mut batch.fragments);
                let packer = &mut packs.loose[place].packer;
                packer.push(&packs.head, payload, &mut |payload| {
                    full.push(append(bytes, payload));
                })
            }
            Seat::Paced(place) => {
                let paced = &mut packs.paced[place];
                if paced.is_full() {
                    return Err(Dropped::NoBuffer);
                }
                let queue = &mut paced.queue;
                paced.packer.push(&packs.head, payload, &mut |payload| {
                    queue.push_back(payload.to_vec());
                })
            }
        }
    }

    /// The batch is at its end: without a rate nothing waits for the next one, and with a rate what is due leaves.
    pub(super) fn finish_packs(&mut self, batch: &mut OutboundBatch) {
        for place in 0..take(&mut self.packs.used) {
            let packs = &mut *self.packs;
            let (full, bytes) = (&mut packs.full, &mut batch.fragments);
            let loose = &mut packs.loose[place];
            let road = loose.road;
            loose
                .packer
                .flush(&mut |payload| full.push(append(bytes, payload)));
            self.send_full(batch, road);
        }
        let orphans = take(&mut self.packs.orphans);
        batch.counts.arrived += orphans;
        batch.counts.drop(Dropped::NoSa, orphans);
        for place in 0..self.packs.paced.len() {
            self.send_due(batch, place);
        }
    }

    /// RFC 9347 2.4.1: one payload each interval, whether there is anything to send or not.
    fn send_due(&mut self, batch: &mut OutboundBatch, place: usize) {
        let paced = &self.packs.paced[place];
        let now = Instant::now();
        let found = self.snapshot.find(&paced.id).filter(|_| paced.due <= now);
        let Some(index) = found.filter(|index| paced.is_of(self.snapshot.sa(*index))) else {
            return;
        };
        let sa = self.snapshot.sa(index);
        let Some(aggfrag) = sa.config.aggfrag.filter(|aggfrag| aggfrag.rate > 0) else {
            return;
        };
        let interval = Duration::from_secs(1) / aggfrag.rate;
        let room = self.room(sa);
        let road = batch.roads.push(Road::packed(sa, index, 0));
        self.packs.paced[place].fit(room, aggfrag.fragments);
        for _ in 0..MAX_LATE_PAYLOADS {
            let paced = &mut self.packs.paced[place];
            if paced.due > now {
                return;
            }
            paced.due += interval;
            let range = append(&mut batch.fragments, &paced.next());
            self.send(batch, road, range);
        }
        self.packs.paced[place].due = now + interval;
    }

    fn send_full(&mut self, batch: &mut OutboundBatch, road: RoadNumber) {
        let mut full = take(&mut self.packs.full);
        for range in full.drain(..) {
            self.send(batch, road, range);
        }
        self.packs.full = full;
    }

    fn send(&mut self, batch: &mut OutboundBatch, road: RoadNumber, item: Range<usize>) {
        batch.counts.arrived += 1;
        // What is inside was counted when it was packed.
        let bytes = batch.counts.bytes;
        let payload = Passage {
            segments: Segments::of_bytes(item.len()),
            item,
            in_fragments: true,
            road,
            sa: self.snapshot.sa(batch.roads[road].index),
        };
        self.seal(batch, payload);
        batch.counts.bytes = bytes;
    }
}

fn append(bytes: &mut Vec<u8>, payload: &[u8]) -> Range<usize> {
    let start = bytes.len();
    bytes.extend_from_slice(payload);
    start..bytes.len()
}
