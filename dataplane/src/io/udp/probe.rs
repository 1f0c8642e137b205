//! Whether trains of datagrams really work here: asked of the kernel, then tried with real packets over the loopback device.
//!
//! ```text
//!   one packet     ──► plain socket      nothing comes: no loopback here, nothing is proven, the kernel is believed
//!   a train of 3   ──► plain socket      the kernel cuts (UDP_SEGMENT): 3 equal packets, in order
//!   a train of 3   ──► joining socket    the kernel joins (UDP_GRO): the same, coalesced or not
//! ```
//!
//! The packets go from one socket of ours to another, at ports of the kernel's choice and through the same source and sink
//! as all others. What fails is done without, and said aloud.

use super::open::{NO_COALESCING, NO_SEGMENTATION};
use super::options::{UdpOffloads, UdpOptions};
use super::sink::UdpSink;
use super::source::UdpSource;
use super::stats::UdpStats;
use crate::io::{
    Burst, Family, MAX_ITEM_BYTES, OpenError, PmtuCache, ProtectedSink, ProtectedSource,
    ReceiveBuffer, SocketOptions, Wait,
};
use ipsec::tunnel::Outer;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// How one use of trains stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadState {
    /// Not wanted, or this kernel does not have it.
    Absent,
    /// Used: its trial passed.
    Proven,
    /// Used on the kernel's word: there is no loopback here that could prove it.
    Believed,
    /// Not used: its trial failed.
    Failed,
}

impl OffloadState {
    fn is_used(self) -> bool {
        matches!(self, Self::Proven | Self::Believed)
    }
}

/// What came of the trials over one IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpProbe {
    /// The kernel cuts what we send.
    pub segments: OffloadState,
    /// The kernel joins what arrives.
    pub coalesces: OffloadState,
}

impl UdpProbe {
    /// Nothing was tried yet.
    fn of(wish: UdpOffloads) -> Self {
        let standing = |wanted| match wanted {
            true => OffloadState::Believed,
            false => OffloadState::Absent,
        };
        Self {
            segments: standing(wish.segment),
            coalesces: standing(wish.coalesce),
        }
    }

    /// What sockets are to use.
    pub fn offloads(self) -> UdpOffloads {
        UdpOffloads {
            segment: self.segments.is_used(),
            coalesce: self.coalesces.is_used(),
        }
    }
}

/// How long a packet of the trial may take over the loopback device. It is there at once; only one that is lost is
/// waited for.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of each packet.
const PACKET_BYTES: usize = 1000;

/// Packets of a train.
const TRAIN_PACKETS: usize = 3;

/// Tries those trains that are wished for. Less than was hoped for is told to the warning of `options`.
pub fn probe(family: Family, wish: UdpOffloads, options: &SocketOptions) -> UdpProbe {
    probe_by(family, wish, options, |sink| Box::new(sink))
}

/// The same, by a way that tests may spoil.
fn probe_by(
    family: Family,
    wish: UdpOffloads,
    options: &SocketOptions,
    way: impl FnOnce(UdpSink) -> Box<dyn ProtectedSink>,
) -> UdpProbe {
    let untried = UdpProbe::of(wish);
    if wish == UdpOffloads::NONE {
        return untried;
    }
    let Ok(mut sockets) = ProbeSockets::set_up(family, wish, options, way) else {
        return untried;
    };
    if sockets.pass(1, ProbeSockets::plain_end).is_err() {
        return untried;
    }
    let segments = match wish.segment {
        true => sockets.try_segments(family, options),
        false => untried.segments,
    };
    let coalesces = match wish.coalesce {
        true => sockets.try_coalescing(family, options),
        false => untried.coalesces,
    };
    UdpProbe {
        segments,
        coalesces,
    }
}

/// Three sockets of one host.
struct ProbeSockets {
    sink: Box<dyn ProtectedSink>,
    stats: Arc<UdpStats>,
    outer: Outer,
    plain: UdpSource,
    joining: UdpSource,
}

impl ProbeSockets {
    fn set_up(
        family: Family,
        wish: UdpOffloads,
        options: &SocketOptions,
        way: impl FnOnce(UdpSink) -> Box<dyn ProtectedSink>,
    ) -> Result<Self, OpenError> {
        let (segment, coalesce) = (wish.segment, wish.coalesce);
        let open = |segment, coalesce| open(family, UdpOffloads { segment, coalesce }, options);
        let (_, sink) = open(segment, false)?;
        let (plain, _) = open(false, false)?;
        let (joining, _) = open(false, coalesce)?;
        Ok(Self {
            stats: sink.stats(),
            outer: outer(family, sink.port()),
            sink: way(sink),
            plain,
            joining,
        })
    }

