//! Native ESP: how it is sent and received, and the packet rings beside the raw sockets.

use super::RunOptions;
use super::outer_network::OuterNetwork;
use crate::failure::Failure;
use crate::routes::Site;
use crate::routes::firewall::ring_bypass::Rings;
use crate::routes::netlink::{KernelNextHops, Netlink, SimpleLink};
use dataplane::io::Warn;
use dataplane::io::packet::{
    self, NativeIo, PacketSink, PacketSource, PacketStats, RingAddresses, RingHandle,
};
use dataplane::io::raw::{RawHandle, RawSink, RawSource};
use dataplane::io::socket_sets::{Adder, PollableSource, SelectiveSink};
use ipsec::database::Snapshot;
use ipsec::sa::Protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The I/O of native ESP.
pub(super) struct Native {
    wish: NativeIo,
    /// What was found before it was needed: the I/O mode that passed its probe, and what the others failed at.
    found: Option<(NativeIo, Vec<String>)>,
    /// The I/O mode that passed its probe, once it was needed.
    way: Option<NativeIo>,
    mark: u32,
    raw: Vec<RawHandle>,
    rings: BTreeMap<u32, Ring>,
    claim: RingAddresses,
    stats: BTreeMap<bool, Arc<PacketStats>>,
    warn: Warn,
}

struct Ring {
    link: SimpleLink,
    handle: RingHandle,
}

impl Native {
    /// None yet.
    pub(super) fn new(
        site: &Site,
        options: &RunOptions,
        outside: &OuterNetwork,
        warn: &Warn,
    ) -> Self {
        // In another namespace, or bound to a device, native ESP uses raw sockets alone.
        let is_here = outside.opener.is_none() && outside.device.is_none();
        Self {
            wish: if is_here {
                options.native_io
            } else {
                NativeIo::Raw
            },
            found: None,
            way: None,
            mark: site.outside_mark(),
            raw: Vec::new(),
            rings: BTreeMap::new(),
            claim: RingAddresses::default(),
            stats: BTreeMap::new(),
            warn: Arc::clone(warn),
        }
    }

    /// Refuses options that exclude each other, at start.
    pub(super) fn check(options: &RunOptions) -> Result<(), Failure> {
        let is_elsewhere = options.outer_netns.is_some() || options.outer_device.is_some();
        match options.native_io {
            NativeIo::Packet | NativeIo::Xdp if is_elsewhere => Err(Failure::new(format!(
                "--native-io {} works only in the gateway's own network namespace and without --outer-device: remove \
                 it",
                options.native_io
            ))),
            _ => Ok(()),
        }
    }

    /// Replaces the sink of a family's raw socket by one of the chosen I/O mode.
    pub(super) fn sink(
        &mut self,
        v6: bool,
        source: &RawSource,
        sink: RawSink,
    ) -> io::Result<Box<dyn SelectiveSink>> {
        self.raw.push(source.handle());
        let way = self.way();
        if way == NativeIo::Raw {
            return Ok(Box::new(sink));
        }
        let next_hops = Box::new(KernelNextHops::open(self.mark)?);
        let sink = PacketSink::new(sink, way, next_hops, Arc::clone(&self.warn));
        self.stats.insert(v6, sink.stats());
        Ok(Box::new(sink))
    }

    /// Probes before the first association needs it, so that the main thread is not held up then. What does not work is
    /// a warning once native ESP is used: a gateway may use UDP encapsulation alone.
    pub(super) fn probe_early(&mut self) {
        if self.way.is_none() && self.found.is_none() {
            let faults: Arc<Mutex<Vec<String>>> = Arc::default();
            let sink = Arc::clone(&faults);
            let note: Warn = Arc::new(move |fault: &str| {
                let mut known = sink.lock().unwrap_or_else(PoisonError::into_inner);
                known.push(fault.to_owned());
            });
            let way = packet::probe(self.wish, &note);
            let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
            self.found = Some((way, std::mem::take(&mut *faults)));
        }
    }

    fn way(&mut self) -> NativeIo {
        if let Some(way) = self.way {
            return way;
        }
        let way = match self.found.take() {
            Some((way, faults)) => {
                faults.iter().for_each(|fault| (self.warn)(fault));
                way
            }
            None => packet::probe(self.wish, &self.warn),
        };
        *self.way.insert(way)
    }

