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

use super::{NO_COALESCING, NO_SEGMENTATION, Trains, UdpFacts, UdpOptions, UdpSink, UdpSource};
use crate::io::{
    Family, Intake, LARGEST, Parcel, Paths, ProtectedSink, ProtectedSource, Refusal, SocketOptions,
    Wait,
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
pub enum Standing {
    /// Not wanted, or this kernel does not have it.
    Absent,
    /// Used: its trial passed.
    Proven,
    /// Used on the kernel's word: there is no loopback here that could prove it.
    Believed,
    /// Not used: its trial failed.
    Failed,
}

impl Standing {
    fn is_used(self) -> bool {
        matches!(self, Self::Proven | Self::Believed)
    }
}

/// What came of the trials over one IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    /// The kernel cuts what we send.
    pub segments: Standing,
    /// The kernel joins what arrives.
    pub coalesces: Standing,
}

impl Trial {
    /// Nothing was tried yet.
    fn of(wish: Trains) -> Self {
        let standing = |wanted| match wanted {
            true => Standing::Believed,
            false => Standing::Absent,
        };
        Self {
            segments: standing(wish.segment),
            coalesces: standing(wish.coalesce),
        }
    }

    /// What sockets are to use.
    pub fn trains(self) -> Trains {
        Trains {
            segment: self.segments.is_used(),
            coalesce: self.coalesces.is_used(),
        }
    }
}

/// How long a packet of the trial may take over the loopback device. It is there at once; only one that is lost is
/// waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of each packet.
const SIZE: usize = 1000;

/// Packets of a train.
const TRAIN: usize = 3;

/// Tries those trains that are wished for. Less than was hoped for is told to the warning of `options`.
pub fn choose(family: Family, wish: Trains, options: &SocketOptions) -> Trial {
    choose_by(family, wish, options, |sink| Box::new(sink))
}

/// The same, by a way that tests may spoil.
fn choose_by(
    family: Family,
    wish: Trains,
    options: &SocketOptions,
    way: impl FnOnce(UdpSink) -> Box<dyn ProtectedSink>,
) -> Trial {
    let untried = Trial::of(wish);
    if wish == Trains::NONE {
        return untried;
    }
    let Ok(mut bench) = Bench::set_up(family, wish, options, way) else {
        return untried;
    };
    if bench.pass(1, Bench::plain_end).is_err() {
        return untried;
    }
    let segments = match wish.segment {
        true => bench.try_segments(family, options),
        false => untried.segments,
    };
    let coalesces = match wish.coalesce {
        true => bench.try_coalescing(family, options),
        false => untried.coalesces,
    };
    Trial {
        segments,
        coalesces,
    }
}

/// Three sockets of one host.
struct Bench {
    sink: Box<dyn ProtectedSink>,
    facts: Arc<UdpFacts>,
    outer: Outer,
    plain: UdpSource,
    joining: UdpSource,
}

impl Bench {
    fn set_up(
        family: Family,
        wish: Trains,
        options: &SocketOptions,
        way: impl FnOnce(UdpSink) -> Box<dyn ProtectedSink>,
    ) -> Result<Self, Refusal> {
        let (segment, coalesce) = (wish.segment, wish.coalesce);
        let open = |segment, coalesce| open(family, Trains { segment, coalesce }, options);
        let (_, sink) = open(segment, false)?;
        let (plain, _) = open(false, false)?;
        let (joining, _) = open(false, coalesce)?;
        Ok(Self {
            facts: sink.facts(),
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

    fn try_segments(&mut self, family: Family, options: &SocketOptions) -> Standing {
        if !self.facts.segments() {
            (options.warn)(NO_SEGMENTATION);
            return Standing::Absent;
        }
        let mut outcome = self.pass(TRAIN, Self::plain_end);
        if outcome.is_ok() && !self.facts.segments() {
            // The sink has sent the packets of the train one by one.
            outcome = Err(io::Error::other("it was refused"));
        }
        let Err(why) = outcome else {
            return Standing::Proven;
        };
        self.facts.segments.store(false, Ordering::Relaxed);
        (options.warn)(&format!(
            "UDP segmentation over {} failed its trial ({why}): ESP in UDP goes packet by packet, slowly",
            name(family)
        ));
        Standing::Failed
    }

    fn try_coalescing(&mut self, family: Family, options: &SocketOptions) -> Standing {
        if !self.joining.facts().coalesces() {
            (options.warn)(NO_COALESCING);
            return Standing::Absent;
        }
        let Err(why) = self.pass(TRAIN, Self::joining_end) else {
            return Standing::Proven;
        };
        (options.warn)(&format!(
            "UDP GRO over {} failed its trial ({why}): ESP in UDP comes packet by packet, slowly",
            name(family)
        ));
        Standing::Failed
    }

    /// Sends so many packets as one parcel, and sees whether they arrive.
    fn pass(&mut self, count: usize, to: fn(&mut Self) -> &mut UdpSource) -> io::Result<()> {
        let packets: Vec<_> = (1..=count).map(|number| vec![number as u8; SIZE]).collect();
        let (from, port) = (self.outer, to(self).port());
        let parcel = Parcel {
            outer: Outer {
                ports: from.ports.map(|(ours, _)| (ours, port)),
                ..from
            },
            bytes: &packets.concat(),
            stride: SIZE,
        };
        let sent = self.sink.deliver(&[parcel])?;
        if sent.packets == 0 {
            return Err(io::Error::other("it could not be sent"));
        }
        let got = receive(to(self), &from, count * SIZE)?;
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
    trains: Trains,
    options: &SocketOptions,
) -> Result<(UdpSource, UdpSink), Refusal> {
    let socket = SocketOptions {
        // The loopback device belongs to no other.
        device: None,
        buffer: 64 << 10,
        paths: Paths::default(),
        judge: None,
        warn: Arc::new(|_| ()),
        ..options.clone()
    };
    let options = UdpOptions {
        port: 0,
        trains,
        ..UdpOptions::new(socket)
    };
    super::open(family, &options)
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
        written: 0,
    }
}

/// The packets that come from the socket at `from`, until there are so many bytes of them or none come any more.
fn receive(source: &mut UdpSource, from: &Outer, wanted: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut intake = Intake::with_room(LARGEST, TRAIN);
    let (mut packets, mut bytes) = (Vec::new(), 0);
    let end = Instant::now() + PATIENCE;
    while bytes < wanted && Instant::now() < end {
        intake.clear();
        let left = end.saturating_duration_since(Instant::now());
        source.fill(&mut intake, Wait::AtMost(left))?;
        let is_ours = |outer: &Outer| {
            outer.source == from.source
                && outer.ports.map(|(port, _)| port) == from.ports.map(|(port, _)| port)
        };
        let items = intake.items.iter();
        for (range, arrival) in items.filter(|(_, arrival)| is_ours(&arrival.outer)) {
            let item = &intake.bytes[range.clone()];
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
