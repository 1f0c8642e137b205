//! The ends of the data plane: where packets come from and where they go, a batch at a time.
//!
//! Four traits, two for each side. One file in `io/` is one backend; wrappers (`tap` writes a capture, `faulty` loses,
//! repeats and reorders by a seed) wrap any of them. Dispatch is dynamic, once per batch.

use crate::train::{Offload, Takes};
use ipsec::tunnel::Outer;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

/// Room for what one call of a source reads: reused, never grown while packets flow.
pub struct Intake<Note> {
    /// All the room there is, at full length from the start; items lie in ranges of it.
    pub bytes: Vec<u8>,
    /// Where each item lies, and what the source noted about it: ascending, never overlapping, at most as many as the
    /// vector's capacity.
    pub items: Vec<(Range<usize>, Note)>,
}

impl<Note> Intake<Note> {
    /// Room for `bytes` bytes in at most `items` items.
    pub fn with_room(bytes: usize, items: usize) -> Self {
        Self {
            bytes: vec![0; bytes],
            items: Vec::with_capacity(items),
        }
    }

    /// Forgets all items: the room is whole again.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// How many items may still be added.
    pub fn places(&self) -> usize {
        self.items.capacity() - self.items.len()
    }

    /// Where the bytes behind the last item start.
    pub fn used(&self) -> usize {
        self.items.last().map_or(0, |(range, _)| range.end)
    }

    /// The bytes behind the last item, for the next one.
    pub fn free(&mut self) -> &mut [u8] {
        let used = self.used();
        &mut self.bytes[used..]
    }

    /// Adds the item whose `len` bytes were written to the start of [`Intake::free`].
    ///
    /// # Panics
    /// If there is no such room: an error of the source, never of the network.
    pub fn push(&mut self, len: usize, note: Note) {
        let start = self.used();
        assert!(self.places() > 0 && len <= self.bytes.len() - start);
        self.items.push((start..start + len, note));
    }
}

/// What a protected-side source notes about one receive: equal datagrams end to end, as UDP GRO delivers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The outer header's meaning, read from the packet or reported by the kernel.
    pub outer: Outer,
    /// Bytes of each datagram; the last may be shorter.
    pub stride: usize,
}

/// A run of protected packets for one peer, ready to send: equal ones but a shorter last, as UDP GSO wants them.
#[derive(Clone, Copy, Debug)]
pub struct Parcel<'a> {
    /// The outer header's meaning.
    pub outer: Outer,
    /// From SPI to ICV (or AH header to end), packet after packet.
    pub bytes: &'a [u8],
    /// Bytes of each packet; the last may be shorter.
    pub stride: usize,
}

/// An inner packet or train, ready for the plaintext side, gathered from pieces.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// What the kernel still has to do to it.
    pub offload: Offload,
    /// The IP packet in order.
    pub pieces: &'a [IoSlice<'a>],
}

/// How long a source may wait for its first packet. It never waits for a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Return at once.
    Poll,
    /// Sleep until there is something or this time is over.
    AtMost(Duration),
}

/// What a sink did with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Packets handed over (segments counted singly).
    pub packets: u64,
    /// Packets refused as too big for the path; the sink has learnt of a smaller MTU.
    pub too_big: u64,
    /// Packets refused for want of buffers.
    pub no_buffer: u64,
    /// Packets refused for any other reason.
    pub failed: u64,
    /// System calls it took.
    pub calls: u64,
}

/// Where plaintext packets come from: a TUN device, memory, a capture.
pub trait PlaintextSource: Send {
    /// Fills `intake` with what is there, up to its room; returns how many items were added.
    fn fill(&mut self, intake: &mut Intake<Offload>, wait: Wait) -> io::Result<usize>;
}

/// Where plaintext packets go.
pub trait PlaintextSink: Send {
    /// Hands over all of them, in order.
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent>;

    /// Which trains may be given to it; of all else it gets single packets with finished checksums. Fixed from the
    /// start: asked once.
    fn takes_trains(&self) -> Takes;
}

/// Where protected packets come from: UDP and raw sockets, memory, a capture.
pub trait ProtectedSource: Send {
    /// Fills `intake` with what is there, up to its room; returns how many items were added.
    fn fill(&mut self, intake: &mut Intake<Arrival>, wait: Wait) -> io::Result<usize>;
}

/// Where protected packets go.
pub trait ProtectedSink: Send {
    /// Hands over all of them, in order.
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent>;
}