    /// Opens and closes rings to match the associations, and returns those that are open. A ring that cannot be opened
    /// is reported once.
    pub(super) fn put_rings(
        &mut self,
        wanted: (BTreeMap<u32, SimpleLink>, BTreeSet<IpAddr>),
        sources: &Adder<dyn PollableSource>,
    ) -> io::Result<Rings> {
        let (mut links, addresses) = wanted;
        if self.way.is_none_or(|way| way == NativeIo::Raw) {
            links.clear();
        }
        let claim = RingAddresses::of(addresses);
        self.close_all_but(&links);
        if claim != self.claim {
            for ring in self.rings.values() {
                ring.handle.set_addresses(&claim)?;
            }
        }
        for (device, link) in links {
            self.open_ring(device, link, &claim, sources);
        }
        let devices: BTreeSet<_> = self.rings.keys().copied().collect();
        for raw in &self.raw {
            raw.exclude_ring_packets(&devices, &claim)?;
        }
        let rings = Rings {
            devices: self
                .rings
                .values()
                .map(|ring| ring.link.name.clone())
                .collect(),
            addresses: claim.addresses().collect(),
        };
        self.claim = claim;
        Ok(rings)
    }

    /// Whether something waits in a ring.
    pub(super) fn has_waiting(&self) -> io::Result<bool> {
        for ring in self.rings.values() {
            if ring.handle.has_waiting()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn close_all_but(&mut self, links: &BTreeMap<u32, SimpleLink>) {
        self.rings.retain(|device, ring| {
            let is_wanted = links
                .get(device)
                .is_some_and(|link| link.mtu <= ring.link.mtu);
            if !is_wanted {
                ring.handle.close();
            }
            is_wanted
        });
    }

    fn open_ring(
        &mut self,
        device: u32,
        link: SimpleLink,
        claim: &RingAddresses,
        sources: &Adder<dyn PollableSource>,
    ) {
        if self.rings.contains_key(&device) {
            return;
        }
        match PacketSource::open(device, link.mtu, claim) {
            Ok(source) => {
                let handle = source.handle();
                sources.add(Box::new(source));
                self.rings.insert(device, Ring { link, handle });
            }
            Err(why) => (self.warn)(&format!(
                "native ESP from {} is received through a raw socket, which is slower: no packet ring ({why})",
                link.name
            )),
        }
    }

    /// How a family's native ESP is sent and received, as text.
    pub(super) fn describe(&self, v6: bool) -> String {
        let Some(stats) = self.stats.get(&v6) else {
            return " by raw socket".to_owned();
        };
        let mut text = match (stats.direct(), stats.by_raw_socket()) {
            (0, 0) => format!(", sent by {}", self.way.unwrap_or_default()),
            (0, raw) => format!(", sent by raw socket ({raw} packets)"),
            (direct, raw) => format!(
                ", sent by {} ({direct} packets) and raw socket ({raw})",
                stats.native_io()
            ),
        };
        for ring in self.rings.values() {
            text += &format!(", received by a ring on {}", ring.link.name);
            for (count, what) in [
                (ring.handle.lost(), "lost"),
                (ring.handle.malformed(), "malformed"),
            ] {
                if count > 0 {
                    text += &format!(" ({count} {what})");
                }
            }
        }
        text
    }
}

/// The devices on which native ESP arrives, and its destination addresses.
pub(super) fn wanted_rings(
    snapshot: &Snapshot,
    local: &[IpAddr],
    netlink: &mut Netlink,
    mark: u32,
) -> (BTreeMap<u32, SimpleLink>, BTreeSet<IpAddr>) {
    let native = snapshot.sas().filter(|sa| {
        let config = &sa.config;
        config.id.protocol == Protocol::Esp && config.encapsulation.is_none()
    });
    let ends: BTreeSet<_> = native
        .map(|sa| (sa.config.id.destination, sa.config.source))
        .filter(|(ours, _)| local.contains(ours))
        .collect();
    let mut links = BTreeMap::new();
    for (ours, theirs) in &ends {
        // A peer that is unreachable at present will be looked up again.
        if let Ok(path) = netlink.path((*ours, *theirs), mark, None)
            && let Ok(Some(link)) = netlink.simple_link(path.device)
        {
            links.insert(path.device, link);
        }
    }
    (links, ends.into_iter().map(|(ours, _)| ours).collect())
}
