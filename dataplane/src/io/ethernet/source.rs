//! The reading end: what a policy protects, out of the ring and into the intake.

use super::{Shared, may_be_forwarded};
use crate::io::packet::ETHERNET;
use crate::io::packet::ring::{Frame, FrameState, Ring};
use crate::io::tun::header;
use crate::io::waker::sleep_on;
use crate::io::{Intake, LARGEST, PlaintextSource, Wait, Waker};
use crate::train::{ChecksumSpot, Offload, Segmentation};
use arc_swap::ArcSwap;
use ipsec::Dropped;
use ipsec::database::{Decision, Snapshot};
use ipsec::packet::{Familiar, Outline};
use ipsec::pmtu;
use ipsec::wire::ip::pass_hop;
use ipsec::wire::ip::v4::Ipv4;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Reads what hosts send through this router.
pub struct EthernetSource {
    ring: Ring,
    waker: Waker,
    databases: Arc<ArcSwap<Snapshot>>,
    reader: Reader,
    /// What the ring had lost when it was last asked.
    lost: u64,
}

/// Frames that are looked at in one call: packets that are left to the kernel fill no intake.
const MOST_FRAMES: usize = 1024;

impl EthernetSource {
    pub(super) fn new(
        mut ring: Ring,
        databases: Arc<ArcSwap<Snapshot>>,
        waker: Waker,
        shared: Arc<Shared>,
    ) -> Self {
        let mut reader = Reader {
            socket: ring.socket(),
            shared,
            report: Vec::new(),
            spilled: vec![0; LARGEST],
        };
        while ring.take_frame(|frame| reader.pass_over(frame)) {}
        Self {
            ring,
            waker,
            databases,
            reader,
            lost: 0,
        }
    }

    fn read(&mut self, intake: &mut Intake<Offload>) -> usize {
        let before = intake.items.len();
        self.reader.enter_echoes(intake);
        let snapshot = self.databases.load();
        let hosts = self.reader.shared.hosts.load_full();
        let mut judge = Judge {
            snapshot: &snapshot,
            ours: &hosts.ours,
            flow: None,
        };
        let Self { ring, reader, .. } = self;
        for _ in 0..MOST_FRAMES {
            if !ring.take_frame(|frame| reader.enter(intake, frame, &mut judge)) {
                break;
            }
        }
        let lost = self.ring.lost();
        if lost != self.lost {
            let facts = &self.reader.shared.facts;
            facts.lost.fetch_add(lost - self.lost, Ordering::Relaxed);
            self.lost = lost;
        }
        intake.items.len() - before
    }
}

impl PlaintextSource for EthernetSource {
    fn fill(&mut self, intake: &mut Intake<Offload>, wait: Wait) -> io::Result<usize> {
        if intake.bytes.len() < LARGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the intake has no room for one train",
            ));
        }
        let added = self.read(intake);
        if added > 0 || !intake.items.is_empty() {
            return Ok(added);
        }
        // A device that went down says so once, which would end the next sleep; it may come up again.
        self.ring.clear_error();
        match sleep_on(self.ring.as_fd(), Some(&self.waker), wait)? {
            true => Ok(self.read(intake)),
            false => Ok(0),
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It is the kernel's.
    Leave,
    /// It is ours, and so long.
    Take(usize),
    /// It is ours, and has come to its end.
    Expired,
}

/// Tells our packets from the kernel's.
struct Judge<'a> {
    snapshot: &'a Snapshot,
    ours: &'a std::collections::HashSet<std::net::IpAddr>,
    /// What the packets of the flow that was taken last are known by.
    flow: Option<Familiar>,
}

impl Judge<'_> {
    fn judge(&mut self, packet: &[u8]) -> Verdict {
        if !is_intact(packet) {
            return Verdict::Leave;
        }
        let known = self.flow.as_ref();
        if let Some(total_len) = known.and_then(|flow| flow.total_len_of(packet)) {
            return Verdict::Take(total_len);
        }
        let Ok(outline) = Outline::read(packet) else {
            return Verdict::Leave;
        };
        if !self.is_protected(&outline) {
            return Verdict::Leave;
        }
        if outline.hop_limit <= 1 {
            return Verdict::Expired;
        }
        self.flow = Familiar::new(packet, &outline);
        Verdict::Take(outline.total_len)
    }

    /// Whether a policy wants it anywhere but in the kernel's own path. What it wants dropped is taken too, to be counted.
    fn is_protected(&self, outline: &Outline) -> bool {
        let is_for_others = may_be_forwarded(outline.source, outline.destination)
            && !self.ours.contains(&outline.destination);
        is_for_others
            && !matches!(
                self.snapshot.outbound(outline),
                Decision::Bypass | Decision::Drop(Dropped::NoPolicy)
            )
    }
}

/// RFC 1812 5.2.2: a router must verify the header's checksum; IPv6 has none.
fn is_intact(packet: &[u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => Ipv4::new_checked(packet).is_ok_and(|header| header.checksum_is_right()),
        version => version == Some(6),
    }
}

/// Moves packets from frames, or from the socket's queue, into the intake.
struct Reader {
    socket: Arc<OwnedFd>,
    shared: Arc<Shared>,
    report: Vec<u8>,
    /// Where queued packets go that nobody wants.
    spilled: Vec<u8>,
}

