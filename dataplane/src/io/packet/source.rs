//! Receives native ESP from a packet ring; packets of equal size become one item.

use super::filter::RingAddresses;
use super::ring::Ring;
use crate::clock;
use crate::io::socket_sets::PollableSource;
use crate::io::waker::wait_readable;
use crate::io::{Arrival, MAX_ITEM_BYTES, ProtectedSource, ReceiveBuffer, Wait, Waker};
use ipsec::Dropped;
use ipsec::fragment::{Offered, Reassembler, ReassemblyLimits};
use ipsec::tunnel::Outer;
use ipsec::wire::ip::v4::Ipv4;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Receives native ESP from one device's ring.
pub struct PacketSource {
    ring: Ring,
    waker: Option<Waker>,
    reader: Reader,
}

/// Controls a ring that is in use.
#[derive(Clone)]
pub struct RingHandle {
    socket: Arc<OwnedFd>,
    state: Arc<RingState>,
}

/// State shared between a ring and its handle.
#[derive(Default)]
struct RingState {
    malformed: AtomicU64,
    lost: AtomicU64,
    is_closed: AtomicBool,
}

impl PacketSource {
    /// Opens a ring for ESP to these addresses on this device, whose IP packets have at most `mtu` bytes. Raw sockets
    /// receive the same packets until [`super::super::raw::RawHandle::exclude_ring_packets`] is called.
    pub fn open(device: u32, mtu: u32, addresses: &RingAddresses) -> io::Result<Self> {
        Ok(Self {
            ring: Ring::open(device, mtu, addresses)?,
            waker: None,
            reader: Reader::default(),
        })
    }

    /// Lets `waker` end this source's sleep.
    pub fn woken_by(self, waker: Waker) -> Self {
        Self {
            waker: Some(waker),
            ..self
        }
    }

    /// A handle to control it while it is in use.
    pub fn handle(&self) -> RingHandle {
        RingHandle {
            socket: self.ring.socket(),
            state: self.reader.state.clone(),
        }
    }

    fn read(&mut self, buffer: &mut ReceiveBuffer<Arrival>) {
        let Self { ring, reader, .. } = self;
        let first = buffer.items.len();
        if reader.unpark(buffer) {
            // One packet can wait for room, not two; the ring keeps the others.
            while reader.parked.is_none() && ring.take(|packet| reader.enter(buffer, first, packet))
            {
            }
        }
        let before = reader.state.lost.swap(ring.lost(), Ordering::Relaxed);
        buffer.drops.count(Dropped::NoBuffer, ring.lost() - before);
    }
}

impl RingHandle {
    /// From now on the ring takes ESP to these addresses.
    pub fn set_addresses(&self, addresses: &RingAddresses) -> io::Result<()> {
        addresses.for_ring().attach(self.socket.as_fd())
    }

    /// Whether packets wait in the ring.
    pub fn has_waiting(&self) -> io::Result<bool> {
        wait_readable(self.socket.as_fd(), None, Wait::AtMost(Duration::ZERO))
    }

    /// Closes the ring: its source is dropped.
    pub fn close(&self) {
        self.state.is_closed.store(true, Ordering::Relaxed);
    }

    /// Packets whose headers could not be read.
    pub fn malformed(&self) -> u64 {
        self.state.malformed.load(Ordering::Relaxed)
    }

    /// Packets for which no frame was free.
    pub fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }
}

impl ProtectedSource for PacketSource {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize> {
        if buffer.bytes.len() < MAX_ITEM_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the buffer has no room for the largest packet",
            ));
        }
        let before = buffer.items.len();
        self.read(buffer);
        if buffer.items.is_empty() {
            // A device that went down reports it once, which would end the next sleep; it may come up again.
            self.ring.clear_error();
            if wait_readable(self.ring.as_fd(), self.waker.as_ref(), wait)? {
                self.read(buffer);
            }
        }
        Ok(buffer.items.len() - before)
    }
}

impl PollableSource for PacketSource {
    fn has_backlog(&self) -> bool {
        self.reader.parked.is_some()
    }

