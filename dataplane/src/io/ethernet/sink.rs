//! Sends decrypted packets directly to the neighbour, and by this device only.

use super::egress::DeviceEgress;
use super::forwarding::may_be_forwarded;
use super::frame::{addresses_of, frame};
use super::neighbour_cache::{CachedHop, NeighbourCache};
use super::options::EthernetOptions;
use super::shared::Shared;
use crate::buffers::recycle;
use crate::io::packet::egress::OutgoingFrame;
use crate::io::packet::{NativeIo, NextHops};
use crate::io::{Delivery, PlaintextSink, Sent, Warn};
use crate::train::segments::Segments;
use crate::train::{Offload, Segmentation, TrainKinds};
use ipsec::fragment::Cutter;
use ipsec::packet::Outline;
use ipsec::pmtu;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Forwards packets from the tunnel to hosts behind the device.
pub struct EthernetSink {
    neighbours: NeighbourCache,
    egress: DeviceEgress,
    /// Frames to be sent at the end of the batch; empty between batches.
    frames: Vec<OutgoingFrame<'static>>,
    shared: Arc<Shared>,
}

impl EthernetSink {
    pub(super) fn new(
        options: &EthernetOptions,
        next_hops: Box<dyn NextHops>,
        shared: Arc<Shared>,
        warn: Warn,
    ) -> Self {
        Self {
            neighbours: NeighbourCache::new(options.device, options.mtu, next_hops),
            egress: DeviceEgress::new(options.clone(), warn),
            frames: Vec::new(),
            shared,
        }
    }

    /// Forwards one packet, or appends it to the frames of the batch.
    fn forward<'a>(
        &mut self,
        packet: &'a [u8],
        now: Instant,
        frames: &mut Vec<OutgoingFrame<'a>>,
        sent: &mut Sent,
    ) {
        let destination = match self.admit(packet, now) {
            Ok(destination) => destination,
            Err(()) => return sent.failed += 1,
        };
        let hop = self.neighbours.next_hop(destination, now);
        self.send_on(hop, packet, now, frames, sent);
    }

    fn send_on<'a>(
        &mut self,
        hop: CachedHop,
        packet: &'a [u8],
        now: Instant,
        frames: &mut Vec<OutgoingFrame<'a>>,
        sent: &mut Sent,
    ) {
        let device_mtu = self.egress.options().mtu as usize;
        match hop {
            CachedHop::Neighbour { addresses, mtu } if packet.len() <= mtu => {
                match frame(&addresses, packet) {
                    Some(frame) => frames.push(frame),
                    None => sent.failed += 1,
                }
            }
            CachedHop::Neighbour { mtu, .. } => {
                self.flush(frames, now, sent);
                self.fragment(packet, mtu, now, sent);
            }
            CachedHop::ViaRawSocket if packet.len() > device_mtu => {
                self.flush(frames, now, sent);
                self.fragment(packet, device_mtu, now, sent);
            }
            CachedHop::ViaRawSocket => {
                self.flush(frames, now, sent);
                let stats = &self.shared.stats;
                stats.by_raw_socket.fetch_add(1, Ordering::Relaxed);
                self.egress.send_by_raw_socket(packet, sent);
            }
            CachedHop::OtherDevice => {
                self.shared
                    .stats
                    .undeliverable
                    .fetch_add(1, Ordering::Relaxed);
                sent.failed += 1;
            }
        }
    }

    /// Forwards a train whole, or its segments where that is not possible.
    fn forward_train(&mut self, train: &Delivery<'_>, now: Instant, sent: &mut Sent) {
        let Some(first) = train.pieces.first() else {
            return;
        };
        let packets = train.packets();
        let Ok(destination) = self.admit(first, now) else {
            return sent.failed += packets;
        };
        let hop = self.neighbours.next_hop(destination, now);
        if let CachedHop::Neighbour { addresses, mtu } = hop
            && segment_len(train).is_some_and(|len| len <= mtu)
            && self.egress.send_train(&addresses, train, sent)
        {
            self.shared
                .stats
                .direct
                .fetch_add(packets, Ordering::Relaxed);
            return;
        }
        self.forward_segments(hop, train, now, sent);
    }

    /// Forwards the segments of a train one by one, the first by the next hop that was found: if the kernel was due to
    /// see a packet, it sees that one. Rare, so it may allocate.
    fn forward_segments(
        &mut self,
        hop: CachedHop,
        train: &Delivery<'_>,
        now: Instant,
        sent: &mut Sent,
    ) {
        let whole = joined(train);
        let cut = Outline::read(&whole)
            .and_then(|outline| Segments::plan(&whole, &outline, train.offload));
        let Ok(cut) = cut else {
            return sent.failed += train.packets();
        };
        for number in 0..cut.count() {
            let mut packet = vec![0; cut.head_len()];
            cut.write_head(&whole, number, &mut packet);
            packet.extend_from_slice(&whole[cut.payload(number)]);
            let mut frames = Vec::new();
            match number {
                0 => self.send_on(hop, &packet, now, &mut frames, sent),
                _ => self.forward(&packet, now, &mut frames, sent),
            }
            self.flush(&mut frames, now, sent);
        }
    }

    /// The destination of a packet that may be forwarded.
    fn admit(&self, packet: &[u8], now: Instant) -> Result<IpAddr, ()> {
        let stats = &self.shared.stats;
        let (source, destination, hop_limit) = addresses_of(packet).ok_or(())?;
        let local = self.shared.local_addresses.load();
        if !may_be_forwarded(source, destination) || local.all.contains(&destination) {
            stats.undeliverable.fetch_add(1, Ordering::Relaxed);
            return Err(());
        }
        if hop_limit <= 1 {
            stats.expired.fetch_add(1, Ordering::Relaxed);
            self.report_into_tunnel(source, now, |speaker, out| {
                pmtu::time_exceeded(packet, speaker, out)
            });
            return Err(());
        }
        Ok(destination)
    }

    /// Sends an ICMP error to a sender beyond the tunnel, through the tunnel.
    fn report_into_tunnel(
        &self,
        sender: IpAddr,
        now: Instant,
        write: impl FnOnce(IpAddr, &mut Vec<u8>) -> bool,
    ) {
        let mut report = Vec::new();
        if let Some(speaker) = self.shared.local_addresses.load().source_towards(sender)
            && write(speaker, &mut report)
            && self.shared.icmp_reports.may_report(now)
        {
            self.shared.icmp_reports.send(report);
        }
    }

    /// RFC 1812 5.2.6, RFC 8200 5: a packet too big for the device is fragmented where that is allowed, otherwise its
    /// sender gets an ICMP error.
    fn fragment(&mut self, packet: &[u8], mtu: usize, now: Instant, sent: &mut Sent) {
        let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let Some(mut cutter) = Cutter::new(packet, mtu, 0).ok().filter(|_| is_v4) else {
            sent.too_big += 1;
            if let Some((source, ..)) = addresses_of(packet) {
                self.report_into_tunnel(source, now, |speaker, out| {
                    pmtu::packet_too_big(packet, mtu, speaker, out)
                });
            }
            return;
        };
        let (mut fragments, mut lens) = (Vec::new(), Vec::new());
        while let Some(len) = cutter.next_into(&mut fragments) {
            lens.push(len);
        }
        let (mut rest, mut frames) = (&fragments[..], Vec::new());
        let mut each = Sent::default();
        for len in lens {
            let (fragment, behind) = rest.split_at(len);
            self.forward(fragment, now, &mut frames, &mut each);
            rest = behind;
        }
        self.flush(&mut frames, now, &mut each);
        // They count as one packet.
        sent.calls += each.calls;
        match each.failed + each.no_buffer + each.too_big {
            0 => sent.packets += 1,
            _ => sent.failed += 1,
        }
    }

    /// Sends the frames of the batch.
    fn flush(&mut self, frames: &mut Vec<OutgoingFrame<'_>>, now: Instant, sent: &mut Sent) {
        if frames.is_empty() {
            return;
        }
        let count = frames.len() as u64;
        match self.egress.open(now) {
            Some(egress) => {
                let outcome = egress.send_frames(frames, sent);
                let native_io = egress.native_io();
                if outcome.is_err() {
                    self.egress.mark_failed(now);
                }
                let stats = &self.shared.stats;
                stats.direct.fetch_add(count, Ordering::Relaxed);
                let number = if native_io == NativeIo::Xdp { 2 } else { 1 };
                stats.native_io.store(number, Ordering::Relaxed);
            }
            None => sent.failed += count,
        }
        frames.clear();
    }
}

