//! Sources and sinks in memory, for tests and benchmarks: a bounded queue that is a sink on one side and a source on
//! the other, a source that repeats the same items, and a sink that discards everything.
//!
//! ```text
//!   outbound ──► MemorySink ═ queue ═ MemorySource ──► inbound
//! ```
//!
//! The queue keeps its bytes in one ring of fixed size: nothing is allocated while packets flow.

use super::waker::wait_readable;
use super::{
    Arrival, Burst, Delivery, PlaintextSink, PlaintextSource, ProtectedSink, ProtectedSource,
    ReceiveBuffer, Sent, Wait, Waker,
};
use crate::train::{Offload, TrainKinds};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Every kind of train.
pub const ALL_TRAINS: TrainKinds = TrainKinds {
    tcp_v4: true,
    tcp_v6: true,
    udp: true,
};

/// A queue of at most `bytes` bytes in at most `items` items: its sink and its source.
pub fn queue<Meta>(
    bytes: usize,
    items: usize,
) -> io::Result<(MemorySink<Meta>, MemorySource<Meta>)> {
    let ring = Ring {
        bytes: vec![0; bytes].into_boxed_slice(),
        start: 0,
        used: 0,
        items: VecDeque::with_capacity(items),
        most_items: items,
        reader_sleeps: false,
    };
    let queue = Arc::new(Queue {
        ring: Mutex::new(ring),
        freed: Condvar::new(),
        arrived: Waker::new()?,
    });
    let sink = MemorySink {
        queue: queue.clone(),
        send_timeout: Duration::ZERO,
        takes: ALL_TRAINS,
    };
    Ok((sink, MemorySource { queue, waker: None }))
}

struct Queue<Meta> {
    ring: Mutex<Ring<Meta>>,
    /// Notified when the reader has made room.
    freed: Condvar,
    /// Ends the reader's sleep.
    arrived: Waker,
}

impl<Meta> Queue<Meta> {
    fn lock(&self) -> MutexGuard<'_, Ring<Meta>> {
        // No code panics between two changes that belong together.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Ring<Meta> {
    bytes: Box<[u8]>,
    start: usize,
    used: usize,
    items: VecDeque<(usize, Meta)>,
    most_items: usize,
    reader_sleeps: bool,
}

impl<Meta> Ring<Meta> {
    fn has_room(&self, len: usize) -> bool {
        self.items.len() < self.most_items && self.bytes.len() - self.used >= len
    }

    fn push<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>, note: Meta) {
        let before = self.used;
        for piece in pieces {
            let at = (self.start + self.used) % self.bytes.len().max(1);
            let first = piece.len().min(self.bytes.len() - at);
            self.bytes[at..at + first].copy_from_slice(&piece[..first]);
            self.bytes[..piece.len() - first].copy_from_slice(&piece[first..]);
            self.used += piece.len();
        }
        self.items.push_back((self.used - before, note));
    }

    /// Moves what fits into the buffer.
    fn pop_into(&mut self, buffer: &mut ReceiveBuffer<Meta>) -> usize {
        let mut moved = 0;
        while let Some(&(len, _)) = self.items.front() {
            if buffer.free_items() == 0 || buffer.free_bytes().len() < len {
                break;
            }
            let first = len.min(self.bytes.len() - self.start);
            let room = &mut buffer.free_bytes()[..len];
            room[..first].copy_from_slice(&self.bytes[self.start..self.start + first]);
            room[first..].copy_from_slice(&self.bytes[..len - first]);
            if let Some((_, note)) = self.items.pop_front() {
                buffer.push(len, note);
            }
            self.start = (self.start + len) % self.bytes.len().max(1);
            self.used -= len;
            moved += 1;
        }
        moved
    }
}

/// The end of a queue where packets go in.
pub struct MemorySink<Meta> {
    queue: Arc<Queue<Meta>>,
    send_timeout: Duration,
    takes: TrainKinds,
}

impl<Meta> MemorySink<Meta> {
    /// Waits this long for room before it drops a packet.
    pub fn with_send_timeout(self, send_timeout: Duration) -> Self {
        Self {
            send_timeout,
            ..self
        }
    }

    /// Accepts only these trains.
    pub fn taking(self, takes: TrainKinds) -> Self {
        Self { takes, ..self }
    }

    /// Appends every item; each comes with the number of packets that it becomes.
    fn put_all<'a, P>(&self, items: impl Iterator<Item = (usize, u64, P, Meta)>) -> Sent
    where
        P: Iterator<Item = &'a [u8]>,
    {
        let mut sent = Sent {
            calls: 1,
            ..Sent::default()
        };
        let mut ring = self.queue.lock();
        for (len, packets, pieces, note) in items {
            if !ring.has_room(len) {
                ring = self.wait_for_room(ring, len);
            }
            if ring.has_room(len) {
                ring.push(pieces, note);
                sent.packets += packets;
            } else {
                sent.no_buffer += packets;
            }
        }
        self.wake_reader(&mut ring);
        sent
    }

