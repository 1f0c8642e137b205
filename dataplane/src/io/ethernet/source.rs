//! Reads from the ring what a policy protects.

use super::forwarding::may_be_forwarded;
use super::shared::Shared;
use crate::io::packet::ETHERNET_HEADER_BYTES;
use crate::io::packet::ring::{FrameState, Ring, RingFrame};
use crate::io::virtio_header;
use crate::io::waker::wait_readable;
use crate::io::{MAX_ITEM_BYTES, PlaintextSource, ReceiveBuffer, Wait, Waker};
use crate::train::{ChecksumSpot, Offload, Segmentation};
use arc_swap::ArcSwap;
use ipsec::Dropped;
use ipsec::database::{Decision, Snapshot};
use ipsec::packet::{FlowTemplate, Outline};
use ipsec::pmtu;
use ipsec::wire::ip::decrement_hop_limit;
use ipsec::wire::ip::v4::Ipv4;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Reads what hosts behind the device send through this router.
pub struct EthernetSource {
    ring: Ring,
    waker: Waker,
    databases: Arc<ArcSwap<Snapshot>>,
    reader: Reader,
    /// The ring's loss counter at the last read.
    lost: u64,
}

/// The most frames of one call: packets that are left to the kernel do not fill the buffer.
const MAX_FRAMES_PER_READ: usize = 1024;

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
            discarded: vec![0; MAX_ITEM_BYTES],
        };
        while ring.take_frame(|frame| reader.skip(frame)) {}
        Self {
            ring,
            waker,
            databases,
            reader,
            lost: 0,
        }
    }

    fn read(&mut self, buffer: &mut ReceiveBuffer<Offload>) -> usize {
        let before = buffer.items.len();
        self.reader.enter_reports(buffer);
        let snapshot = self.databases.load();
        let local = self.reader.shared.local_addresses.load_full();
        let mut classifier = Classifier {
            snapshot: &snapshot,
            local_addresses: &local.all,
            flow: None,
        };
        let Self { ring, reader, .. } = self;
        for _ in 0..MAX_FRAMES_PER_READ {
            if !ring.take_frame(|frame| reader.enter(buffer, frame, &mut classifier)) {
                break;
            }
        }
        let lost = self.ring.lost();
        if lost != self.lost {
            let stats = &self.reader.shared.stats;
            stats.lost.fetch_add(lost - self.lost, Ordering::Relaxed);
            self.lost = lost;
        }
        buffer.items.len() - before
    }
}

impl PlaintextSource for EthernetSource {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        if buffer.bytes.len() < MAX_ITEM_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the buffer has no room for one train",
            ));
        }
        let added = self.read(buffer);
        if added > 0 || !buffer.items.is_empty() {
            return Ok(added);
        }
        // A device that went down reports it once, which would end the next sleep; it may come up again.
        self.ring.clear_error();
        if wait_readable(self.ring.as_fd(), Some(&self.waker), wait)? {
            Ok(self.read(buffer))
        } else {
            Ok(0)
        }
    }
}

/// What to do with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    /// Leave it to the kernel.
    Leave,
    /// Take it; it has this many bytes.
    Take(usize),
    /// Drop it, and report that its hop limit has expired.
    Expired,
}

/// Decides which packets are taken and which are left to the kernel.
struct Classifier<'a> {
    snapshot: &'a Snapshot,
    local_addresses: &'a std::collections::HashSet<std::net::IpAddr>,
    /// The flow of the packet that was taken last.
    flow: Option<FlowTemplate>,
}

