//! AGGFRAG mode inbound (RFC 9347): payloads, admitted in order, become packets again, each of which is looked at as one
//! that came alone.
//!
//! ```text
//!   payload ──► the association's Receiver ──► whole packets ──► policy ──► trains
//!                    │ something is missing
//!                    └──► Deadline ──► the reading thread wakes up for it even if nothing arrives
//! ```

use super::InboundBatch;
use super::batch::{Header, Incoming, Inner, Outcome, Place};
use super::exit;
use crate::clock;
use crate::io::Wait;
use crate::syn;
use crate::train::merge::{GroCandidate, Merger};
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::packet::Outline;
use ipsec::pmtu::TcpChecksum;
use ipsec::sa::SaId;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When somebody stops waiting for a lost payload next: told by commit to the thread that reads.
#[derive(Clone)]
pub(super) struct Deadline(Arc<AtomicU64>);

/// No deadline.
const NO_DEADLINE: u64 = u64::MAX;

impl Default for Deadline {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(NO_DEADLINE)))
    }
}

impl Deadline {
    /// How long the source may be waited for at most.
    pub fn shorten(&self, wait: Wait) -> Wait {
        match (self.0.load(Ordering::Relaxed), wait) {
            (NO_DEADLINE, _) | (_, Wait::Poll) => wait,
            (deadline, Wait::AtMost(limit)) => {
                let left = deadline.saturating_sub(clock::milliseconds());
                Wait::AtMost(limit.min(Duration::from_millis(left)))
            }
        }
    }

    /// Whether it is over. Says so once.
    pub fn is_over(&self) -> bool {
        let deadline = self.0.load(Ordering::Relaxed);
        let over = deadline != NO_DEADLINE && deadline <= clock::milliseconds();
        if over {
            self.0.store(NO_DEADLINE, Ordering::Relaxed);
        }
        over
    }
}

/// Takes payloads apart.
#[derive(Default)]
pub(super) struct Unpacker {
    deadline: Deadline,
    /// Associations that wait for a lost payload, and until when.
    waiting: Vec<(SaId, u64)>,
    /// What the last payload brought: packets in the batch's rebuilt bytes, or why there is none.
    found: Vec<Result<Range<usize>, Dropped>>,
    /// The packet that policy allowed last in this batch, and by which device it went.
    allowed: Option<(Outline, SaIndex, u32)>,
}

/// Whose packets were found.
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
        self.allowed = None;
    }

    /// Takes the payload of packet `number` apart, which its window has just admitted.
    pub fn unpack(
        &mut self,
        batch: &mut InboundBatch,
        snapshot: &Snapshot,
        number: usize,
        payload: Place,
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
        let sequence = packet.received.sequence();
        let bytes = &batch.intake.bytes[payload.start..payload.start + payload.len];
        let (found, rebuilt) = (&mut self.found, &mut batch.rebuilt);
        let mut out = |released: Result<&[u8], Dropped>| {
            found.push(released.map(|packet| append(rebuilt, packet)));
        };
        let now = clock::milliseconds();
        let deadline = sa.state.unpack(aggfrag, sequence, bytes, now, &mut out);
        self.wait(sa.config.id, deadline);
        // What it carries arrives in place of the payload.
        batch.counts.arrived -= 1;
        self.deliver(batch, snapshot, origin, merger);
    }

    /// Gives up what has been waited for long enough, and tells the reading thread when to look again.
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
        self.deadline
            .0
            .store(next.unwrap_or(NO_DEADLINE), Ordering::Relaxed);
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
        let deadline = sa.state.stop_waiting(aggfrag, now, &mut out);
        self.wait(sa.config.id, deadline);
        let origin = Origin {
            sa: index,
            // Only what TCP is told of the way back depends on it; a path was looked up for packets that arrive.
            inner_mtu: usize::from(u16::MAX),
        };
        self.deliver(batch, snapshot, origin, merger);
    }

    fn wait(&mut self, id: SaId, deadline: Option<u64>) {
        self.waiting.retain(|(waiting, _)| *waiting != id);
        self.waiting.extend(deadline.map(|deadline| (id, deadline)));
    }

    /// Hands on what was found.
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
            let inner = range.and_then(|range| self.judge(batch, snapshot, origin, range));
            match inner {
                Ok(inner) => seat(batch, origin, inner, merger),
                Err(reason) => {
                    snapshot.sa(origin.sa).state.count_drop(reason);
                    batch.counts.drop(reason, 1);
                }
            }
        }
        self.found = found;
    }

    /// RFC 4301 5.2, for each packet by itself: an association's payload may carry what policy lets through and what it
    /// does not.
    fn judge(
        &mut self,
        batch: &mut InboundBatch,
        snapshot: &Snapshot,
        origin: Origin,
        range: Range<usize>,
    ) -> Result<Inner, Dropped> {
        let packet = &mut batch.rebuilt[range.clone()];
        let outline = Outline::read(packet).map_err(|_| Dropped::BadInner)?;
        let exit = self.ask_policy((snapshot, batch.forwards), &outline, origin.sa)?;
        if syn::is_syn(packet, &outline) {
            syn::clamp(packet, origin.inner_mtu, TcpChecksum::Finished);
        }
        Ok(Inner {
            candidate: GroCandidate::read(packet, &outline, batch.train_kinds).by(exit),
            len: outline.total_len,
            rebuilt: true,
            start: range.start,
            exit,
        })
    }

    /// By which device it may go. Not asked again about what differs in nothing but its length.
    fn ask_policy(
        &mut self,
        (snapshot, forwards): (&Snapshot, bool),
        outline: &Outline,
        index: SaIndex,
    ) -> Result<u32, Dropped> {
        if let Some((before, through, exit)) = &mut self.allowed {
            before.total_len = outline.total_len;
            if *through == index && before == outline {
                return Ok(*exit);
            }
        }
        let exit = exit::judge(snapshot, forwards, outline, &[index])?;
        self.allowed = Some((*outline, index, exit));
        Ok(exit)
    }
}

/// A packet found takes a place behind those that came by themselves.
fn seat(batch: &mut InboundBatch, origin: Origin, inner: Inner, merger: &mut Merger) {
    batch.counts.bytes += inner.len as u64;
    let number = batch.packets.len();
    batch.packets.push(Incoming::found(origin.sa, inner));
    merger.extend(number + 1);
    let head = |number| super::commit::head(batch, number);
    merger.push(number as u32, &inner.candidate, head);
}

impl Incoming {
    /// A packet that came in another one's payload.
    fn found(sa: SaIndex, inner: Inner) -> Self {
        Self {
            range: 0..0,
            item: 0,
            sa,
            headers: 0,
            walk: 0,
            inner_mtu: 0,
            received: Header::Inside,
            outcome: Outcome::Genuine(Ok(inner)),
        }
    }
}

fn append(bytes: &mut Vec<u8>, packet: &[u8]) -> Range<usize> {
    let start = bytes.len();
    bytes.extend_from_slice(packet);
    start..bytes.len()
}