    fn plain_end(&mut self) -> &mut UdpSource {
        &mut self.plain
    }

    fn joining_end(&mut self) -> &mut UdpSource {
        &mut self.joining
    }

    fn try_segments(&mut self, family: Family, options: &SocketOptions) -> OffloadState {
        if !self.stats.segments() {
            (options.warn)(NO_SEGMENTATION);
            return OffloadState::Absent;
        }
        let mut outcome = self.pass(TRAIN_PACKETS, Self::plain_end);
        if outcome.is_ok() && !self.stats.segments() {
            // The sink has sent the packets of the train one by one.
            outcome = Err(io::Error::other("it was refused"));
        }
        let Err(why) = outcome else {
            return OffloadState::Proven;
        };
        self.stats.segments.store(false, Ordering::Relaxed);
        (options.warn)(&format!(
            "UDP segmentation over {} failed its trial ({why}): ESP in UDP goes packet by packet, slowly",
            name(family)
        ));
        OffloadState::Failed
    }

    fn try_coalescing(&mut self, family: Family, options: &SocketOptions) -> OffloadState {
        if !self.joining.stats().coalesces() {
            (options.warn)(NO_COALESCING);
            return OffloadState::Absent;
        }
        let Err(why) = self.pass(TRAIN_PACKETS, Self::joining_end) else {
            return OffloadState::Proven;
        };
        (options.warn)(&format!(
            "UDP GRO over {} failed its trial ({why}): ESP in UDP comes packet by packet, slowly",
            name(family)
        ));
        OffloadState::Failed
    }

    /// Sends so many packets as one burst, and sees whether they arrive.
    fn pass(&mut self, count: usize, to: fn(&mut Self) -> &mut UdpSource) -> io::Result<()> {
        let packets: Vec<_> = (1..=count)
            .map(|number| vec![number as u8; PACKET_BYTES])
            .collect();
        let (from, port) = (self.outer, to(self).port());
        let burst = Burst {
            outer: Outer {
                ports: from.ports.map(|(ours, _)| (ours, port)),
                ..from
            },
            bytes: &packets.concat(),
            stride: PACKET_BYTES,
        };
        let sent = self.sink.deliver(&[burst])?;
        if sent.packets == 0 {
            return Err(io::Error::other("it could not be sent"));
        }
        let got = receive(to(self), &from, count * PACKET_BYTES)?;
        match got == packets {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "of {count} packets {} arrived whole and in order",
                got.iter().zip(&packets).filter(|(a, b)| a == b).count()
            ))),
        }
    }
}

/// A socket at a port of the kernel's choice. Of its other shortcomings the real one will speak.
fn open(
    family: Family,
    offloads: UdpOffloads,
    options: &SocketOptions,
) -> Result<(UdpSource, UdpSink), OpenError> {
    let socket = SocketOptions {
        // The loopback device belongs to no other.
        device: None,
        buffer: 64 << 10,
        paths: PmtuCache::default(),
        mtu_report_check: None,
        warn: Arc::new(|_| ()),
        ..options.clone()
    };
    let options = UdpOptions {
        port: 0,
        offloads,
        ..UdpOptions::new(socket)
    };
    super::open::open(family, &options)
}

/// From this host to itself.
fn outer(family: Family, port: u16) -> Outer {
    let here: IpAddr = match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    };
    Outer {
        source: here,
        destination: here,
        protocol: 17,
        ports: Some((port, 0)),
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 64,
        emitted_len: 0,
    }
}

/// The packets that come from the socket at `from`, until there are so many bytes of them or none come any more.
fn receive(source: &mut UdpSource, from: &Outer, wanted: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, TRAIN_PACKETS);
    let (mut packets, mut bytes) = (Vec::new(), 0);
    let end = Instant::now() + PROBE_TIMEOUT;
    while bytes < wanted && Instant::now() < end {
        buffer.clear();
        let left = end.saturating_duration_since(Instant::now());
        source.fill(&mut buffer, Wait::AtMost(left))?;
        let is_ours = |outer: &Outer| {
            outer.source == from.source
                && outer.ports.map(|(port, _)| port) == from.ports.map(|(port, _)| port)
        };
        let items = buffer.items.iter();
        for (range, arrival) in items.filter(|(_, arrival)| is_ours(&arrival.outer)) {
            let item = &buffer.bytes[range.clone()];
            packets.extend(item.chunks(arrival.stride).map(<[u8]>::to_vec));
            bytes += item.len();
        }
    }
    Ok(packets)
}

fn name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