    fn is_closed(&self) -> bool {
        self.reader.state.is_closed.load(Ordering::Relaxed)
    }
}

impl AsFd for PacketSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// Turns packets into items of the receive buffer.
pub(in crate::io) struct Reader {
    partial: Reassembler,
    /// A joined packet for which the buffer had no room.
    parked: Option<Vec<u8>>,
    state: Arc<RingState>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            partial: Reassembler::new(ReassemblyLimits::default()),
            parked: None,
            state: Arc::default(),
        }
    }
}

impl Reader {
    /// Enters a packet, appended to an item of equal packets from `first` on where possible. False if there is no room.
    pub fn enter(
        &mut self,
        buffer: &mut ReceiveBuffer<Arrival>,
        first: usize,
        packet: &[u8],
    ) -> bool {
        if buffer.free_items() == 0 || buffer.free_bytes().len() < packet.len() {
            return false;
        }
        match describe(packet) {
            Described::Whole(outer, packet) => add(buffer, first, outer, packet),
            Described::Fragment => self.join(buffer, first, packet),
            Described::Malformed => self.count_malformed(buffer),
        }
        true
    }

    fn count_malformed(&self, buffer: &mut ReceiveBuffer<Arrival>) {
        self.state.malformed.fetch_add(1, Ordering::Relaxed);
        buffer.drops.count(Dropped::Malformed, 1);
    }

    /// RFC 4303 3.4.1: fragments are joined before ESP is looked at.
    fn join(&mut self, buffer: &mut ReceiveBuffer<Arrival>, first: usize, packet: &[u8]) {
        let before = self.partial.given_up();
        let offered = self.partial.offer(packet, clock::now());
        let given_up = self.partial.given_up() - before;
        buffer.drops.count(Dropped::Incomplete, given_up);
        match offered {
            Ok(Offered::Joined(whole)) if !self.enter(buffer, first, &whole) => {
                self.parked = Some(whole);
            }
            Ok(Offered::Joined(_) | Offered::Held) => {}
            Ok(Offered::NotFragment) | Err(Dropped::Malformed) => self.count_malformed(buffer),
            Err(reason) => buffer.drops.count(reason, 1),
        }
    }

    /// Enters the parked packet, if there is one. False if there is still no room for it.
    fn unpark(&mut self, buffer: &mut ReceiveBuffer<Arrival>) -> bool {
        let first = buffer.items.len();
        match self.parked.take() {
            Some(whole) if !self.enter(buffer, first, &whole) => {
                self.parked = Some(whole);
                false
            }
            _ => true,
        }
    }
}

enum Described<'a> {
    /// With its headers: transport mode needs them, and AH inside covers them.
    Whole(Outer, &'a [u8]),
    Fragment,
    Malformed,
}

fn describe(packet: &[u8]) -> Described<'_> {
    // RFC 1122 3.2.1.2: a host must verify the header's checksum.
    let is_v4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
    if is_v4 && !Ipv4::new_checked(packet).is_ok_and(|header| header.checksum_is_right()) {
        return Described::Malformed;
    }
    match Outer::payload(packet) {
        Ok((outer, range)) if !range.is_empty() => {
            let emitted_len = range.start as u16;
            Described::Whole(
                Outer {
                    emitted_len,
                    ..outer
                },
                &packet[..range.end],
            )
        }
        Err(ipsec::Dropped::Fragment) => Described::Fragment,
        _ => Described::Malformed,
    }
}

/// Appends a packet to the last item if that has packets of equal size, of which only the last may be shorter.
fn add(buffer: &mut ReceiveBuffer<Arrival>, first: usize, outer: Outer, packet: &[u8]) {
    buffer.free_bytes()[..packet.len()].copy_from_slice(packet);
    let last = buffer.items.len().checked_sub(1).filter(|n| *n >= first);
    if let Some((range, arrival)) = last.and_then(|n| buffer.items.get_mut(n))
        && range.len() % arrival.stride == 0
        && packet.len() <= arrival.stride
        && arrival.outer == outer
    {
        range.end += packet.len();
        return;
    }
    let stride = packet.len();
    buffer.push(stride, Arrival { outer, stride });
}
