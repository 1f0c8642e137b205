//! Which way opened packets go: asked of the kernel once for each destination, and again after every change.

use crate::io::packet::exit::Ends;
use crate::io::packet::{NextHop, NextHops};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// How often each destination gets a packet through the raw socket: the kernel sees that the neighbour is in use, asks
/// whether it is still there, and hears its new address.
const BY_RAW_SOCKET: Duration = Duration::from_secs(10);

/// How often changes are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// More destinations than this are not remembered.
const MOST_WAYS: usize = 16_384;

/// The ways to all destinations of late.
pub(super) struct Ways {
    /// The only device by which packets may leave.
    device: u32,
    /// What its doors were made for.
    mtu: u32,
    next_hops: Box<dyn NextHops>,
    ways: HashMap<IpAddr, Way>,
    /// The destination of the packet before, and its way.
    last: Option<(IpAddr, Found)>,
    looked: Instant,
    /// Grows with every change: what was found at an earlier one is asked for again.
    epoch: u64,
}

/// The way to one destination.
struct Way {
    found: Found,
    epoch: u64,
    by_raw_socket: Instant,
}

/// What is known of a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// To this neighbour.
    Neighbour { ends: Ends, mtu: usize },
    /// By the device, but the neighbour is not known, or the kernel is to see a packet.
    ByRawSocket,
    /// By another device, or to this host itself: a packet that was opened to be forwarded is dropped, for the kernel would
    /// deliver it here if the raw socket sent it.
    Elsewhere,
}

impl Ways {
    pub fn by(device: u32, mtu: u32, next_hops: Box<dyn NextHops>) -> Self {
        Self {
            device,
            mtu,
            next_hops,
            ways: HashMap::new(),
            last: None,
            looked: Instant::now(),
            epoch: 0,
        }
    }

    /// To be called once for each batch.
    pub fn look_for_changes(&mut self, now: Instant) {
        self.last = None;
        if now - self.looked >= LOOK_AGAIN {
            self.looked = now;
            self.epoch += u64::from(self.next_hops.changed());
        }
    }

    /// The way to a destination by now.
    pub fn way_to(&mut self, destination: IpAddr, now: Instant) -> Found {
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
            device,
            mtu,
            ..
        } = self;
        let mut ask = || match next_hops.find(any(destination), destination) {
            None if next_hops.is_ours(destination) => Found::Elsewhere,
            hop => found(hop, (*device, *mtu)),
        };
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
}

/// The unspecified address of the same family: a route for whoever it comes from.
pub(super) fn any(other: IpAddr) -> IpAddr {
    match other {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// INVARIANT: a packet that was protected leaves by this device alone.
fn found(hop: Option<NextHop>, (device, mtu): (u32, u32)) -> Found {
    match hop {
        None => Found::ByRawSocket,
        Some(hop) if hop.device != device => Found::Elsewhere,
        Some(hop) => {
            let mut ends = [0; 12];
            ends[..6].copy_from_slice(&hop.theirs);
            ends[6..].copy_from_slice(&hop.ours);
            Found::Neighbour {
                ends,
                mtu: hop.mtu.min(mtu) as usize,
            }
        }
    }
}
