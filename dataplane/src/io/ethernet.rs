//! An Ethernet device as the plaintext side: packets of hosts behind it are forwarded without a TUN device.
//!
//! ```text
//!   hosts ──► device ──┬─► packet ring ──► EthernetSource ──► outbound      what a policy protects, and only that
//!                      └─► kernel: the same packets, of which it drops what the ring takes, and keeps the rest
//!   hosts ◄── device ◄──┬─ AF_XDP or packet socket ◄── EthernetSink ◄── inbound      straight to the neighbour
//!                       └─ raw socket bound to the device: no neighbour yet, and once in a while so that it stays known
//! ```
//!
//! A TUN device costs a route look-up, all of netfilter and a system call for each packet that is no train. Here small
//! packets cost neither. Receiving by AF_XDP would need a program in the kernel and gain nothing (see `io/xdp.rs`): the
//! ring it is.
//!
//! **Who takes what.** The ring is a tap: the kernel sees each packet too. Both ask the same policies: the source takes what
//! one of them protects or discards; the gateway makes the kernel drop just that, before anything else looks at it. If the
//! two ever differ, the drop rules behind forwarding still keep protected traffic from leaving in clear. Left to the kernel:
//! what no policy names or one lets pass, packets to addresses of this host, broadcast and multicast, ARP, VLANs,
//! link-local addresses, and whatever cannot be read.
//!
//! **A router's duties.** Both ends take one off the hop limit (RFC 1812 5.3.1); where it was the last, the sender hears
//! "time exceeded" from the device's own address. IPv4's header checksum is verified (RFC 1812 5.2.2). What is too big for
//! the tunnel is answered as ever by [`crate::outbound`]; what came out of the tunnel too big for the device is cut where
//! that is allowed, else its sender is told. Such answers enter the tunnel as if they had come by the device: an `Echoes`
//! queue leads from the sink to the source. Reports are limited to [`ECHOES_PER_SECOND`].
//!
//! **Checksums and trains.** A packet from a host in another namespace, or merged by the device (GRO), has its checksum
//! unfinished and may be a train: the ring's virtio header tells, and the engine does the rest as it does for a TUN device.
//! A train is larger than a frame of the ring: it waits whole in the socket's queue. Outwards trains go by a packet socket
//! with virtio headers, and the device has them cut; where that fails they are cut here, which is told once.
//!
//! **Not here**: this host's own traffic (it has no way into the tunnel, nor out of it), options of IPv4 headers (passed on
//! as they are), redirects, and a way out by any other device than this one: what would leave elsewhere is dropped, since
//! that would be in clear.

mod doors;
mod sink;
pub(super) mod source;
#[cfg(test)]
mod tests;
mod trains;
mod ways;

pub use sink::EthernetSink;
pub use source::EthernetSource;

use super::packet::ring::Ring;
use super::packet::{NativeIo, NextHops};
use super::{Waker, Warn};
use crate::train::TrainKinds;
use arc_swap::ArcSwap;
use ipsec::database::Snapshot;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Which device it is.
#[derive(Clone, Debug)]
pub struct EthernetOptions {
    /// Its name.
    pub name: String,
    /// Its index.
    pub device: u32,
    /// The largest IP packet it takes.
    pub mtu: u32,
    /// The mark of packets that go through a raw socket.
    pub mark: u32,
    /// By which way packets leave, where it works: AF_XDP, or else a packet socket.
    pub way: NativeIo,
    /// Whether trains may leave whole.
    pub trains: bool,
}

const ALL: TrainKinds = TrainKinds {
    tcp_v4: true,
    tcp_v6: true,
    udp: true,
};

impl EthernetOptions {
    fn takes(&self) -> TrainKinds {
        if self.trains {
            ALL
        } else {
            TrainKinds::default()
        }
    }
}

/// The open device. Packets pile up in its ring until a source is made.
pub struct Ethernet {
    options: EthernetOptions,
    ring: Option<Ring>,
    shared: Arc<Shared>,
    warn: Warn,
}

/// What source and sinks of one device have in common.
#[derive(Default)]
struct Shared {
    hosts: ArcSwap<Hosts>,
    facts: EthernetFacts,
    echoes: Echoes,
}

/// Addresses of this host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hosts {
    /// All of them: what is sent to these is the kernel's.
    pub ours: HashSet<IpAddr>,
    /// Those of the device: reports about packets come from here.
    pub speakers: Vec<IpAddr>,
}

impl Hosts {
    /// The address by which this router speaks to `other`.
    fn speaker_to(&self, other: IpAddr) -> Option<IpAddr> {
        let mut speakers = self.speakers.iter();
        speakers
            .find(|speaker| speaker.is_ipv4() == other.is_ipv4() && !is_link_local(**speaker))
            .copied()
    }
}

/// What became of packets, for `status`.
#[derive(Debug, Default)]
pub struct EthernetFacts {
    taken: AtomicU64,
    left: AtomicU64,
    lost: AtomicU64,
    direct: AtomicU64,
    by_raw_socket: AtomicU64,
    undeliverable: AtomicU64,
    expired: AtomicU64,
    way: AtomicU8,
}

impl EthernetFacts {
    /// Packets and trains taken from the ring.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Packets that were seen and left to the kernel.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Packets for which there was no room, in the ring or behind it.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Opened packets that went straight to a neighbour.
    pub fn direct(&self) -> u64 {
        self.direct.load(Ordering::Relaxed)
    }

