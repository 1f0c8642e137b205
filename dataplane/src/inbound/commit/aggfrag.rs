//! AGGFRAG mode inbound (RFC 9347): payloads, admitted in order, become packets again, each of which is checked against
//! policy by itself.
//!
//! ```text
//!   payload ──► the SA's Receiver ──► whole packets ──► policy ──► trains
//!                    │ something is missing
//!                    └──► Deadline ──► the reading thread wakes up for it even if nothing arrives
//! ```

use crate::buffers::append;
use crate::clock;
use crate::inbound::InboundBatch;
use crate::inbound::deadline::Deadline;
use crate::inbound::inner;
use crate::inbound::packet::{InboundPacket, Inner, InnerSpan};
use crate::inbound::policy::PolicyCheck;
use crate::train::merge::Merger;
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::packet::Outline;
use ipsec::sa::SaId;
use std::ops::Range;

/// Takes payloads apart.
#[derive(Default)]
pub(super) struct Unpacker {
    deadline: Deadline,
    /// SAs that wait for a lost payload, and until when.
    waiting: Vec<(SaId, u64)>,
    /// The packets of the last payload, in the batch's rebuilt bytes, or why there is none.
    found: Vec<Result<Range<usize>, Dropped>>,
    policy: PolicyCheck,
}

/// The SA whose packets were found.
#[derive(Clone, Copy)]
struct Origin {
    sa: SaIndex,
    inner_mtu: usize,
}

impl Unpacker {
    pub fn new(deadline: Deadline) -> Self {
        Self {
            deadline,
            ..Self::default()
        }
    }

    /// A new batch, under a new snapshot.
    pub fn begin(&mut self) {
        self.policy = PolicyCheck::default();
    }

    /// Takes the payload of packet `number` apart, which its window has just admitted.
    pub fn unpack(
        &mut self,
        batch: &mut InboundBatch,
        snapshot: &Snapshot,
        number: usize,
        payload: InnerSpan,
        merger: &mut Merger,
    ) {
        let packet = &batch.packets[number];
        let sa = snapshot.sa(packet.sa);
        let origin = Origin {
            sa: packet.sa,
            inner_mtu: packet.inner_mtu,
        };
        let Some(aggfrag) = &sa.config.aggfrag else {
            return;
        };
        let sequence = packet.header.sequence();
        let bytes = &batch.intake.bytes[payload.start..payload.start + payload.len];
        let (found, rebuilt) = (&mut self.found, &mut batch.rebuilt);
        let mut out = |released: Result<&[u8], Dropped>| {
            found.push(released.map(|packet| append(rebuilt, packet)));
        };
        let now = clock::milliseconds();
        let deadline = sa.state.unpack(aggfrag, sequence, bytes, now, &mut out);
        self.wait(sa.config.id, deadline);
        // The packets inside count as arrived in place of the payload.
        batch.counts.arrived -= 1;
        self.deliver(batch, snapshot, origin, merger);
    }

    /// Stops waiting where the deadline is over, and sets the next one.
    pub fn finish(&mut self, batch: &mut InboundBatch, snapshot: &Snapshot, merger: &mut Merger) {
        if self.waiting.is_empty() {
            return;
        }
        let now = clock::milliseconds();
        for place in (0..self.waiting.len()).rev() {
            let (id, deadline) = self.waiting[place];
            if deadline > now {
                continue;
            }
            self.waiting.swap_remove(place);
            let Some(index) = snapshot.find(&id) else {
                continue;
            };
            self.stop_waiting(batch, snapshot, index, now, merger);
        }
        let next = self.waiting.iter().map(|(_, deadline)| *deadline).min();
        self.deadline.set(next);
    }

    fn stop_waiting(
        &mut self,
        batch: &mut InboundBatch,
        snapshot: &Snapshot,
        index: SaIndex,
        now: u64,
        merger: &mut Merger,
    ) {
        let sa = snapshot.sa(index);
        let Some(aggfrag) = &sa.config.aggfrag else {
            return;
        };
        let (found, rebuilt) = (&mut self.found, &mut batch.rebuilt);
        let mut out = |released: Result<&[u8], Dropped>| {
            found.push(released.map(|packet| append(rebuilt, packet)));
        };
        let deadline = sa.state.expire_unpacking(aggfrag, now, &mut out);
        self.wait(sa.config.id, deadline);
        let origin = Origin {
            sa: index,
            // Only the MSS of TCP depends on it; the path MTU is looked up for packets that arrive.
            inner_mtu: usize::from(u16::MAX),
        };
        self.deliver(batch, snapshot, origin, merger);
    }

    fn wait(&mut self, id: SaId, deadline: Option<u64>) {
        self.waiting.retain(|(waiting, _)| *waiting != id);
        self.waiting.extend(deadline.map(|deadline| (id, deadline)));
    }

    /// Passes on the packets that were found.
    fn deliver(
        &mut self,
        batch: &mut InboundBatch,
        snapshot: &Snapshot,
        origin: Origin,
        merger: &mut Merger,
    ) {
        let mut found = std::mem::take(&mut self.found);
        for range in found.drain(..) {
            batch.counts.arrived += 1;
            let inner = range.and_then(|range| self.check(batch, snapshot, origin, range));
            match inner {
                Ok(inner) => merge(batch, origin, inner, merger),
                Err(reason) => {
                    snapshot.sa(origin.sa).state.count_drop(reason);
                    batch.counts.drop(reason, 1);
                }
            }
        }
        self.found = found;
    }

    /// RFC 4301 5.2, for each packet by itself: one payload may carry packets that policy allows and others.
    fn check(
        &mut self,
        batch: &mut InboundBatch,
        snapshot: &Snapshot,
        origin: Origin,
        range: Range<usize>,
    ) -> Result<Inner, Dropped> {
        let packet = &mut batch.rebuilt[range.clone()];
        let outline = Outline::read(packet).map_err(|_| Dropped::BadInner)?;
        let interface = self
            .policy
            .check(snapshot, batch.forwards, packet, &outline, origin.sa)?;
        let span = InnerSpan {
            rebuilt: true,
            start: range.start,
            len: range.len(),
            in_tunnel: true,
        };
        let (mtu, kinds) = (origin.inner_mtu, batch.train_kinds);
        Ok(inner::finish(packet, &outline, span, mtu, interface, kinds))
    }
}

/// Appends a packet that was found to those of the batch, for merging.
fn merge(batch: &mut InboundBatch, origin: Origin, inner: Inner, merger: &mut Merger) {
    batch.counts.bytes += inner.len as u64;
    let number = batch.packets.len();
    batch
        .packets
        .push(InboundPacket::from_payload(origin.sa, inner));
    merger.extend(number + 1);
    let head = |number| batch.head(number);
    merger.push(number as u32, &inner.candidate, head);
}