impl Reader {
    /// Reports of the sink's come first: they are few, and somebody waits for them.
    fn enter_echoes(&self, intake: &mut Intake<Offload>) {
        while intake.places() > 0 && intake.free().len() >= LARGEST {
            let Some(packet) = self.shared.echoes.next() else {
                return;
            };
            intake.free()[..packet.len()].copy_from_slice(&packet);
            intake.push(packet.len(), Offload::default());
        }
    }

    /// Does with one frame what is to be done. False if there is no room: then it stays where it is.
    fn enter(
        &mut self,
        intake: &mut Intake<Offload>,
        frame: &Frame<'_>,
        judge: &mut Judge<'_>,
    ) -> bool {
        if intake.places() == 0 || intake.free().len() < LARGEST {
            return false;
        }
        match frame.state {
            FrameState::Whole => self.enter_frame(intake, frame, judge),
            FrameState::Queued => self.enter_queued(intake, judge),
            FrameState::Truncated => count(&self.shared.facts.lost),
        }
        true
    }

    fn enter_frame(
        &mut self,
        intake: &mut Intake<Offload>,
        frame: &Frame<'_>,
        judge: &mut Judge<'_>,
    ) {
        let offload = frame.offload().and_then(offload);
        match (judge.judge(frame.packet), offload) {
            (Verdict::Take(len), Some(offload)) => {
                let len = len.min(frame.packet.len());
                intake.free()[..len].copy_from_slice(&frame.packet[..len]);
                self.take(intake, len, offload);
            }
            (Verdict::Expired, _) => self.tell_expired(frame.link(), frame.packet),
            (Verdict::Leave | Verdict::Take(_), _) => count(&self.shared.facts.left),
        }
    }

    /// The packet that was too large for its frame is the next of the socket's queue.
    fn enter_queued(&mut self, intake: &mut Intake<Offload>, judge: &mut Judge<'_>) {
        let (mut told, mut link) = ([0; header::LEN], [0; ETHERNET]);
        let room = intake.free();
        let Some(len) = receive(&self.socket, &mut told, &mut link, room) else {
            return count(&self.shared.facts.lost);
        };
        match (judge.judge(&room[..len]), offload(&told)) {
            (Verdict::Take(whole), Some(offload)) => self.take(intake, whole.min(len), offload),
            (Verdict::Expired, _) => {
                let packet = room[..len].to_vec();
                self.tell_expired(&link, &packet);
            }
            (Verdict::Leave | Verdict::Take(_), _) => count(&self.shared.facts.left),
        }
    }

    /// The packet lies where the next item begins.
    fn take(&self, intake: &mut Intake<Offload>, len: usize, offload: Offload) {
        pass_hop(&mut intake.free()[..len]);
        intake.push(len, offload);
        count(&self.shared.facts.taken);
    }

    /// What came before there was a policy is not ours.
    fn pass_over(&mut self, frame: &Frame<'_>) -> bool {
        if frame.state == FrameState::Queued {
            let (mut told, mut link) = ([0; header::LEN], [0; ETHERNET]);
            let _ = receive(&self.socket, &mut told, &mut link, &mut self.spilled);
        }
        count(&self.shared.facts.left);
        true
    }

    /// Straight back to whoever handed us the packet: the report needs no route.
    fn tell_expired(&mut self, link: &[u8], packet: &[u8]) {
        count(&self.shared.facts.expired);
        let hosts = self.shared.hosts.load();
        let speaker = Outline::read(packet)
            .ok()
            .and_then(|outline| hosts.speaker_to(outline.source));
        let (Some(speaker), Some(link)) = (speaker, link.first_chunk::<ETHERNET>()) else {
            return;
        };
        if pmtu::report_expired(packet, speaker, &mut self.report)
            && self.shared.echoes.may_report(Instant::now())
        {
            let mut back = *link;
            back[..6].copy_from_slice(&link[6..12]);
            back[6..12].copy_from_slice(&link[..6]);
            let pieces = [&[0; header::LEN][..], &back, &self.report].map(IoSlice::new);
            // Best effort: who is not told asks again.
            let _ = rustix::io::writev(&*self.socket, &pieces);
        }
    }
}

/// Reads one packet of the socket's queue; its length behind the link header.
fn receive(
    socket: &OwnedFd,
    told: &mut [u8; header::LEN],
    link: &mut [u8; ETHERNET],
    room: &mut [u8],
) -> Option<usize> {
    let before = told.len() + link.len();
    let mut pieces = [
        IoSliceMut::new(told),
        IoSliceMut::new(link),
        IoSliceMut::new(room),
    ];
    let read = rustix::io::readv(socket, &mut pieces).ok()?;
    read.checked_sub(before)
}

/// What the kernel has left to do, counted from the IP header and not from the link's. A packet whose checksum the device
/// has seen to be right needs nothing.
pub(in crate::io) fn offload(told: &[u8; header::LEN]) -> Option<Offload> {
    let offload = header::read(told)?;
    let checksum = match offload.checksum {
        None => None,
        Some(spot) => Some(ChecksumSpot {
            start: spot.start.checked_sub(ETHERNET as u16)?,
            ..spot
        }),
    };
    match (offload.segmentation, checksum) {
        // Every segment of a train needs a checksum of its own.
        (Segmentation::Tcp { .. } | Segmentation::Udp { .. }, None) => None,
        (segmentation, checksum) => Some(Offload {
            segmentation,
            checksum,
        }),
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
