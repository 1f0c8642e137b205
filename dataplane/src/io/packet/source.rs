//! The receiving end: packets out of the ring, runs of equal ones as one item.

use super::filter::Claim;
use super::ring::Ring;
use crate::clock;
use crate::io::several::Waitable;
use crate::io::waker::sleep_on;
use crate::io::{Arrival, Intake, LARGEST, ProtectedSource, Wait, Waker};
use ipsec::Dropped;
use ipsec::fragment::{Limits, Offered, Reassembler};
use ipsec::tunnel::Outer;
use ipsec::wire::ip::v4::Ipv4;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Receives native ESP from one device's ring.
pub struct PacketSource {
    ring: Ring,
    waker: Option<Waker>,
    reader: Reader,
}

/// A hand on a ring that is at work.
#[derive(Clone)]
pub struct RingHandle {
    socket: Arc<OwnedFd>,
    tidings: Arc<Tidings>,
}

/// What a ring at work tells, and is told.
#[derive(Default)]
struct Tidings {
    malformed: AtomicU64,
    lost: AtomicU64,
    is_over: AtomicBool,
}

impl PacketSource {
    /// Opens a ring for what the claim covers on this device, whose IP packets have at most `mtu` bytes. The claim's
    /// packets reach raw sockets too until those are told: [`super::super::raw::RawHandle::leave_to_rings`].
    pub fn open(device: u32, mtu: u32, claim: &Claim) -> io::Result<Self> {
        Ok(Self {
            ring: Ring::open(device, mtu, claim)?,
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

    /// For those who look after it while it is at work.
    pub fn handle(&self) -> RingHandle {
        RingHandle {
            socket: self.ring.socket(),
            tidings: self.reader.tidings.clone(),
        }
    }

    fn read(&mut self, intake: &mut Intake<Arrival>) {
        let Self { ring, reader, .. } = self;
        let first = intake.items.len();
        if reader.unpark(intake) {
            // One packet can wait for room, not two: the ring keeps the rest.
            while reader.parked.is_none() && ring.take(|packet| reader.enter(intake, first, packet))
            {
            }
        }
        let before = reader.tidings.lost.swap(ring.lost(), Ordering::Relaxed);
        intake.missed.count(Dropped::NoBuffer, ring.lost() - before);
    }
}

impl RingHandle {
    /// The ring takes what this claim covers from now on.
    pub fn claim(&self, claim: &Claim) -> io::Result<()> {
        claim.for_ring().attach(self.socket.as_fd())
    }

    /// The ring's source is let go of.
    pub fn close(&self) {
        self.tidings.is_over.store(true, Ordering::Relaxed);
    }

    /// Packets whose headers could not be read.
    pub fn malformed(&self) -> u64 {
        self.tidings.malformed.load(Ordering::Relaxed)
    }

    /// Packets for which no frame was free.
    pub fn lost(&self) -> u64 {
        self.tidings.lost.load(Ordering::Relaxed)
    }
}

impl ProtectedSource for PacketSource {
    fn fill(&mut self, intake: &mut Intake<Arrival>, wait: Wait) -> io::Result<usize> {
        if intake.bytes.len() < LARGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the intake has no room for the largest packet",
            ));
        }
        let before = intake.items.len();
        self.read(intake);
        if intake.items.is_empty() {
            // A device that went down says so once, which would end the next sleep; it may come up again.
            self.ring.clear_error();
            if sleep_on(self.ring.as_fd(), self.waker.as_ref(), wait)? {
                self.read(intake);
            }
        }
        Ok(intake.items.len() - before)
    }
}

impl Waitable for PacketSource {
    fn has_backlog(&self) -> bool {
        self.reader.parked.is_some()
    }

    fn is_over(&self) -> bool {
        self.reader.tidings.is_over.load(Ordering::Relaxed)
    }
}

impl AsFd for PacketSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// Makes arrivals of packets.
pub(in crate::io) struct Reader {
    partial: Reassembler,
    /// A joined packet for which the intake had no room.
    parked: Option<Vec<u8>>,
    tidings: Arc<Tidings>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            partial: Reassembler::new(Limits::default()),
            parked: None,
            tidings: Arc::default(),
        }
    }
}

impl Reader {
    /// Enters a packet, behind equal ones in an item from `first` on where that is possible. False if there is no room.
    pub fn enter(&mut self, intake: &mut Intake<Arrival>, first: usize, packet: &[u8]) -> bool {
        if intake.places() == 0 || intake.free().len() < packet.len() {
            return false;
        }
        match describe(packet) {
            Described::Whole(outer, packet) => add(intake, first, outer, packet),
            Described::Fragment => self.join(intake, first, packet),
            Described::Malformed => self.count_malformed(intake),
        }
        true
    }

    fn count_malformed(&self, intake: &mut Intake<Arrival>) {
        self.tidings.malformed.fetch_add(1, Ordering::Relaxed);
        intake.missed.count(Dropped::Malformed, 1);
    }

    /// RFC 4303 3.4.1: fragments are joined before ESP is looked at.
    fn join(&mut self, intake: &mut Intake<Arrival>, first: usize, packet: &[u8]) {
        let before = self.partial.given_up();
        let offered = self.partial.offer(packet, clock::now());
        let given_up = self.partial.given_up() - before;
        intake.missed.count(Dropped::Incomplete, given_up);
        match offered {
            Ok(Offered::Joined(whole)) if !self.enter(intake, first, &whole) => {
                self.parked = Some(whole);
            }
            Ok(Offered::Joined(_) | Offered::Held) => {}
            Ok(Offered::NotFragment) | Err(Dropped::Malformed) => self.count_malformed(intake),
            Err(reason) => intake.missed.count(reason, 1),
        }
    }

    /// Enters the packet that waits, if there is one. False if there is still no room for it.
    fn unpark(&mut self, intake: &mut Intake<Arrival>) -> bool {
        let first = intake.items.len();
        match self.parked.take() {
            Some(whole) if !self.enter(intake, first, &whole) => {
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
            let written = range.start as u16;
            Described::Whole(Outer { written, ..outer }, &packet[..range.end])
        }
        Err(ipsec::Dropped::Fragment) => Described::Fragment,
        _ => Described::Malformed,
    }
}

/// Adds a packet to the last item if that is a run of equal ones, of which only the last may be shorter.
fn add(intake: &mut Intake<Arrival>, first: usize, outer: Outer, packet: &[u8]) {
    intake.free()[..packet.len()].copy_from_slice(packet);
    let last = intake.items.len().checked_sub(1).filter(|n| *n >= first);
    if let Some((range, arrival)) = last.and_then(|n| intake.items.get_mut(n))
        && range.len() % arrival.stride == 0
        && packet.len() <= arrival.stride
        && arrival.outer == outer
    {
        range.end += packet.len();
        return;
    }
    let stride = packet.len();
    intake.push(stride, Arrival { outer, stride });
}
