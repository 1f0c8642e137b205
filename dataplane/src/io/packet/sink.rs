//! Sends native ESP directly to the neighbour where the kernel's tables have one, through a raw socket otherwise.

use super::egress::Egress;
use super::native_io::NativeIo;
use super::next_hop::{NextHop, NextHops};
use crate::io::raw::RawSink;
use crate::io::socket_sets::SelectiveSink;
use crate::io::{Burst, ProtectedSink, Sent, Warn};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often each peer gets a batch through the raw socket: the kernel sees that its neighbour entry is in use,
/// verifies the neighbour and learns its new MAC address.
const NEIGHBOUR_REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// How often the kernel is queried for changes of routes, links and neighbours.
pub(super) const CHANGE_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// After this time a device whose egress failed is tried again.
const EGRESS_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The cache is emptied when it has this many peers.
const MAX_CACHED_PEERS: usize = 4096;

/// Sends native ESP.
pub struct PacketSink {
    raw: RawSink,
    wish: NativeIo,
    pub(super) next_hops: Box<dyn NextHops>,
    cache: HashMap<(IpAddr, IpAddr), CacheEntry>,
    egresses: HashMap<u32, EgressState>,
    last_check: Instant,
    /// Grows with every change: entries of an earlier generation are looked up again.
    generation: u64,
    identification: u16,
    stats: Arc<PacketStats>,
    warn: Warn,
}

/// The next hop towards one peer.
struct CacheEntry {
    hop: Option<NextHop>,
    generation: u64,
    last_by_raw_socket: Instant,
}

/// A device's egress and the MTU that it was opened for, or when it failed.
enum EgressState {
    Open(Egress, u32),
    Failed(Instant),
}

/// Counters of a sink, for `status`.
#[derive(Debug, Default)]
pub struct PacketStats {
    native_io: AtomicU8,
    direct: AtomicU64,
    raw: AtomicU64,
}

impl PacketStats {
    /// How packets were sent last.
    pub fn native_io(&self) -> NativeIo {
        match self.native_io.load(Ordering::Relaxed) {
            1 => NativeIo::Packet,
            2 => NativeIo::Xdp,
            _ => NativeIo::Raw,
        }
    }

    fn note(&self, native_io: NativeIo, packets: u64) {
        self.native_io.store(
            if native_io == NativeIo::Xdp { 2 } else { 1 },
            Ordering::Relaxed,
        );
        self.direct.fetch_add(packets, Ordering::Relaxed);
    }

    /// Packets sent directly to the neighbour.
    pub fn direct(&self) -> u64 {
        self.direct.load(Ordering::Relaxed)
    }

    /// Packets sent through the raw socket.
    pub fn by_raw_socket(&self) -> u64 {
        self.raw.load(Ordering::Relaxed)
    }
}

impl PacketSink {
    /// Sends by `native_io`, which has passed [`super::probe()`], where `next_hops` finds a next hop, and by `raw`
    /// otherwise.
    pub fn new(
        raw: RawSink,
        native_io: NativeIo,
        next_hops: Box<dyn NextHops>,
        warn: Warn,
    ) -> Self {
        Self {
            raw,
            wish: native_io,
            next_hops,
            cache: HashMap::new(),
            egresses: HashMap::new(),
            last_check: Instant::now(),
            generation: 0,
            identification: std::process::id() as u16,
            stats: Arc::default(),
            warn,
        }
    }

    /// Its counters.
    pub fn stats(&self) -> Arc<PacketStats> {
        self.stats.clone()
    }

    fn check_for_changes(&mut self, now: Instant) {
        if now - self.last_check >= CHANGE_CHECK_INTERVAL {
            self.last_check = now;
            self.generation += u64::from(self.next_hops.changed());
        }
    }

