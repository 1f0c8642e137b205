//! Whether UDP GSO and GRO really work here: they are enabled, then real packets are sent over the loopback device.
//!
//! ```text
//!   1 packet   ──► plain socket   nothing arrives: no loopback here, so the kernel's answer is all there is
//!   3 packets  ──► plain socket   segmented by the kernel (UDP_SEGMENT): 3 equal packets, in order
//!   3 packets  ──► GRO socket     coalesced by the kernel (UDP_GRO): the same, in one receive or several
//! ```
//!
//! The packets go from one socket of this process to another, at ports of the kernel's choice, through the same source
//! and sink as all others. What fails is not used, and a warning names it.

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

/// State of one offload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadState {
    /// Disabled by the options, or this kernel does not have it.
    Absent,
    /// Used: its probe passed.
    Proven,
    /// Used because the kernel has it; not probed, since nothing passes the loopback device.
    Assumed,
    /// Not used: its probe failed.
    Failed,
}

impl OffloadState {
    fn is_used(self) -> bool {
        matches!(self, Self::Proven | Self::Assumed)
    }
}

/// The results over one IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpProbe {
    /// The kernel segments what is sent.
    pub segments: OffloadState,
    /// The kernel coalesces what arrives.
    pub coalesces: OffloadState,
}

impl UdpProbe {
    /// Before the probe.
    fn of(wish: UdpOffloads) -> Self {
        let standing = |wanted| {
            if wanted {
                OffloadState::Assumed
            } else {
                OffloadState::Absent
            }
        };
        Self {
            segments: standing(wish.segment),
            coalesces: standing(wish.coalesce),
        }
    }

    /// The offloads that sockets should use.
    pub fn offloads(self) -> UdpOffloads {
        UdpOffloads {
            segment: self.segments.is_used(),
            coalesce: self.coalesces.is_used(),
        }
    }
}

/// How long a packet of the probe may take over the loopback device. It normally arrives at once; only a lost one is
/// waited for.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of each packet.
const PACKET_BYTES: usize = 1000;

/// Packets of one message.
const TRAIN_PACKETS: usize = 3;

/// Probes the offloads in `wish`; each failure is reported to the warning of `options`.
pub fn probe(family: Family, wish: UdpOffloads, options: &SocketOptions) -> UdpProbe {
    probe_by(family, wish, options, |sink| Box::new(sink))
}

/// The same; tests wrap the sink in one that fails.
fn probe_by(
    family: Family,
    wish: UdpOffloads,
    options: &SocketOptions,
    wrap: impl FnOnce(UdpSink) -> Box<dyn ProtectedSink>,
) -> UdpProbe {
    let untried = UdpProbe::of(wish);
    if wish == UdpOffloads::NONE {
        return untried;
    }
    let Ok(mut sockets) = ProbeSockets::set_up(family, wish, options, wrap) else {
        return untried;
    };
    if sockets.pass(1, ProbeSockets::plain_source).is_err() {
        return untried;
    }
    let segments = if wish.segment {
        sockets.try_segments(family, options)
    } else {
        untried.segments
    };
    let coalesces = if wish.coalesce {
        sockets.try_coalescing(family, options)
    } else {
        untried.coalesces
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
    gro: UdpSource,
}

impl ProbeSockets {
    fn set_up(
        family: Family,
        wish: UdpOffloads,
        options: &SocketOptions,
        wrap: impl FnOnce(UdpSink) -> Box<dyn ProtectedSink>,
    ) -> Result<Self, OpenError> {
        let (segment, coalesce) = (wish.segment, wish.coalesce);
        let open = |segment, coalesce| open(family, UdpOffloads { segment, coalesce }, options);
        let (_, sink) = open(segment, false)?;
        let (plain, _) = open(false, false)?;
        let (gro, _) = open(false, coalesce)?;
        Ok(Self {
            stats: sink.stats(),
            outer: outer(family, sink.port()),
            sink: wrap(sink),
            plain,
            gro,
        })
    }

    fn plain_source(&mut self) -> &mut UdpSource {
        &mut self.plain
    }

    fn gro_source(&mut self) -> &mut UdpSource {
        &mut self.gro
    }

    fn try_segments(&mut self, family: Family, options: &SocketOptions) -> OffloadState {
        if !self.stats.segments() {
            (options.warn)(NO_SEGMENTATION);
            return OffloadState::Absent;
        }
        let mut outcome = self.pass(TRAIN_PACKETS, Self::plain_source);
        if outcome.is_ok() && !self.stats.segments() {
            // The sink has sent the packets one by one.
            outcome = Err(io::Error::other("it was refused"));
        }
        let Err(why) = outcome else {
            return OffloadState::Proven;
        };
        self.stats.segments.store(false, Ordering::Relaxed);
        (options.warn)(&format!(
            "UDP segmentation over {} failed verification ({why}): ESP in UDP is sent packet by packet (slower)",
            name(family)
        ));
        OffloadState::Failed
    }

    fn try_coalescing(&mut self, family: Family, options: &SocketOptions) -> OffloadState {
        if !self.gro.stats().coalesces() {
            (options.warn)(NO_COALESCING);
            return OffloadState::Absent;
        }
        let Err(why) = self.pass(TRAIN_PACKETS, Self::gro_source) else {
            return OffloadState::Proven;
        };
        (options.warn)(&format!(
            "UDP GRO over {} failed verification ({why}): ESP in UDP is received packet by packet (slower)",
            name(family)
        ));
        OffloadState::Failed
    }

    /// Sends `count` packets as one burst and checks that they arrive.
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
        if got == packets {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "of {count} packets {} arrived whole and in order",
            got.iter().zip(&packets).filter(|(a, b)| a == b).count()
        )))
    }
}

/// Opens a socket at a port of the kernel's choice, without warnings: the real socket will issue them.
fn open(
    family: Family,
    offloads: UdpOffloads,
    options: &SocketOptions,
) -> Result<(UdpSource, UdpSink), OpenError> {
    let socket = SocketOptions {
        // The loopback device is in no VRF.
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

/// The packets that come from the socket at `from`, until there are `wanted` bytes of them or the time is over.
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
