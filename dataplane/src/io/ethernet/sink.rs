//! The writing end: opened packets straight to the neighbour, and out of this device alone.

use super::doors::Doors;
use super::ways::{Found, Ways};
use super::{EthernetOptions, Shared, may_be_forwarded};
use crate::buffers::recycle;
use crate::io::packet::exit::{CHANGED, Ends, Frame};
use crate::io::packet::{ETHERNET, NativeIo, NextHops, ethertype};
use crate::io::{Delivery, PlaintextSink, Sent, Warn};
use crate::train::segments::Segments;
use crate::train::{Offload, Segmentation, TrainKinds};
use ipsec::fragment::Cutter;
use ipsec::packet::Outline;
use ipsec::pmtu;
use ipsec::wire::ip::pass_hop;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Sends what came out of the tunnel to hosts behind the device.
pub struct EthernetSink {
    ways: Ways,
    doors: Doors,
    /// Frames that wait for the end of the batch; empty between batches.
    frames: Vec<Frame<'static>>,
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
            ways: Ways::by(options.device, options.mtu, next_hops),
            doors: Doors::of(options.clone(), warn),
            frames: Vec::new(),
            shared,
        }
    }

    /// Sends one packet on its way, or puts it to the frames that wait.
    fn forward<'a>(
        &mut self,
        packet: &'a [u8],
        now: Instant,
        frames: &mut Vec<Frame<'a>>,
        sent: &mut Sent,
    ) {
        let destination = match self.admit(packet, now) {
            Ok(destination) => destination,
            Err(()) => return sent.failed += 1,
        };
        let found = self.ways.way_to(destination, now);
        self.send_on(found, packet, now, frames, sent);
    }

    fn send_on<'a>(
        &mut self,
        found: Found,
        packet: &'a [u8],
        now: Instant,
        frames: &mut Vec<Frame<'a>>,
        sent: &mut Sent,
    ) {
        let device_mtu = self.doors.options().mtu as usize;
        match found {
            Found::Neighbour { ends, mtu } if packet.len() <= mtu => match frame(&ends, packet) {
                Some(frame) => frames.push(frame),
                None => sent.failed += 1,
            },
            Found::Neighbour { mtu, .. } => {
                self.leave(frames, now, sent);
                self.cut(packet, mtu, now, sent);
            }
            Found::ByRawSocket if packet.len() > device_mtu => {
                self.leave(frames, now, sent);
                self.cut(packet, device_mtu, now, sent);
            }
            Found::ByRawSocket => {
                self.leave(frames, now, sent);
                let facts = &self.shared.facts;
                facts.by_raw_socket.fetch_add(1, Ordering::Relaxed);
                self.doors.send_by_raw_socket(packet, sent);
            }
            Found::Elsewhere => {
                self.shared
                    .facts
                    .undeliverable
                    .fetch_add(1, Ordering::Relaxed);
                sent.failed += 1;
            }
        }
    }

    /// Sends a train whole, or cut where that cannot be.
    fn forward_train(&mut self, train: &Delivery<'_>, now: Instant, sent: &mut Sent) {
        let Some(first) = train.pieces.first() else {
            return;
        };
        let packets = train.packets();
        let Ok(destination) = self.admit(first, now) else {
            return sent.failed += packets;
        };
        let found = self.ways.way_to(destination, now);
        if let Found::Neighbour { ends, mtu } = found
            && segment_len(train).is_some_and(|len| len <= mtu)
            && self.doors.send_train(&ends, train, sent)
        {
            self.shared
                .facts
                .direct
                .fetch_add(packets, Ordering::Relaxed);
            return;
        }
        self.forward_pieces(found, train, now, sent);
    }

    /// Sends the packets of a train one by one, the first on the way that was found: if the kernel was to see a packet, it
    /// sees that one. Rare, so it may allocate.
    fn forward_pieces(
        &mut self,
        found: Found,
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
                0 => self.send_on(found, &packet, now, &mut frames, sent),
                _ => self.forward(&packet, now, &mut frames, sent),
            }
            self.leave(&mut frames, now, sent);
        }
    }

    /// The destination of a packet that may pass.
    fn admit(&self, packet: &[u8], now: Instant) -> Result<IpAddr, ()> {
        let facts = &self.shared.facts;
        let (source, destination, hop_limit) = ends_of(packet).ok_or(())?;
        let hosts = self.shared.hosts.load();
        if !may_be_forwarded(source, destination) || hosts.ours.contains(&destination) {
            facts.undeliverable.fetch_add(1, Ordering::Relaxed);
            return Err(());
        }
        if hop_limit <= 1 {
            facts.expired.fetch_add(1, Ordering::Relaxed);
            self.echo(source, now, |speaker, out| {
                pmtu::report_expired(packet, speaker, out)
            });
            return Err(());
        }
        Ok(destination)
    }

    /// Tells a sender beyond the tunnel, through the tunnel.
    fn echo(&self, sender: IpAddr, now: Instant, write: impl FnOnce(IpAddr, &mut Vec<u8>) -> bool) {
        let mut report = Vec::new();
        if let Some(speaker) = self.shared.hosts.load().speaker_to(sender)
            && write(speaker, &mut report)
            && self.shared.echoes.may_report(now)
        {
            self.shared.echoes.send(report);
        }
    }

    /// RFC 1812 5.2.6, RFC 8200 5: what is too big for the device is cut where that is allowed, else its sender is told.
    fn cut(&mut self, packet: &[u8], mtu: usize, now: Instant, sent: &mut Sent) {
        let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let Some(mut cutter) = Cutter::new(packet, mtu, 0).ok().filter(|_| is_v4) else {
            sent.too_big += 1;
            if let Some((source, ..)) = ends_of(packet) {
                self.echo(source, now, |speaker, out| {
                    pmtu::report(packet, mtu, speaker, out)
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
        self.leave(&mut frames, now, &mut each);
        // They were one packet to whoever counts.
        sent.calls += each.calls;
        match each.failed + each.no_buffer + each.too_big {
            0 => sent.packets += 1,
            _ => sent.failed += 1,
        }
    }

    /// Sends the frames that wait.
    fn leave(&mut self, frames: &mut Vec<Frame<'_>>, now: Instant, sent: &mut Sent) {
        if frames.is_empty() {
            return;
        }
        let count = frames.len() as u64;
        match self.doors.exit(now) {
            Some(exit) => {
                let outcome = exit.send_frames(frames, sent);
                let way = exit.way();
                if outcome.is_err() {
                    self.doors.shut(now);
                }
                let facts = &self.shared.facts;
                facts.direct.fetch_add(count, Ordering::Relaxed);
                let way = if way == NativeIo::Xdp { 2 } else { 1 };
                facts.way.store(way, Ordering::Relaxed);
            }
            None => sent.failed += count,
        }
        frames.clear();
    }
}

/// The frame of a packet that goes one hop on.
fn frame<'a>(ends: &Ends, packet: &'a [u8]) -> Option<Frame<'a>> {
    let (head, rest) = (head(ends, packet)?, packet.get(CHANGED..)?);
    Some(Frame { head, rest })
}

/// Link header, and the beginning of the packet's own as the next hop is to see it.
pub(super) fn head(ends: &Ends, packet: &[u8]) -> Option<[u8; ETHERNET + CHANGED]> {
    let changed = packet.first_chunk::<CHANGED>()?;
    let mut head = [0; ETHERNET + CHANGED];
    head[..ends.len()].copy_from_slice(ends);
    let version = if changed[0] >> 4 == 4 {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    head[ends.len()..ETHERNET].copy_from_slice(&ethertype(version));
    head[ETHERNET..].copy_from_slice(changed);
    pass_hop(&mut head[ETHERNET..]).then_some(head)
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

/// Source, destination and hop limit: all that is looked at of an opened packet, whose headers have been read before.
fn ends_of(packet: &[u8]) -> Option<(IpAddr, IpAddr, u8)> {
    match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<20>()?;
            let address = |at: usize| Some(IpAddr::from(*header[at..].first_chunk::<4>()?));
            Some((address(12)?, address(16)?, header[8]))
        }
        6 => {
            let header = packet.first_chunk::<40>()?;
            let address = |at: usize| Some(IpAddr::from(*header[at..].first_chunk::<16>()?));
            Some((address(8)?, address(24)?, header[7]))
        }
        _ => None,
    }
}

impl PlaintextSink for EthernetSink {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        let now = Instant::now();
        self.ways.look_for_changes(now);
        let mut sent = Sent::default();
        let mut frames = recycle(std::mem::take(&mut self.frames));
        for delivery in deliveries {
            match delivery.pieces {
                _ if delivery.offload != Offload::default() => {
                    self.leave(&mut frames, now, &mut sent);
                    self.forward_train(delivery, now, &mut sent);
                }
                [packet] => self.forward(packet, now, &mut frames, &mut sent),
                _ => {
                    // Rare: what came in one piece stays in it.
                    let whole = joined(delivery);
                    let mut alone = Vec::new();
                    self.leave(&mut frames, now, &mut sent);
                    self.forward(&whole, now, &mut alone, &mut sent);
                    self.leave(&mut alone, now, &mut sent);
                }
            }
        }
        self.leave(&mut frames, now, &mut sent);
        self.frames = recycle(frames);
        Ok(sent)
    }

    fn only_forwards(&self) -> bool {
        true
    }

    fn train_kinds(&self) -> TrainKinds {
        self.doors.options().takes()
    }
}