    /// The next hop of these bursts, if all of them fit its MTU and this batch is not due for the raw socket.
    fn next_hop(&mut self, run: &[Burst<'_>], now: Instant) -> Option<NextHop> {
        let outer = &run.first()?.outer;
        let ends = (outer.source, outer.destination);
        if self.cache.len() >= MAX_CACHED_PEERS && !self.cache.contains_key(&ends) {
            self.cache.clear();
        }
        let Self {
            cache,
            next_hops,
            generation,
            ..
        } = self;
        let entry = cache.entry(ends).or_insert_with(|| CacheEntry {
            hop: next_hops.find(ends.0, ends.1),
            generation: *generation,
            last_by_raw_socket: now,
        });
        if entry.generation != *generation {
            (entry.hop, entry.generation) = (next_hops.find(ends.0, ends.1), *generation);
        }
        let hop = entry.hop?;
        if now - entry.last_by_raw_socket >= NEIGHBOUR_REFRESH_INTERVAL {
            entry.last_by_raw_socket = now;
            return None;
        }
        let fits = |burst: &Burst<'_>| burst.outer.len() + burst.stride <= hop.mtu as usize;
        run.iter().all(fits).then_some(hop)
    }

    /// The device's egress, opened if necessary.
    fn open(&mut self, hop: &NextHop, now: Instant) -> Option<&mut Egress> {
        let is_useless = match self.egresses.get(&hop.device) {
            None => true,
            Some(EgressState::Open(_, mtu)) => *mtu < hop.mtu,
            Some(EgressState::Failed(since)) => now - *since >= EGRESS_RETRY_INTERVAL,
        };
        if is_useless {
            // The old one is closed first: two cannot have the same queue of a device.
            self.egresses.remove(&hop.device);
            let state = match self.try_to_open(hop) {
                Some(egress) => EgressState::Open(egress, hop.mtu),
                None => EgressState::Failed(now),
            };
            self.egresses.insert(hop.device, state);
        }
        match self.egresses.get_mut(&hop.device) {
            Some(EgressState::Open(egress, _)) => Some(egress),
            _ => None,
        }
    }

    fn try_to_open(&self, hop: &NextHop) -> Option<Egress> {
        let order: &[NativeIo] = match self.wish {
            NativeIo::Xdp => &[NativeIo::Xdp, NativeIo::Packet],
            _ => &[NativeIo::Packet],
        };
        order.iter().find_map(|native_io| {
            Egress::open(*native_io, hop.device, hop.mtu)
                .map_err(|why| {
                    (self.warn)(&format!(
                        "native ESP cannot leave device {} by `{native_io}` ({why}): using a slower path",
                        hop.device
                    ));
                })
                .ok()
        })
    }

    /// Sends bursts for one peer.
    fn send(&mut self, run: &[Burst<'_>], now: Instant, sent: &mut Sent) -> io::Result<()> {
        let packets: u64 = run.iter().map(Burst::packets).sum();
        let mut identification = self.identification;
        if let Some(hop) = self.next_hop(run, now)
            && let Some(egress) = self.open(&hop, now)
        {
            let outcome = egress.send(&hop.link_addresses(), run, &mut identification, sent);
            let native_io = egress.native_io();
            self.identification = identification;
            if outcome.is_err() {
                // The device is down or gone: its next hops change with it.
                self.egresses.insert(hop.device, EgressState::Failed(now));
            }
            self.stats.note(native_io, packets);
            return Ok(());
        }
        self.stats.raw.fetch_add(packets, Ordering::Relaxed);
        *sent += self.raw.deliver(run)?;
        Ok(())
    }
}

impl SelectiveSink for PacketSink {
    fn accepts(&self, burst: &Burst<'_>) -> bool {
        self.raw.accepts(burst)
    }
}

impl ProtectedSink for PacketSink {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        let now = Instant::now();
        self.check_for_changes(now);
        let (mut sent, mut rest) = (Sent::default(), bursts);
        while let Some(first) = rest.first() {
            let ends = |burst: &Burst<'_>| (burst.outer.source, burst.outer.destination);
            let fits = self.accepts(first);
            let same =
                |burst: &&Burst<'_>| fits && ends(burst) == ends(first) && self.accepts(burst);
            let len = rest.iter().take_while(same).count().max(1);
            let (run, behind) = rest.split_at(len);
            if fits {
                self.send(run, now, &mut sent)?;
            } else {
                sent.failed += first.packets();
            }
            rest = behind;
        }
        Ok(sent)
    }
}