/// Bytes of a train's largest packet.
fn segment_len(train: &Delivery<'_>) -> Option<usize> {
    let start = usize::from(train.offload.checksum?.start);
    let first = train.pieces.first()?;
    match train.offload.segmentation {
        Segmentation::None => Some(train.len()),
        Segmentation::Udp { size } => Some(start + 8 + usize::from(size)),
        Segmentation::Tcp { size } => {
            let header_len = usize::from(first.get(start + 12)? >> 4) * 4;
            Some(start + header_len + usize::from(size))
        }
    }
}

fn joined(delivery: &Delivery<'_>) -> Vec<u8> {
    let bytes = delivery.pieces.iter().flat_map(|piece| piece.iter());
    bytes.copied().collect()
}

impl PlaintextSink for EthernetSink {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        let now = Instant::now();
        self.neighbours.check_for_changes(now);
        let mut sent = Sent::default();
        let mut frames = recycle(std::mem::take(&mut self.frames));
        for delivery in deliveries {
            match delivery.pieces {
                _ if delivery.offload != Offload::default() => {
                    self.flush(&mut frames, now, &mut sent);
                    self.forward_train(delivery, now, &mut sent);
                }
                [packet] => self.forward(packet, now, &mut frames, &mut sent),
                _ => {
                    // Rare: a packet that was read in one piece is delivered in one.
                    let whole = joined(delivery);
                    let mut alone = Vec::new();
                    self.flush(&mut frames, now, &mut sent);
                    self.forward(&whole, now, &mut alone, &mut sent);
                    self.flush(&mut alone, now, &mut sent);
                }
            }
        }
        self.flush(&mut frames, now, &mut sent);
        self.frames = recycle(frames);
        Ok(sent)
    }

    fn only_forwards(&self) -> bool {
        true
    }

    fn train_kinds(&self) -> TrainKinds {
        self.egress.options().takes()
    }
}
