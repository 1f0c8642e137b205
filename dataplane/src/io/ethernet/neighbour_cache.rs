//! Which way opened packets go: asked of the kernel once for each destination, and again after every change.

use crate::io::packet::{LinkAddresses, NextHop, NextHops};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// How often each destination gets a packet through the raw socket: the kernel sees that the neighbour is in use, asks
/// whether it is still there, and hears its new address.
const NEIGHBOUR_REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// How often the kernel is asked for changes of routes, links and neighbours.
const CHANGE_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// More destinations than this are not remembered.
const MAX_ENTRIES: usize = 16_384;

/// The entries to all destinations of late.
pub(super) struct NeighbourCache {
    /// The only device by which packets may leave.
    device: u32,
    /// What its doors were made for.
    mtu: u32,
    next_hops: Box<dyn NextHops>,
    entries: HashMap<IpAddr, CacheEntry>,
    /// The destination of the packet before, and its way.
    last: Option<(IpAddr, CachedHop)>,
    last_check: Instant,
    /// Grows with every change: what was found at an earlier one is asked for again.
    generation: u64,
}

/// The way to one destination.
struct CacheEntry {
    hop: CachedHop,
    generation: u64,
    last_by_raw_socket: Instant,
}

/// What is known of a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CachedHop {
    /// To this neighbour.
    Neighbour {
        addresses: LinkAddresses,
        mtu: usize,
    },
    /// By the device, but the neighbour is not known, or the kernel is to see a packet.
    ViaRawSocket,
    /// By another device, or to this host itself: a packet that was opened to be forwarded is dropped, for the kernel would
    /// deliver it here if the raw socket sent it.
    OtherDevice,
}

impl NeighbourCache {
    pub fn new(device: u32, mtu: u32, next_hops: Box<dyn NextHops>) -> Self {
        Self {
            device,
            mtu,
            next_hops,
            entries: HashMap::new(),
            last: None,
            last_check: Instant::now(),
            generation: 0,
        }
    }

    /// To be called once for each batch.
    pub fn check_for_changes(&mut self, now: Instant) {
        self.last = None;
        if now - self.last_check >= CHANGE_CHECK_INTERVAL {
            self.last_check = now;
            self.generation += u64::from(self.next_hops.changed());
        }
    }

    /// The way to a destination by now.
    pub fn next_hop(&mut self, destination: IpAddr, now: Instant) -> CachedHop {
        match self.last {
            Some((known, hop)) if known == destination => hop,
            _ => {
                let hop = self.find(destination, now);
                // What the kernel is to see once it sees once.
                let lasts = hop != CachedHop::ViaRawSocket;
                self.last = lasts.then_some((destination, hop));
                hop
            }
        }
    }

    fn find(&mut self, destination: IpAddr, now: Instant) -> CachedHop {
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&destination) {
            self.entries.clear();
        }
        let Self {
            entries,
            next_hops,
            generation,
            device,
            mtu,
            ..
        } = self;
        let mut ask = || match next_hops.find(unspecified(destination), destination) {
            None if next_hops.is_ours(destination) => CachedHop::OtherDevice,
            hop => cached(hop, (*device, *mtu)),
        };
        let entry = entries.entry(destination).or_insert_with(|| CacheEntry {
            hop: ask(),
            generation: *generation,
            last_by_raw_socket: now,
        });
        if entry.generation != *generation {
            (entry.hop, entry.generation) = (ask(), *generation);
        }
        let is_direct = matches!(entry.hop, CachedHop::Neighbour { .. });
        if is_direct && now - entry.last_by_raw_socket >= NEIGHBOUR_REFRESH_INTERVAL {
            entry.last_by_raw_socket = now;
            return CachedHop::ViaRawSocket;
        }
        entry.hop
    }
}

/// The unspecified address of the same family: a route for whoever it comes from.
pub(super) fn unspecified(other: IpAddr) -> IpAddr {
    match other {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// INVARIANT: a packet that was protected leaves by this device alone.
fn cached(hop: Option<NextHop>, (device, mtu): (u32, u32)) -> CachedHop {
    match hop {
        None => CachedHop::ViaRawSocket,
        Some(hop) if hop.device != device => CachedHop::OtherDevice,
        Some(hop) => {
            let mut addresses = [0; 12];
            addresses[..6].copy_from_slice(&hop.theirs);
            addresses[6..].copy_from_slice(&hop.ours);
            CachedHop::Neighbour {
                addresses,
                mtu: hop.mtu.min(mtu) as usize,
            }
        }
    }
}
