//! The sending end: straight to the neighbour where the kernel's tables name one, through a raw socket otherwise.

use super::exit::{Ends, Exit};
use super::{NativeIo, NextHop, NextHops};
use crate::io::several::Addressed;
use crate::io::{Parcel, ProtectedSink, Sent, Warn, raw::RawSink};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often each peer gets a batch through the raw socket: the kernel sees that the neighbour is in use, asks whether it
/// is still there, and hears its new address.
const BY_RAW_SOCKET: Duration = Duration::from_secs(10);

/// How often changes are looked for.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// After so long a device whose exit failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// More peers than this are not remembered.
const MOST_WAYS: usize = 4096;

/// Sends native ESP.
pub struct PacketSink {
    raw: RawSink,
    wish: NativeIo,
    pub(super) next_hops: Box<dyn NextHops>,
    ways: HashMap<(IpAddr, IpAddr), Way>,
    exits: HashMap<u32, Gate>,
    looked: Instant,
    /// Grows with every change: what was found at an earlier one is asked for again.
    epoch: u64,
    identification: u16,
    facts: Arc<PacketFacts>,
    warn: Warn,
}

/// The way to one peer.
struct Way {
    hop: Option<NextHop>,
    epoch: u64,
    by_raw_socket: Instant,
}

/// A device's exit and the MTU it was opened for, or when it failed.
enum Gate {
    Open(Exit, u32),
    Shut(Instant),
}

/// What a sink is doing, for `status`.
#[derive(Debug, Default)]
pub struct PacketFacts {
    way: AtomicU8,
    direct: AtomicU64,
    raw: AtomicU64,
}

impl PacketFacts {
    /// The way that packets went last.
    pub fn way(&self) -> NativeIo {
        match self.way.load(Ordering::Relaxed) {
            1 => NativeIo::Packet,
            2 => NativeIo::Xdp,
            _ => NativeIo::Raw,
        }
    }

    fn note(&self, way: NativeIo, packets: u64) {
        self.way
            .store(if way == NativeIo::Xdp { 2 } else { 1 }, Ordering::Relaxed);
        self.direct.fetch_add(packets, Ordering::Relaxed);
    }

    /// Packets that went straight to the neighbour.
    pub fn direct(&self) -> u64 {
        self.direct.load(Ordering::Relaxed)
    }

    /// Packets that went through the raw socket.
    pub fn by_raw_socket(&self) -> u64 {
        self.raw.load(Ordering::Relaxed)
    }
}

impl PacketSink {
    /// Sends by `way`, which has passed [`super::choose`], wherever `next_hops` knows one, and by `raw` otherwise.
    pub fn new(raw: RawSink, way: NativeIo, next_hops: Box<dyn NextHops>, warn: Warn) -> Self {
        Self {
            raw,
            wish: way,
            next_hops,
            ways: HashMap::new(),
            exits: HashMap::new(),
            looked: Instant::now(),
            epoch: 0,
            identification: std::process::id() as u16,
            facts: Arc::default(),
            warn,
        }
    }

    /// What it is doing.
    pub fn facts(&self) -> Arc<PacketFacts> {
        self.facts.clone()
    }

    fn look_for_changes(&mut self, now: Instant) {
        if now - self.looked >= LOOK_AGAIN {
            self.looked = now;
            self.epoch += u64::from(self.next_hops.changed());
        }
    }