    /// Opened packets that went through a raw socket.
    pub fn by_raw_socket(&self) -> u64 {
        self.by_raw_socket.load(Ordering::Relaxed)
    }

    /// Opened packets that have no place behind the device: for this host, for another device, or for no single host.
    pub fn undeliverable(&self) -> u64 {
        self.undeliverable.load(Ordering::Relaxed)
    }

    /// Packets whose hop limit ended here.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// By which way packets left last; raw before the first.
    pub fn way(&self) -> NativeIo {
        match self.way.load(Ordering::Relaxed) {
            1 => NativeIo::Packet,
            2 => NativeIo::Xdp,
            _ => NativeIo::Raw,
        }
    }
}

/// A hand on a device that is at work.
#[derive(Clone)]
pub struct EthernetHandle(Arc<Shared>);

impl EthernetHandle {
    /// From now on these are the addresses of this host.
    pub fn know(&self, hosts: Hosts) {
        if **self.0.hosts.load() != hosts {
            self.0.hosts.store(Arc::new(hosts));
        }
    }

    /// What became of packets so far.
    pub fn facts(&self) -> &EthernetFacts {
        &self.0.facts
    }
}

impl Ethernet {
    /// Opens the device's ring.
    pub fn open(options: EthernetOptions, warn: &Warn) -> io::Result<Self> {
        let ring = Ring::open_for_router(options.device, options.mtu)?;
        Ok(Self {
            options,
            ring: Some(ring),
            shared: Arc::default(),
            warn: Arc::clone(warn),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Its index.
    pub fn device(&self) -> u32 {
        self.options.device
    }

    /// For those who look after it.
    pub fn handle(&self) -> EthernetHandle {
        EthernetHandle(Arc::clone(&self.shared))
    }

    /// Which trains it hands over: all, for hosts beside it and its own merging make them.
    pub fn reads(&self) -> TrainKinds {
        ALL
    }

    /// Which trains it takes.
    pub fn takes(&self) -> TrainKinds {
        self.options.takes()
    }

    /// Its source, once: what the kernel has already had its way with is passed over. The snapshot of each read decides
    /// what is taken; `waker` ends the sleep.
    pub fn source(
        &mut self,
        databases: Arc<ArcSwap<Snapshot>>,
        waker: Waker,
    ) -> Option<EthernetSource> {
        let ring = self.ring.take()?;
        self.shared.echoes.wakes(waker.clone());
        Some(EthernetSource::new(
            ring,
            databases,
            waker,
            Arc::clone(&self.shared),
        ))
    }

    /// A sink of its own, which asks `next_hops` for its way.
    pub fn sink(&self, next_hops: Box<dyn NextHops>) -> EthernetSink {
        let shared = Arc::clone(&self.shared);
        EthernetSink::new(&self.options, next_hops, shared, Arc::clone(&self.warn))
    }

    /// The same for a few packets now and then: it leaves the device's queue to another one.
    pub fn side_sink(&self, next_hops: Box<dyn NextHops>) -> EthernetSink {
        let options = EthernetOptions {
            way: NativeIo::Packet,
            trains: false,
            ..self.options.clone()
        };
        let shared = Arc::clone(&self.shared);
        EthernetSink::new(&options, next_hops, shared, Arc::clone(&self.warn))
    }
}

/// Reports of ours that enter the tunnel, and how many of any kind there may be (RFC 1812 4.3.2.8, RFC 4443 2.4 (f)).
#[derive(Default)]
struct Echoes(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Vec<u8>>,
    waker: Option<Waker>,
    /// The present second's beginning, and what was granted in it.
    second: Option<(Instant, u32)>,
}

/// So many reports a second are sent, of every kind together.
pub const ECHOES_PER_SECOND: u32 = 200;

/// More of them do not wait.
const MOST_WAITING: usize = 64;

impl Echoes {
    fn wakes(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// Whether one more report may be sent.
    fn may_report(&self, now: Instant) -> bool {
        let mut queue = self.lock();
        let (start, granted) = match queue.second {
            Some((start, granted)) if now - start < Duration::from_secs(1) => (start, granted),
            _ => (now, 0),
        };
        queue.second = Some((start, granted.saturating_add(1)));
        granted < ECHOES_PER_SECOND
    }

    /// The source reads this packet next.
    fn send(&self, packet: Vec<u8>) {
        let mut queue = self.lock();
        if queue.waiting.len() < MOST_WAITING {
            queue.waiting.push_back(packet);
            if let Some(waker) = &queue.waker {
                waker.wake();
            }
        }
    }

    fn next(&self) -> Option<Vec<u8>> {
        self.lock().waiting.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A queue of whole packets is whole after any panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether packets from one of these to the other may pass a router: single hosts, beyond a link (RFC 1812 5.3.7, RFC 3927
/// 7, RFC 4291 2.5.6).
fn may_be_forwarded(source: IpAddr, destination: IpAddr) -> bool {
    let may_stand = |address: IpAddr| {
        let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        !(is_broadcast
            || address.is_multicast()
            || address.is_loopback()
            || address.is_unspecified()
            || is_link_local(address))
    };
    may_stand(source) && may_stand(destination)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
