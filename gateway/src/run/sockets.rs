//! Which sockets the associations need, and the protected ends of the data plane made of them.

mod described;
mod divided;
mod moving;
mod native_esp;
mod to_kernel;

use super::RunOptions;
use super::native::Native as NativeWays;
use super::outer_network::OuterNetwork;
use crate::handover::Need;
use crate::routes::Site;
use dataplane::io::raw::{self, NativeProtocol};
use dataplane::io::socket_sets::{
    Adder, MAX_SOURCES, PollableSource, SelectiveSink, SinkSet, SourceSet,
};
use dataplane::io::udp::{self, FirstSocket, UdpOffloads, UdpOptions, UdpProbe, UdpStats};
use dataplane::io::{
    Family, MtuReportCheck, OpenError, OutOfBandSender, PmtuCache, SocketOptions, Waker, Warn,
};
pub(super) use divided::Divided;
use ipsec::database::Snapshot;
use ipsec::sa::{Mode, Protocol, SaConfig};
use ipsec::tunnel::Outer;
use rustix::net::{SocketFlags, socket_with};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use to_kernel::{hand_esp_to_kernel, take_esp_in_gro};

/// The port of ESP in UDP and of IKE (RFC 3948 2).
const SHARED_PORT: u16 = 4500;

/// The sockets that the associations of `snapshot` need on a host with these addresses.
pub(super) fn needs(snapshot: &Snapshot, addresses: &[IpAddr]) -> BTreeSet<Need> {
    snapshot
        .sas()
        .flat_map(|sa| of_association(&sa.config, addresses))
        .collect()
}

/// The local UDP ports among them.
pub(super) fn udp_ports(needs: &BTreeSet<Need>) -> BTreeSet<u16> {
    needs
        .iter()
        .filter_map(|need| match need {
            Need::Udp { port, .. } => Some(*port),
            Need::Esp { .. } | Need::Ah { .. } | Need::Whole { .. } => None,
        })
        .collect()
}

fn of_association(config: &SaConfig, addresses: &[IpAddr]) -> Vec<Need> {
    let v6 = config.id.destination.is_ipv6();
    match config.id.protocol {
        Protocol::Ah => return vec![Need::Ah { v6 }, Need::Whole { v6 }],
        // It travels inside ESP or AH.
        Protocol::IpComp => return Vec::new(),
        Protocol::Esp => {}
    }
    let Some(encapsulation) = config.encapsulation else {
        let mut needs = vec![Need::Esp { v6 }];
        if config.mode != Mode::Tunnel {
            needs.push(Need::Whole { v6 });
        }
        return needs;
    };
    let arrives = addresses.contains(&config.id.destination);
    let leaves = addresses.contains(&config.source);
    // If neither end is an address of this host yet, one may be added later: either port may then be the local one.
    let ours = [
        (arrives || !leaves, encapsulation.destination_port),
        (leaves || !arrives, encapsulation.source_port),
    ];
    ours.into_iter()
        .filter(|(ours, _)| *ours)
        .map(|(_, port)| Need::Udp { v6, port })
        .collect()
}

/// The sockets of a gateway. Sockets for associations that are added later join the running data plane.
pub(super) struct Sockets {
    options: SocketOptions,
    zero_checksum: bool,
    trains: bool,
    /// Set where IKE has port 4500 too, now or later: which of the two has it first.
    pub(super) beside_ike: Option<FirstSocket>,
    /// Which of the two was bound first, by family, once that of ESP is open.
    order: BTreeMap<bool, FirstSocket>,
    /// Whether a third socket has that port, so that what arrives there comes as single datagrams.
    pub(super) is_divided: bool,
    /// Whether the kernel's own IPsec seals and opens: sockets serve only to hand it ESP in UDP, and for keepalives.
    kernel_opens: bool,
    /// Those sockets: nothing is read from them.
    kept: Vec<Box<dyn PollableSource>>,
    /// The result of the UDP GSO/GRO probe, by family, once it was needed.
    trials: BTreeMap<bool, UdpProbe>,
    sources: Adder<dyn PollableSource>,
    sinks: Adder<dyn SelectiveSink>,
    ends: Option<(SourceSet, SinkSet)>,
    waker: Waker,
    bound: BTreeMap<Need, Option<Arc<UdpStats>>>,
    asides: Vec<Box<dyn OutOfBandSender>>,
    native: NativeWays,
    /// Sockets inherited from the previous gateway and not in use yet.
    inherited: BTreeMap<Need, OwnedFd>,
    /// Descriptors of all open sockets, for the handover to the next gateway.
    held: Arc<Mutex<BTreeMap<Need, OwnedFd>>>,
}