    fn wait_for_room<'a>(
        &self,
        mut ring: MutexGuard<'a, Ring<Meta>>,
        len: usize,
    ) -> MutexGuard<'a, Ring<Meta>> {
        if self.send_timeout.is_zero() || len > ring.bytes.len() {
            return ring;
        }
        self.wake_reader(&mut ring);
        let enough = |ring: &mut Ring<Meta>| !ring.has_room(len);
        let waited = self
            .queue
            .freed
            .wait_timeout_while(ring, self.send_timeout, enough);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn wake_reader(&self, ring: &mut Ring<Meta>) {
        if ring.reader_sleeps && !ring.items.is_empty() {
            ring.reader_sleeps = false;
            self.queue.arrived.wake();
        }
    }
}

impl PlaintextSink for MemorySink<Offload> {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        Ok(self.put_all(deliveries.iter().map(|delivery| {
            let pieces = delivery.pieces.iter().map(|piece| &**piece);
            (delivery.len(), delivery.packets(), pieces, delivery.offload)
        })))
    }

    fn train_kinds(&self) -> TrainKinds {
        self.takes
    }
}

impl ProtectedSink for MemorySink<Arrival> {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        Ok(self.put_all(bursts.iter().map(|burst| {
            let arrival = Arrival {
                outer: burst.outer,
                stride: burst.stride,
            };
            (
                burst.bytes.len(),
                burst.packets(),
                std::iter::once(burst.bytes),
                arrival,
            )
        })))
    }
}

/// The end of a queue where packets come out.
pub struct MemorySource<Meta> {
    queue: Arc<Queue<Meta>>,
    waker: Option<Waker>,
}

impl<Meta> MemorySource<Meta> {
    /// Lets `waker` end this source's sleep.
    pub fn woken_by(self, waker: Waker) -> Self {
        Self {
            waker: Some(waker),
            ..self
        }
    }

    fn take(&mut self, buffer: &mut ReceiveBuffer<Meta>, wait: Wait) -> io::Result<usize> {
        let moved = self.pop(buffer, wait);
        if moved > 0 || !buffer.items.is_empty() || wait == Wait::Poll {
            return Ok(moved);
        }
        wait_readable(self.queue.arrived.as_fd(), self.waker.as_ref(), wait)?;
        self.queue.arrived.take();
        Ok(self.pop(buffer, Wait::Poll))
    }

    /// Moves what is there; if there is nothing, notes that the reader is about to sleep.
    fn pop(&mut self, buffer: &mut ReceiveBuffer<Meta>, then: Wait) -> usize {
        let mut ring = self.queue.lock();
        let moved = ring.pop_into(buffer);
        ring.reader_sleeps = moved == 0 && then != Wait::Poll;
        drop(ring);
        if moved > 0 {
            self.queue.freed.notify_all();
        }
        moved
    }
}

impl PlaintextSource for MemorySource<Offload> {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        self.take(buffer, wait)
    }
}

impl ProtectedSource for MemorySource<Arrival> {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize> {
        self.take(buffer, wait)
    }
}

/// A source that returns the same items again and again, until a deadline if there is one.
#[derive(Clone, Debug)]
pub struct Repeat<Meta> {
    items: Vec<(Vec<u8>, Meta)>,
    next: usize,
    until: Option<Instant>,
}

impl<Meta: Copy> Repeat<Meta> {
    /// Returns these items, without end.
    pub fn of(items: Vec<(Vec<u8>, Meta)>) -> Self {
        Self {
            items,
            next: 0,
            until: None,
        }
    }

    /// Stops at this time.
    pub fn until(self, deadline: Instant) -> Self {
        Self {
            until: Some(deadline),
            ..self
        }
    }

    fn refill(&mut self, buffer: &mut ReceiveBuffer<Meta>, wait: Wait) -> usize {
        let before = buffer.items.len();
        if self.items.is_empty()
            || self
                .until
                .is_some_and(|deadline| Instant::now() >= deadline)
        {
            if let Wait::AtMost(limit) = wait {
                std::thread::sleep(limit);
            }
            return 0;
        }
        while let Some((bytes, note)) = self.items.get(self.next) {
            if buffer.free_items() == 0 || buffer.free_bytes().len() < bytes.len() {
                break;
            }
            buffer.free_bytes()[..bytes.len()].copy_from_slice(bytes);
            buffer.push(bytes.len(), *note);
            self.next = (self.next + 1) % self.items.len();
        }
        buffer.items.len() - before
    }
}

impl PlaintextSource for Repeat<Offload> {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        Ok(self.refill(buffer, wait))
    }
}

impl ProtectedSource for Repeat<Arrival> {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize> {
        Ok(self.refill(buffer, wait))
    }
}

/// A sink that discards everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl PlaintextSink for NullSink {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        Ok(Sent {
            packets: deliveries.iter().map(Delivery::packets).sum(),
            calls: 1,
            ..Sent::default()
        })
    }

    fn train_kinds(&self) -> TrainKinds {
        ALL_TRAINS
    }
}

impl ProtectedSink for NullSink {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        Ok(Sent {
            packets: bursts.iter().map(Burst::packets).sum(),
            calls: 1,
            ..Sent::default()
        })
    }
}