impl Classifier<'_> {
    fn classify(&mut self, packet: &[u8]) -> Action {
        if !is_intact(packet) {
            return Action::Leave;
        }
        let known = self.flow.as_ref();
        if let Some(total_len) = known.and_then(|flow| flow.total_len_of(packet)) {
            return Action::Take(total_len);
        }
        let Ok(outline) = Outline::read(packet) else {
            return Action::Leave;
        };
        if !self.is_protected(&outline) {
            return Action::Leave;
        }
        if outline.hop_limit <= 1 {
            return Action::Expired;
        }
        self.flow = FlowTemplate::new(packet, &outline);
        Action::Take(outline.total_len)
    }

    /// Whether a policy protects or discards it; discarded packets are taken too, to be counted.
    fn is_protected(&self, outline: &Outline) -> bool {
        let is_for_others = may_be_forwarded(outline.source, outline.destination)
            && !self.local_addresses.contains(&outline.destination);
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

/// Copies packets from frames, or from the socket's receive queue, into the buffer.
struct Reader {
    socket: Arc<OwnedFd>,
    shared: Arc<Shared>,
    report: Vec<u8>,
    /// Receives queued packets that are discarded.
    discarded: Vec<u8>,
}

impl Reader {
    /// ICMP errors of the sink come first: they are few.
    fn enter_reports(&self, buffer: &mut ReceiveBuffer<Offload>) {
        while buffer.free_items() > 0 && buffer.free_bytes().len() >= MAX_ITEM_BYTES {
            let Some(packet) = self.shared.icmp_reports.next() else {
                return;
            };
            buffer.free_bytes()[..packet.len()].copy_from_slice(&packet);
            buffer.push(packet.len(), Offload::default());
        }
    }

    /// Handles one frame. False if there is no room: then it stays in the ring.
    fn enter(
        &mut self,
        buffer: &mut ReceiveBuffer<Offload>,
        frame: &RingFrame<'_>,
        classifier: &mut Classifier<'_>,
    ) -> bool {
        if buffer.free_items() == 0 || buffer.free_bytes().len() < MAX_ITEM_BYTES {
            return false;
        }
        match frame.state {
            FrameState::Whole => self.enter_frame(buffer, frame, classifier),
            FrameState::Queued => self.enter_queued(buffer, classifier),
            FrameState::Truncated => count(&self.shared.stats.lost),
        }
        true
    }

    fn enter_frame(
        &mut self,
        buffer: &mut ReceiveBuffer<Offload>,
        frame: &RingFrame<'_>,
        classifier: &mut Classifier<'_>,
    ) {
        let offload = frame.offload().and_then(offload);
        match (classifier.classify(frame.packet), offload) {
            (Action::Take(len), Some(offload)) => {
                let len = len.min(frame.packet.len());
                buffer.free_bytes()[..len].copy_from_slice(&frame.packet[..len]);
                self.take(buffer, len, offload);
            }
            (Action::Expired, _) => self.report_expired(frame.link(), frame.packet),
            (Action::Leave | Action::Take(_), _) => count(&self.shared.stats.left),
        }
    }

    /// The packet that was too large for its frame is the next of the receive queue.
    fn enter_queued(
        &mut self,
        buffer: &mut ReceiveBuffer<Offload>,
        classifier: &mut Classifier<'_>,
    ) {
        let (mut virtio, mut link) = ([0; virtio_header::LEN], [0; ETHERNET_HEADER_BYTES]);
        let room = buffer.free_bytes();
        let Some(len) = receive(&self.socket, &mut virtio, &mut link, room) else {
            return count(&self.shared.stats.lost);
        };
        match (classifier.classify(&room[..len]), offload(&virtio)) {
            (Action::Take(whole), Some(offload)) => self.take(buffer, whole.min(len), offload),
            (Action::Expired, _) => {
                let packet = room[..len].to_vec();
                self.report_expired(&link, &packet);
            }
            (Action::Leave | Action::Take(_), _) => count(&self.shared.stats.left),
        }
    }

    /// Adds the packet that was copied to where the next item begins.
    fn take(&self, buffer: &mut ReceiveBuffer<Offload>, len: usize, offload: Offload) {
        decrement_hop_limit(&mut buffer.free_bytes()[..len]);
        buffer.push(len, offload);
        count(&self.shared.stats.taken);
    }

    /// Skips a packet that came before the source was made.
    fn skip(&mut self, frame: &RingFrame<'_>) -> bool {
        if frame.state == FrameState::Queued {
            let (mut virtio, mut link) = ([0; virtio_header::LEN], [0; ETHERNET_HEADER_BYTES]);
            let _ = receive(&self.socket, &mut virtio, &mut link, &mut self.discarded);
        }
        count(&self.shared.stats.left);
        true
    }

    /// Sends "time exceeded" back to the link address that sent the packet: no route is needed.
    fn report_expired(&mut self, link: &[u8], packet: &[u8]) {
        count(&self.shared.stats.expired);
        let local = self.shared.local_addresses.load();
        let speaker = Outline::read(packet)
            .ok()
            .and_then(|outline| local.source_towards(outline.source));
        let (Some(speaker), Some(link)) = (speaker, link.first_chunk::<ETHERNET_HEADER_BYTES>())
        else {
            return;
        };
        if pmtu::time_exceeded(packet, speaker, &mut self.report)
            && self.shared.icmp_reports.may_report(Instant::now())
        {
            let mut back = *link;
            back[..6].copy_from_slice(&link[6..12]);
            back[6..12].copy_from_slice(&link[..6]);
            let pieces = [&[0; virtio_header::LEN][..], &back, &self.report].map(IoSlice::new);
            // Best effort: the sender sends again.
            let _ = rustix::io::writev(&*self.socket, &pieces);
        }
    }
}

/// Reads one packet of the receive queue; returns its length behind the link header.
fn receive(
    socket: &OwnedFd,
    virtio: &mut [u8; virtio_header::LEN],
    link: &mut [u8; ETHERNET_HEADER_BYTES],
    room: &mut [u8],
) -> Option<usize> {
    let before = virtio.len() + link.len();
    let mut pieces = [
        IoSliceMut::new(virtio),
        IoSliceMut::new(link),
        IoSliceMut::new(room),
    ];
    let read = rustix::io::readv(socket, &mut pieces).ok()?;
    read.checked_sub(before)
}

/// Segmentation and checksum that the kernel has left to do, with offsets from the IP header and not the link header. A
/// packet whose checksum the device has verified needs nothing.
pub(in crate::io) fn offload(virtio: &[u8; virtio_header::LEN]) -> Option<Offload> {
    let offload = virtio_header::read(virtio)?;
    let checksum = match offload.checksum {
        None => None,
        Some(spot) => Some(ChecksumSpot {
            start: spot.start.checked_sub(ETHERNET_HEADER_BYTES as u16)?,
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