impl Sockets {
    /// None yet.
    pub(super) fn new(
        site: &Site,
        options: &RunOptions,
        outside: &OuterNetwork,
        paths: &PmtuCache,
        judge: MtuReportCheck,
        warn: &Warn,
    ) -> io::Result<Self> {
        let mut socket = SocketOptions::new(paths.clone(), Arc::clone(warn));
        socket.mark = Some(site.outside_mark());
        socket.mtu_report_check = Some(judge);
        socket.opener = outside.opener.clone();
        socket.device = outside.device.as_ref().map(|(name, _)| name.clone());
        let waker = Waker::new()?;
        let source = SourceSet::of(Vec::new(), waker.clone());
        let sink = SinkSet::to(Vec::new());
        Ok(Self {
            options: socket,
            zero_checksum: options.zero_checksum,
            trains: !options.no_offloads,
            beside_ike: None,
            order: BTreeMap::new(),
            is_divided: false,
            kernel_opens: false,
            kept: Vec::new(),
            trials: BTreeMap::new(),
            sources: source.adder(),
            sinks: sink.adder(),
            ends: Some((source, sink)),
            waker,
            bound: BTreeMap::new(),
            asides: Vec::new(),
            native: NativeWays::new(site, options, outside, warn),
            inherited: BTreeMap::new(),
            held: Arc::default(),
        })
    }

    /// Which of the two sockets of IKE's port is there first, when that of IKE is opened now.
    pub(super) fn first_socket(&self, family: Family) -> FirstSocket {
        let v6 = family == Family::V6;
        let esp = Need::Udp {
            v6,
            port: SHARED_PORT,
        };
        if self.bound.contains_key(&esp) {
            FirstSocket::Esp
        } else {
            FirstSocket::Ike
        }
    }

    /// From now on sockets serve the kernel's own IPsec.
    pub(super) fn leave_to_the_kernel(&mut self) {
        self.kernel_opens = true;
    }

    /// Takes over the sockets of the previous gateway, and in which order those of port 4500 were bound.
    pub(super) fn inherit(
        &mut self,
        sockets: BTreeMap<Need, OwnedFd>,
        order: BTreeMap<bool, FirstSocket>,
    ) {
        (self.inherited, self.order) = (sockets, order);
    }

    /// In which order the sockets of port 4500 were bound, by family.
    pub(super) fn order(&self) -> &BTreeMap<bool, FirstSocket> {
        &self.order
    }

