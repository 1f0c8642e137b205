//! The ends of the data plane: where packets come from and where they go, a batch at a time.
//!
//! Four traits, two for each side. One file in `io/` is one backend; wrappers (`tap` writes a capture, `faulty` loses,
//! repeats and reorders by a seed) wrap any of them. Dispatch is dynamic, once per batch.

mod ancillary;
pub mod capture;
pub mod ethernet;
mod family;
pub mod faulty;
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

/// Told, in a sentence, what works less well than it should, at start or later.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// The most bytes that one item can have: an IP packet's, with room for IPv6's headers in front of its payload.
pub const MAX_ITEM_BYTES: usize = 65_536 + 512;

/// Room for what one call of a source reads: reused, never grown while packets flow.
pub struct ReceiveBuffer<Meta> {
    /// All the room there is, at full length from the start; items lie in ranges of it.
    pub bytes: Vec<u8>,
    /// Where each item lies, and what the source noted about it: ascending, never overlapping, at most as many as the
    /// vector's capacity.
    pub items: Vec<(Range<usize>, Meta)>,
    /// What the source has lost on the way here.
    pub drops: SourceDrops,
}

/// Packets that a source cannot hand over, by reason: whoever takes over the buffer counts them.
#[derive(Default)]
pub struct SourceDrops(Vec<(Dropped, u64)>);

impl SourceDrops {
    /// So many more for one reason.
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

    /// TrainKinds all of them out.
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

    /// Makes room for at least so much.
    pub fn grow(&mut self, size: BatchSize) {
        let more = size.items.saturating_sub(self.items.len());
        self.items.reserve_exact(more);
        if self.bytes.len() < size.bytes {
            self.bytes.resize(size.bytes, 0);
        }
    }

    /// Forgets all items: the room is whole again.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// How many items may still be added.
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
    /// If there is no such room: an error of the source, never of the network.
    pub fn push(&mut self, len: usize, note: Meta) {
        let start = self.used_bytes();
        assert!(self.free_items() > 0 && len <= self.bytes.len() - start);
        self.items.push((start..start + len, note));
    }
}

/// What a protected-side source notes about one receive: equal packets end to end, as UDP GRO delivers them, each from
/// SPI to ICV; where [`Outer::written`] says so, behind its IP headers, which AH always needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The outer header's meaning, read from the packet or reported by the kernel.
    pub outer: Outer,
    /// Bytes of each datagram; the last may be shorter.
    pub stride: usize,
}

/// A run of protected packets for one peer, ready to send: equal ones but a shorter last, as UDP GSO wants them.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// The outer header's meaning.
    pub outer: Outer,
    /// From SPI to ICV, packet after packet; where [`Outer::written`] says so, each behind its IP headers.
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

    /// How many packets it stands for.
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

    /// The number of the device that the last `fill` has read from: 0 for the one that policies use.
    fn interface(&self) -> u32 {
        0
    }
}

/// Where plaintext packets go.
pub trait PlaintextSink: Send {
    /// Hands over all of them, in order.
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent>;

    /// The same, out of the device of this number. A sink with one device has no other.
    fn deliver_by(&mut self, interface: u32, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        let _ = interface;
        self.deliver(deliveries)
    }

    /// Whether everything that it takes is forwarded, and nothing delivered to this host. Fixed from the start.
    fn only_forwards(&self) -> bool {
        false
    }

    /// Which trains may be given to it; of all else it gets single packets with finished checksums. Fixed from the
    /// start: asked once.
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

/// Sends a packet now and then beside the data plane, through the socket of one of its sinks.
pub trait OutOfBandSender: Send {
    /// Sends one packet, from SPI to ICV or whatever stands behind the headers that `outer` describes. Whether it went:
    /// a packet that fits another socket does not.
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
