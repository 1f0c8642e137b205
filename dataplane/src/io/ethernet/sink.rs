//! The writing end: opened packets straight to the neighbour, and out of this device alone.

use super::trains::TrainExit;
use super::{EthernetOptions, Shared, may_be_forwarded};
use crate::frames::emptied;
use crate::io::packet::exit::{CHANGED, Ends, Exit, Frame};
use crate::io::packet::{ETHERNET, NativeIo, NextHop, NextHops, ethertype};
use crate::io::raw::{WholeSink, open_whole};
use crate::io::{
    Delivery, Family, Parcel, Paths, PlaintextSink, ProtectedSink, Sent, SocketOptions, Warn,
};
use crate::train::cut::Cut;
use crate::train::{Offload, Segmentation, Takes};
use ipsec::fragment::Cutter;
use ipsec::packet::Outline;
use ipsec::pmtu;
use ipsec::tunnel::Outer;
use ipsec::wire::ip::pass_hop;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often each destination gets a packet through the raw socket: the kernel sees that the neighbour is in use, asks
/// whether it is still there, and hears its new address.
const BY_RAW_SOCKET: Duration = Duration::from_secs(10);

/// How often changes are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// After so long an exit that failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// More destinations than this are not remembered.
const MOST_WAYS: usize = 16_384;

/// Sends what came out of the tunnel to hosts behind the device.
pub struct EthernetSink {
    options: EthernetOptions,
    next_hops: Box<dyn NextHops>,
    ways: HashMap<IpAddr, Way>,
    /// The destination of the packet before, and its way.
    last: Option<(IpAddr, Found)>,
    gate: Gate,
    trains: TrainGate,
    raw: [Option<WholeSink>; 2],
    looked: Instant,
    /// Grows with every change: what was found at an earlier one is asked for again.
    epoch: u64,
    /// Frames that wait for the end of the batch; empty between batches.
    frames: Vec<Frame<'static>>,
    shared: Arc<Shared>,
    warn: Warn,
}

/// The way to one destination.
struct Way {
    found: Found,
    epoch: u64,
    by_raw_socket: Instant,
}

/// What is known of a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// To this neighbour.
    Neighbour { ends: Ends, mtu: usize },
    /// By the device, but the neighbour is not known, or the kernel is to see a packet.
    ByRawSocket,
    /// By another device.
    Elsewhere,
}

/// The device's exit, or when it failed.
enum Gate {
    New,
    Open(Exit),
    Shut(Instant),
}

/// The same for trains: what failed once is done without.
enum TrainGate {
    New,
    Open(TrainExit),
    Shut,
}

impl EthernetSink {
    pub(super) fn new(
        options: &EthernetOptions,
        next_hops: Box<dyn NextHops>,
        shared: Arc<Shared>,
        warn: Warn,
    ) -> Self {
        Self {
            options: options.clone(),
            next_hops,
            ways: HashMap::new(),
            last: None,
            gate: Gate::New,
            trains: TrainGate::New,
            raw: [None, None],
            looked: Instant::now(),
            epoch: 0,
            frames: Vec::new(),
            shared,
            warn,
        }
    }

    fn look_for_changes(&mut self, now: Instant) {
        self.last = None;
        if now - self.looked >= LOOK_AGAIN {
            self.looked = now;
            self.epoch += u64::from(self.next_hops.changed());
        }
    }

    fn way_to(&mut self, destination: IpAddr, now: Instant) -> Found {
        match self.last {
            Some((known, found)) if known == destination => found,
            _ => {
                let found = self.find(destination, now);
                // What the kernel is to see once it sees once.
                let lasts = found != Found::ByRawSocket;
                self.last = lasts.then_some((destination, found));
                found
            }
        }
    }