    /// Descriptors of all open sockets, for the handover to the next gateway.
    pub(super) fn hand_over(&self) -> BTreeMap<Need, OwnedFd> {
        std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How the socket of `need` is opened: the inherited one, or a new one. A duplicate of its descriptor is kept.
    fn options_for(&mut self, need: Need) -> SocketOptions {
        let inherited = self.inherited.remove(&need);
        if let (None, Need::Udp { v6, port }, Some(first)) = (&inherited, need, self.beside_ike)
            && port == SHARED_PORT
        {
            self.order.insert(v6, first);
        }
        let held = Arc::clone(&self.held);
        let (inherited, opener) = (Mutex::new(inherited), self.options.opener.clone());
        let mut options = self.options.clone();
        options.opener = Some(Arc::new(move |family, kind, protocol| {
            let known = inherited
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let socket = match (known, &opener) {
                (Some(socket), _) => socket,
                (None, Some(open)) => open(family, kind, protocol)?,
                (None, None) => {
                    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                    socket_with(family, kind, flags, protocol)?
                }
            };
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            held.insert(need, socket.try_clone()?);
            Ok(socket)
        }));
        options
    }

    /// Opens the sockets that are needed and not open yet: all of them, or none. Open sockets stay open: an association
    /// that is deleted is often added again.
    pub(super) fn bind(&mut self, needs: &BTreeSet<Need>) -> io::Result<()> {
        let is_used = |need: &&Need| !self.kernel_opens || matches!(need, Need::Udp { .. });
        let missing: Vec<_> = needs
            .iter()
            .filter(|need| !self.bound.contains_key(need))
            .filter(is_used)
            .copied()
            .collect();
        if self.bound.len() + missing.len() > MAX_SOURCES {
            return Err(io::Error::other(format!(
                "associations use more than {MAX_SOURCES} different UDP ports and protocols"
            )));
        }
        let mut asides = Vec::new();
        let mut open = |need: &Need| self.open(*need, &mut asides);
        let opened: Result<Vec<_>, _> = missing.iter().map(&mut open).collect();
        let opened = opened.map_err(io::Error::other)?;
        for (need, (source, sink, stats)) in missing.into_iter().zip(opened) {
            if let Some(source) = source {
                self.sources.add(source);
            }
            if let Some(sink) = sink {
                self.sinks.add(sink);
            }
            self.bound.insert(need, stats);
        }
        self.asides.append(&mut asides);
        Ok(())
    }

    /// Sends one packet made by the gateway itself, outside of the data plane.
    pub(super) fn send_out_of_band(&mut self, outer: &Outer, packet: &[u8]) -> bool {
        let mut asides = self.asides.iter_mut();
        asides.any(|aside| aside.send(outer, packet))
    }

    /// GRO looks up a socket by addresses alone, so beside key exchange it may find the other one.
    fn kernel_takes_in_gro(&self, port: u16) -> bool {
        self.trains && !(port == SHARED_PORT && self.beside_ike.is_some())
    }

    fn open(
        &mut self,
        need: Need,
        asides: &mut Vec<Box<dyn OutOfBandSender>>,
    ) -> Result<Opened, OpenError> {
        let opening = self.options_for(need);
        match need {
            Need::Udp { v6, port } if self.kernel_opens => {
                let options = UdpOptions {
                    beside_ike: self.beside_ike.filter(|_| port == SHARED_PORT),
                    port,
                    zero_checksum: self.zero_checksum,
                    offloads: UdpOffloads::NONE,
                    socket: opening,
                };
                let (source, sink) = udp::open(family(v6), &options)?;
                hand_esp_to_kernel(&source, port, v6)?;
                if self.kernel_takes_in_gro(port) {
                    take_esp_in_gro(&source);
                }
                asides.push(Box::new(sink.out_of_band_sender()));
                self.kept.push(Box::new(source));
                Ok((None, None, None))
            }
            Need::Udp { v6, port } => {
                let mut offloads = self.trial(v6).offloads();
                offloads.coalesce &= !(self.is_divided && port == SHARED_PORT);
                let options = UdpOptions {
                    beside_ike: self.beside_ike.filter(|_| port == SHARED_PORT),
                    port,
                    zero_checksum: self.zero_checksum,
                    offloads,
                    socket: opening,
                };
                let (source, sink) = udp::open(family(v6), &options)?;
                let stats = source.stats();
                asides.push(Box::new(sink.out_of_band_sender()));
                Ok((Some(Box::new(source)), Some(Box::new(sink)), Some(stats)))
            }
            Need::Esp { v6 } => {
                let (source, sink) = raw::open(family(v6), NativeProtocol::Esp, &opening)?;
                asides.push(Box::new(sink.out_of_band_sender()));
                let sink =
                    self.native
                        .sink(v6, &source, sink)
                        .map_err(|error| OpenError::System {
                            what: "watch the kernel's neighbours".to_owned(),
                            error,
                        })?;
                Ok((Some(Box::new(source)), Some(sink), None))
            }
            Need::Ah { v6 } => {
                let (source, _) = raw::open(family(v6), NativeProtocol::Ah, &opening)?;
                Ok((Some(Box::new(source)), None, None))
            }
            Need::Whole { v6 } => {
                let sink = raw::open_hdrincl(family(v6), &opening)?;
                Ok((None, Some(Box::new(sink)), None))
            }
        }
    }

    /// Probed once: the kernel's abilities do not change.
    fn trial(&mut self, v6: bool) -> UdpProbe {
        let wish = UdpOffloads {
            segment: self.trains && (v6 || !self.zero_checksum),
            coalesce: self.trains,
        };
        let try_out = || udp::probe(family(v6), wish, &self.options);
        *self.trials.entry(v6).or_insert_with(try_out)
    }

    /// The source and sink for the data plane, which can be taken once, and the waker for them.
    pub(super) fn ends(&mut self) -> Option<(SourceSet, SinkSet, Waker)> {
        let (source, sink) = self.ends.take()?;
        Some((source, sink, self.waker.clone()))
    }
}

type Opened = (
    Option<Box<dyn PollableSource>>,
    Option<Box<dyn SelectiveSink>>,
    Option<Arc<UdpStats>>,
);

fn family(v6: bool) -> Family {
    if v6 { Family::V6 } else { Family::V4 }
}

#[cfg(test)]
mod tests;