    /// The next hop of these parcels, if all of them fit and this is no batch for the raw socket.
    fn way(&mut self, run: &[Parcel<'_>], now: Instant) -> Option<NextHop> {
        let outer = &run.first()?.outer;
        let ends = (outer.source, outer.destination);
        if self.ways.len() >= MOST_WAYS && !self.ways.contains_key(&ends) {
            self.ways.clear();
        }
        let Self {
            ways,
            next_hops,
            epoch,
            ..
        } = self;
        let way = ways.entry(ends).or_insert_with(|| Way {
            hop: next_hops.find(ends.0, ends.1),
            epoch: *epoch,
            by_raw_socket: now,
        });
        if way.epoch != *epoch {
            (way.hop, way.epoch) = (next_hops.find(ends.0, ends.1), *epoch);
        }
        let hop = way.hop?;
        if now - way.by_raw_socket >= BY_RAW_SOCKET {
            way.by_raw_socket = now;
            return None;
        }
        let fits = |parcel: &Parcel<'_>| parcel.outer.len() + parcel.stride <= hop.mtu as usize;
        run.iter().all(fits).then_some(hop)
    }

    /// Opens the device's exit if need be.
    fn open(&mut self, hop: &NextHop, now: Instant) -> Option<&mut Exit> {
        let is_useless = match self.exits.get(&hop.device) {
            None => true,
            Some(Gate::Open(_, mtu)) => *mtu < hop.mtu,
            Some(Gate::Shut(since)) => now - *since >= TRY_AGAIN,
        };
        if is_useless {
            // The old one first: two cannot have the same queue of a device.
            self.exits.remove(&hop.device);
            let gate = match self.try_to_open(hop) {
                Some(exit) => Gate::Open(exit, hop.mtu),
                None => Gate::Shut(now),
            };
            self.exits.insert(hop.device, gate);
        }
        match self.exits.get_mut(&hop.device) {
            Some(Gate::Open(exit, _)) => Some(exit),
            _ => None,
        }
    }

    fn try_to_open(&self, hop: &NextHop) -> Option<Exit> {
        let order: &[NativeIo] = match self.wish {
            NativeIo::Xdp => &[NativeIo::Xdp, NativeIo::Packet],
            _ => &[NativeIo::Packet],
        };
        order.iter().find_map(|way| {
            Exit::open(*way, hop.device, hop.mtu)
                .map_err(|why| {
                    (self.warn)(&format!(
                        "native ESP cannot leave device {} by `{way}` ({why}): doing without, slower",
                        hop.device
                    ));
                })
                .ok()
        })
    }

    /// Sends a run of parcels for one peer.
    fn send(&mut self, run: &[Parcel<'_>], now: Instant, sent: &mut Sent) -> io::Result<()> {
        let packets: u64 = run.iter().map(Parcel::packets).sum();
        let mut identification = self.identification;
        if let Some(hop) = self.way(run, now)
            && let Some(exit) = self.open(&hop, now)
        {
            let outcome = exit.send(&ends(&hop), run, &mut identification, sent);
            let way = exit.way();
            self.identification = identification;
            if outcome.is_err() {
                // Down, or gone: the kernel tells, and the next ones find another way.
                self.exits.insert(hop.device, Gate::Shut(now));
            }
            self.facts.note(way, packets);
            return Ok(());
        }
        self.facts.raw.fetch_add(packets, Ordering::Relaxed);
        *sent += self.raw.deliver(run)?;
        Ok(())
    }
}

fn ends(hop: &NextHop) -> Ends {
    let mut ends = [0; 12];
    ends[..6].copy_from_slice(&hop.theirs);
    ends[6..].copy_from_slice(&hop.ours);
    ends
}

impl Addressed for PacketSink {
    fn fits(&self, parcel: &Parcel<'_>) -> bool {
        self.raw.fits(parcel)
    }
}

impl ProtectedSink for PacketSink {
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent> {
        let now = Instant::now();
        self.look_for_changes(now);
        let (mut sent, mut rest) = (Sent::default(), parcels);
        while let Some(first) = rest.first() {
            let ends = |parcel: &Parcel<'_>| (parcel.outer.source, parcel.outer.destination);
            let fits = self.fits(first);
            let same =
                |parcel: &&Parcel<'_>| fits && ends(parcel) == ends(first) && self.fits(parcel);
            let len = rest.iter().take_while(same).count().max(1);
            let (run, behind) = rest.split_at(len);
            match fits {
                true => self.send(run, now, &mut sent)?,
                false => sent.failed += first.packets(),
            }
            rest = behind;
        }
        Ok(sent)
    }
}