    fn find(&mut self, destination: IpAddr, now: Instant) -> Found {
        if self.ways.len() >= MOST_WAYS && !self.ways.contains_key(&destination) {
            self.ways.clear();
        }
        let Self {
            ways,
            next_hops,
            epoch,
            options,
            ..
        } = self;
        let mut ask = || found(next_hops.find(any(destination), destination), options);
        let way = ways.entry(destination).or_insert_with(|| Way {
            found: ask(),
            epoch: *epoch,
            by_raw_socket: now,
        });
        if way.epoch != *epoch {
            (way.found, way.epoch) = (ask(), *epoch);
        }
        let is_direct = matches!(way.found, Found::Neighbour { .. });
        if is_direct && now - way.by_raw_socket >= BY_RAW_SOCKET {
            way.by_raw_socket = now;
            return Found::ByRawSocket;
        }
        way.found
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
        match self.way_to(destination, now) {
            Found::Neighbour { ends, mtu } if packet.len() <= mtu => match frame(&ends, packet) {
                Some(frame) => frames.push(frame),
                None => sent.failed += 1,
            },
            Found::Neighbour { mtu, .. } => {
                self.leave(frames, now, sent);
                self.cut(packet, mtu, now, sent);
            }
            Found::ByRawSocket if packet.len() > self.options.mtu as usize => {
                self.leave(frames, now, sent);
                self.cut(packet, self.options.mtu as usize, now, sent);
            }
            Found::ByRawSocket => {
                self.leave(frames, now, sent);
                self.send_by_raw_socket(packet, sent);
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
        if let Found::Neighbour { ends, mtu } = self.way_to(destination, now)
            && segment_len(train).is_some_and(|len| len <= mtu)
            && self.send_train(&ends, train, sent)
        {
            self.shared
                .facts
                .direct
                .fetch_add(packets, Ordering::Relaxed);
            return;
        }
        self.forward_pieces(train, now, sent);
    }

    fn send_train(&mut self, ends: &Ends, train: &Delivery<'_>, sent: &mut Sent) -> bool {
        if let TrainGate::New = self.trains {
            self.trains = match TrainExit::open(self.options.device) {
                Ok(exit) => TrainGate::Open(exit),
                Err(why) => self.do_without_trains(&why),
            };
        }
        let TrainGate::Open(exit) = &mut self.trains else {
            return false;
        };
        match exit.send(ends, train, sent) {
            Ok(went) => went,
            // Down, or gone: its packets meet the same, and are counted.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO)) => {
                false
            }
            Err(error) => {
                self.trains = self.do_without_trains(&error);
                false
            }
        }
    }

    fn do_without_trains(&self, why: &io::Error) -> TrainGate {
        (self.warn)(&format!(
            "trains cannot leave {} whole ({why}): they are cut here, slower",
            self.options.name
        ));
        TrainGate::Shut
    }

    /// Sends the packets of a train one by one. Rare, so it may allocate.
    fn forward_pieces(&mut self, train: &Delivery<'_>, now: Instant, sent: &mut Sent) {
        let whole = joined(train);
        let cut =
            Outline::read(&whole).and_then(|outline| Cut::plan(&whole, &outline, train.offload));
        let Ok(cut) = cut else {
            return sent.failed += train.packets();
        };
        for number in 0..cut.count() {
            let mut packet = vec![0; cut.head_len()];
            cut.write_head(&whole, number, &mut packet);
            packet.extend_from_slice(&whole[cut.payload(number)]);
            let mut frames = Vec::new();
            self.forward(&packet, now, &mut frames, sent);
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
        match self.open(now) {
            Some(exit) => {
                let outcome = exit.send_frames(frames, sent);
                let way = exit.way();
                if outcome.is_err() {
                    // Down, or gone: tried again when it may be back.
                    self.gate = Gate::Shut(now);
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

    /// Opens the device's exit if need be.
    fn open(&mut self, now: Instant) -> Option<&mut Exit> {
        let is_due = match &self.gate {
            Gate::New => true,
            Gate::Open(_) => false,
            Gate::Shut(since) => now - *since >= TRY_AGAIN,
        };
        if is_due {
            self.gate = self.try_to_open().map_or(Gate::Shut(now), Gate::Open);
        }
        match &mut self.gate {
            Gate::Open(exit) => Some(exit),
            _ => None,
        }
    }

    fn try_to_open(&self) -> Option<Exit> {
        let order: &[NativeIo] = match self.options.way {
            NativeIo::Xdp => &[NativeIo::Xdp, NativeIo::Packet],
            _ => &[NativeIo::Packet],
        };
        order.iter().find_map(|way| {
            Exit::open(*way, self.options.device, self.options.mtu)
                .map_err(|why| {
                    (self.warn)(&format!(
                        "packets cannot leave {} by `{way}` ({why}): doing without, slower",
                        self.options.name
                    ));
                })
                .ok()
        })
    }

    /// The kernel finds the neighbour, and keeps the packet while it does.
    fn send_by_raw_socket(&mut self, packet: &[u8], sent: &mut Sent) {
        let mut packet = packet.to_vec();
        let outcome = match (pass_hop(&mut packet), Outline::read(&packet)) {
            (true, Ok(outline)) => self.deliver_by_raw_socket(&packet, &outline),
            _ => None,
        };
        let facts = &self.shared.facts;
        facts.by_raw_socket.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Some(outcome) => *sent += outcome,
            None => sent.failed += 1,
        }
    }

    fn deliver_by_raw_socket(&mut self, packet: &[u8], outline: &Outline) -> Option<Sent> {
        let parcel = Parcel {
            outer: Outer {
                // Whoever sent it: the kernel asks only whether the host is this one.
                source: any(outline.destination),
                destination: outline.destination,
                protocol: outline.protocol,
                ports: None,
                traffic_class: outline.traffic_class,
                dont_fragment: true,
                hop_limit: outline.hop_limit,
                written: outline.header_len as u16,
            },
            bytes: packet,
            stride: packet.len(),
        };
        let raw = self.raw_socket(Family::of(outline.destination))?;
        raw.deliver(&[parcel]).ok()
    }

    fn raw_socket(&mut self, family: Family) -> Option<&mut WholeSink> {
        let place = usize::from(family == Family::V6);
        if self.raw[place].is_none() {
            let mut options = SocketOptions::new(Paths::default(), Arc::clone(&self.warn));
            options.mark = Some(self.options.mark);
            options.device = Some(self.options.name.clone());
            self.raw[place] = open_whole(family, &options)
                .map_err(|why| {
                    (self.warn)(&format!("packets for unknown neighbours are lost: {why}"));
                })
                .ok();
        }
        self.raw[place].as_mut()
    }
}

/// The unspecified address of the same family: a route for whoever it comes from.
fn any(other: IpAddr) -> IpAddr {
    match other {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// INVARIANT: a packet that was protected leaves by this device alone.
fn found(hop: Option<NextHop>, options: &EthernetOptions) -> Found {
    match hop {
        None => Found::ByRawSocket,
        Some(hop) if hop.device != options.device => Found::Elsewhere,
        Some(hop) => {
            let mut ends = [0; 12];
            ends[..6].copy_from_slice(&hop.theirs);
            ends[6..].copy_from_slice(&hop.ours);
            Found::Neighbour {
                ends,
                mtu: hop.mtu as usize,
            }
        }
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
        self.look_for_changes(now);
        let mut sent = Sent::default();
        let mut frames = emptied(std::mem::take(&mut self.frames));
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
        self.frames = emptied(frames);
        Ok(sent)
    }

    fn takes_trains(&self) -> Takes {
        self.options.takes()
    }
}
