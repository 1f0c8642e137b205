//! The ends of the data plane: where packets come from and where they go, a batch at a time.
//!
//! Four traits, two for each side. One file in `io/` is one backend; wrappers (`tap` writes a capture, `faulty` loses,
//! repeats and reorders by a seed) wrap any of them. Dispatch is dynamic, once per batch.

use crate::train::Offload;
use ipsec::tunnel::Outer;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

/// Room for what one call of a source reads: reused, never grown while packets flow.
pub struct Intake<Note> {
    /// The bytes of all items, each in a range of its own.
    pub bytes: Vec<u8>,
    /// Where each item lies, and what the source noted about it.
    pub items: Vec<(Range<usize>, Note)>,
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

    /// Whether trains of this kind may be given to it; otherwise single packets with finished checksums.
    fn takes_trains(&self) -> bool;
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
