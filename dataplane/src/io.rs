//! The ends of the data plane: where packets come from and where they go, a batch at a time.
//!
//! Four traits, a source and a sink for each side. One file in `io/` is one backend; wrappers (`capture` writes a pcap
//! file, `faulty` loses, repeats and reorders packets by a seed) wrap any of them. Dispatch is dynamic, once per batch.

mod ancillary;
pub mod capture;
pub mod ethernet;
mod family;
pub mod faulty;
#[cfg(any(test, fuzzing))]
pub mod fuzz_body;
mod malloc_threshold;
mod mapping;
pub mod memory;
mod messages;
#[cfg(test)]
pub(crate) mod namespaces;
mod open_error;
pub mod packet;
mod pmtu_cache;
pub mod raw;
mod receiving;
mod sending;
mod socket;
mod socket_option;
pub mod socket_sets;
pub mod tun;
pub mod tun_devices;
pub mod udp;
mod virtio_header;
mod waker;
mod xdp;
mod xfrm_bypass;

pub use family::Family;
pub use malloc_threshold::set_malloc_threshold;
pub use open_error::OpenError;
pub use pmtu_cache::PmtuCache;
pub use socket::{MtuReportCheck, SocketOpener, SocketOptions};
pub use waker::Waker;

use crate::buffers::BatchSize;
use crate::train::{Offload, Segmentation, TrainKinds};
use ipsec::Dropped;
use ipsec::tunnel::Outer;
use std::io::{self, IoSlice};
use std::ops::{AddAssign, Range};
use std::sync::Arc;
use std::time::Duration;

/// Receives a sentence about what works less well than it should, at start or later.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// The most bytes of one item: an IP packet of 65 535 bytes with room for IPv6 headers in front.
pub const MAX_ITEM_BYTES: usize = 65_536 + 512;

/// What one call of a source reads into: allocated once, never grown while packets flow.
pub struct ReceiveBuffer<Meta> {
    /// The memory, at full length from the start; items lie in ranges of it.
    pub bytes: Vec<u8>,
    /// Where each item lies and its metadata: ascending, never overlapping, at most as many as the vector's capacity.
    pub items: Vec<(Range<usize>, Meta)>,
    /// Packets that the source has lost.
    pub drops: SourceDrops,
}

/// Packets that a source received and cannot pass on, by reason; the owner of the receive buffer counts them.
#[derive(Default)]
pub struct SourceDrops(Vec<(Dropped, u64)>);

impl SourceDrops {
    /// Adds `packets` lost for one reason.
    pub fn count(&mut self, reason: Dropped, packets: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum += packets,
            None if packets > 0 => self.0.push((reason, packets)),
            None => {}
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all of them out.
    pub fn drain(&mut self) -> impl Iterator<Item = (Dropped, u64)> + '_ {
        self.0.drain(..)
    }
}

impl<Meta> ReceiveBuffer<Meta> {
    /// Room for `bytes` bytes in at most `items` items.
    pub fn with_capacity(bytes: usize, items: usize) -> Self {
        Self {
            bytes: vec![0; bytes],
            items: Vec::with_capacity(items),
            drops: SourceDrops::default(),
        }
    }

    /// Grows to at least this size.
    pub fn grow(&mut self, size: BatchSize) {
        let more = size.items.saturating_sub(self.items.len());
        self.items.reserve_exact(more);
        if self.bytes.len() < size.bytes {
            self.bytes.resize(size.bytes, 0);
        }
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// How many more items fit.
    pub fn free_items(&self) -> usize {
        self.items.capacity() - self.items.len()
    }

    /// Where the bytes behind the last item start.
    pub fn used_bytes(&self) -> usize {
        self.items.last().map_or(0, |(range, _)| range.end)
    }

    /// The bytes behind the last item, for the next one.
    pub fn free_bytes(&mut self) -> &mut [u8] {
        let used = self.used_bytes();
        &mut self.bytes[used..]
    }

    /// Adds the item whose `len` bytes were written to the start of [`ReceiveBuffer::free_bytes`].
    ///
    /// # Panics
    /// If it does not fit: a bug of the source, never an effect of what the network sends.
    pub fn push(&mut self, len: usize, note: Meta) {
        let start = self.used_bytes();
        assert!(self.free_items() > 0 && len <= self.bytes.len() - start);
        self.items.push((start..start + len, note));
    }
}

/// The metadata of one receive of a protected source: equal packets end to end, as UDP GRO delivers them, each from SPI
/// to ICV. Where [`Outer::emitted_len`] is not 0, each stands behind its IP headers, which AH always needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The outer header's fields, read from the packet or reported by the kernel.
    pub outer: Outer,
    /// Bytes of each datagram; the last may be shorter.
    pub stride: usize,
}

/// Protected packets for one peer, ready to send: of equal size but for a shorter last, as UDP GSO requires.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// The outer header's meaning.
    pub outer: Outer,
    /// From SPI to ICV, packet after packet; where [`Outer::emitted_len`] is not 0, each behind its IP headers.
    pub bytes: &'a [u8],
    /// Bytes of each packet; the last may be shorter.
    pub stride: usize,
}

/// An inner packet or train for the plaintext side, in pieces (scatter-gather).
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Segmentation and checksum that are left to the kernel.
    pub offload: Offload,
    /// The IP packet, piece after piece.
    pub pieces: &'a [IoSlice<'a>],
}

