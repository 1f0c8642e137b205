//! Next hops of decrypted packets: looked up once for each destination, and again after every change.

use crate::io::packet::{LinkAddresses, NextHop, NextHops};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// How often each destination gets a packet through the raw socket: the kernel sees that its neighbour entry is in use,
/// verifies the neighbour and learns its new MAC address.
const NEIGHBOUR_REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// How often the kernel is queried for changes of routes, links and neighbours.
const CHANGE_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The cache is emptied when it has this many destinations.
const MAX_ENTRIES: usize = 16_384;

/// The next hops of recent destinations.
pub(super) struct NeighbourCache {
    /// The only device that packets may leave by.
    device: u32,
    /// The MTU that its egress was opened for.
    mtu: u32,
    next_hops: Box<dyn NextHops>,
    entries: HashMap<IpAddr, CacheEntry>,
    /// The destination of the previous packet, and its next hop.
    last: Option<(IpAddr, CachedHop)>,
    last_check: Instant,
    /// Grows with every change: entries of an earlier generation are looked up again.
    generation: u64,
}

/// The next hop of one destination.
struct CacheEntry {
    hop: CachedHop,
    generation: u64,
    last_by_raw_socket: Instant,
}

/// The next hop of a destination, as cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CachedHop {
    /// This neighbour.
    Neighbour {
        addresses: LinkAddresses,
        mtu: usize,
    },
    /// Behind the device, but the neighbour is unknown, or the kernel is due to see a packet.
    ViaRawSocket,
    /// Behind another device, or this host itself: such packets are dropped, because the kernel would deliver or
    /// forward them in clear if the raw socket sent them.
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

    /// Checks for changes, once for each batch.
    pub fn check_for_changes(&mut self, now: Instant) {
        self.last = None;
        if now - self.last_check >= CHANGE_CHECK_INTERVAL {
            self.last_check = now;
            self.generation += u64::from(self.next_hops.changed());
        }
    }

    /// The present next hop of a destination.
    pub fn next_hop(&mut self, destination: IpAddr, now: Instant) -> CachedHop {
        match self.last {
            Some((known, hop)) if known == destination => hop,
            _ => {
                let hop = self.find(destination, now);
                // A packet that the kernel is to see is one packet, not the rest of the batch.
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

/// The unspecified address of the same family: routes are looked up for any source.
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
        Some(hop) => CachedHop::Neighbour {
            addresses: hop.link_addresses(),
            mtu: hop.mtu.min(mtu) as usize,
        },
    }
}