impl Burst<'_> {
    /// How many packets it has.
    pub fn packets(&self) -> u64 {
        self.bytes.len().div_ceil(self.stride.max(1)) as u64
    }

    /// Where each of them lies.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (len, stride) = (self.bytes.len(), self.stride.max(1));
        (0..len)
            .step_by(stride)
            .map(move |start| start..(start + stride).min(len))
    }
}

impl Delivery<'_> {
    /// Bytes of all pieces.
    #[allow(clippy::len_without_is_empty)] // An empty packet is none.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// How many packets it becomes once it is segmented.
    pub fn packets(&self) -> u64 {
        let start = usize::from(self.offload.checksum.map_or(0, |spot| spot.start));
        let (header_len, size) = match self.offload.segmentation {
            Segmentation::None => return 1,
            Segmentation::Udp { size } => (start + 8, size),
            Segmentation::Tcp { size } => {
                let mut copy = [0; 128];
                let words = self
                    .head(&mut copy)
                    .get(start + 12)
                    .map_or(0, |byte| byte >> 4);
                (start + usize::from(words) * 4, size)
            }
        };
        let payload = self.len().saturating_sub(header_len);
        payload.div_ceil(usize::from(size.max(1))).max(1) as u64
    }

    /// The first bytes of the packet, enough for IP and TCP headers: its first piece, or a copy of several.
    fn head<'a>(&'a self, copy: &'a mut [u8; 128]) -> &'a [u8] {
        match self.pieces {
            [first, ..] if first.len() >= copy.len() || self.pieces.len() == 1 => first,
            pieces => {
                let mut filled = 0;
                for piece in pieces {
                    let take = piece.len().min(copy.len() - filled);
                    copy[filled..filled + take].copy_from_slice(&piece[..take]);
                    filled += take;
                }
                &copy[..filled]
            }
        }
    }
}

/// How long a source waits if nothing is there. It never waits once it has a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Return at once.
    Poll,
    /// Sleep until something arrives or this time is over.
    AtMost(Duration),
}

/// What a sink did with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Packets handed over; each segment of a train counts.
    pub packets: u64,
    /// Packets refused as too big for the path; the sink has updated the PMTU cache.
    pub too_big: u64,
    /// Packets refused because a buffer was full.
    pub no_buffer: u64,
    /// Packets refused for any other reason.
    pub failed: u64,
    /// System calls made.
    pub calls: u64,
}

impl AddAssign for Sent {
    fn add_assign(&mut self, more: Self) {
        self.packets += more.packets;
        self.too_big += more.too_big;
        self.no_buffer += more.no_buffer;
        self.failed += more.failed;
        self.calls += more.calls;
    }
}

/// Where plaintext packets come from: a TUN device, memory, a capture.
pub trait PlaintextSource: Send {
    /// Fills `buffer` with what is there, up to its room; returns how many items were added.
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize>;

    /// The number of the device that the last `fill` read from: 0 for the one that policies use.
    fn interface(&self) -> u32 {
        0
    }
}

/// Where plaintext packets go.
pub trait PlaintextSink: Send {
    /// Hands over all of them, in order.
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent>;

    /// The same, out of the device of this number. A sink with one device ignores the number.
    fn deliver_by(&mut self, interface: u32, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        let _ = interface;
        self.deliver(deliveries)
    }

    /// Whether every packet is forwarded and none delivered to this host. It never changes.
    fn only_forwards(&self) -> bool {
        false
    }

    /// Which trains it accepts; all other packets must be single, with finished checksums. It never changes and is
    /// called once.
    fn train_kinds(&self) -> TrainKinds;
}

/// Where protected packets come from: UDP and raw sockets, memory, a capture.
pub trait ProtectedSource: Send {
    /// Fills `buffer` with what is there, up to its room; returns how many items were added.
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize>;
}

/// Where protected packets go.
pub trait ProtectedSink: Send {
    /// Hands over all of them, in order.
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent>;
}

/// Sends single packets, such as keepalives, through the socket of a sink, beside the data plane.
pub trait OutOfBandSender: Send {
    /// Sends one packet: what follows the headers that `outer` describes. False if it was not sent, for example because
    /// it fits another socket.
    fn send(&mut self, outer: &Outer, packet: &[u8]) -> bool;
}

impl<S: PlaintextSource + ?Sized> PlaintextSource for Box<S> {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        (**self).fill(buffer, wait)
    }

    fn interface(&self) -> u32 {
        (**self).interface()
    }
}

impl<S: PlaintextSink + ?Sized> PlaintextSink for Box<S> {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        (**self).deliver(deliveries)
    }

    fn deliver_by(&mut self, interface: u32, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        (**self).deliver_by(interface, deliveries)
    }

    fn only_forwards(&self) -> bool {
        (**self).only_forwards()
    }

    fn train_kinds(&self) -> TrainKinds {
        (**self).train_kinds()
    }
}

impl<S: ProtectedSource + ?Sized> ProtectedSource for Box<S> {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize> {
        (**self).fill(buffer, wait)
    }
}

impl<S: ProtectedSink + ?Sized> ProtectedSink for Box<S> {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        (**self).deliver(bursts)
    }
}
