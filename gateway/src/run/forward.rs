//! The plaintext end: the TUN device, or the Ethernet device that hosts behind this gateway use.

use super::{Options, interface};
use crate::cli::Failure;
use crate::report;
use crate::routes::Site;
use crate::routes::netlink::{KernelNextHops, Netlink};
use arc_swap::ArcSwap;
use dataplane::io::ethernet::{Ethernet, EthernetHandle, EthernetOptions, Hosts};
use dataplane::io::packet::{self, NativeIo};
use dataplane::io::tun::{Abilities, Tun, TunOptions};
use dataplane::io::tunnels::Tunnels;
use dataplane::io::{PlaintextSink, PlaintextSource, Waker, Warn};
use ipsec::database::Snapshot;
use std::io;
use std::sync::Arc;

/// Where packets of hosts come from and go to.
pub(super) enum Plaintext {
    /// The kernel routes them into a device of our own.
    Tun(Tun),
    /// They are taken where they arrive.
    Ethernet {
        device: Ethernet,
        handle: EthernetHandle,
        mark: u32,
    },
}

/// Its ends: what the outbound direction reads, what the inbound one writes, and what tells senders of packets too big.
pub(super) type PlaintextEnds = (
    Box<dyn PlaintextSource>,
    Box<dyn PlaintextSink>,
    Box<dyn PlaintextSink>,
);

impl Plaintext {
    /// Opens it. Nothing leads there yet, and nothing is taken.
    pub fn open(
        site: &Site,
        options: &Options,
        netlink: &mut Netlink,
        warn: &Warn,
    ) -> Result<Self, Failure> {
        match (site.tun(), site.forward()) {
            (_, Some(device)) => open_ethernet(site, device, options, netlink, warn),
            (tun, None) => open_tun(tun.unwrap_or_default(), options, warn).map(Self::Tun),
        }
    }

    /// Its ends, for a gateway that starts.
    pub fn ends(
        &mut self,
        tunnels: &Tunnels,
        databases: &Arc<ArcSwap<Snapshot>>,
        waker: &Waker,
    ) -> io::Result<PlaintextEnds> {
        match self {
            Self::Tun(tun) => {
                let (source, sink) = tun.ends().next().ok_or(io::ErrorKind::NotFound)?;
                let (_, replies) = tun.ends().next().ok_or(io::ErrorKind::NotFound)?;
                Ok((
                    Box::new(tunnels.source(source, waker.clone())),
                    Box::new(tunnels.sink(sink)),
                    Box::new(tunnels.sink(replies)),
                ))
            }
            Self::Ethernet { device, mark, .. } => {
                let source = device
                    .source(Arc::clone(databases), waker.clone())
                    .ok_or(io::ErrorKind::AlreadyExists)?;
                let next_hops = || KernelNextHops::open(*mark).map(Box::new);
                let sink = device.sink(next_hops()?);
                let replies = device.side_sink(next_hops()?);
                Ok((Box::new(source), Box::new(sink), Box::new(replies)))
            }
        }
    }

    /// Tells a forwarding device which addresses are this host's, by now.
    pub fn know_addresses(&self, netlink: &mut Netlink) -> io::Result<()> {
        if let Self::Ethernet { device, handle, .. } = self {
            let all = netlink.addresses_by_device()?;
            let of_device = all.iter().filter(|(index, _)| *index == device.device());
            handle.know(Hosts {
                speakers: of_device.map(|(_, address)| *address).collect(),
                ours: all.iter().map(|(_, address)| *address).collect(),
            });
        }
        Ok(())
    }

    /// What it can do and has done, in words.
    pub fn describe(&self) -> Vec<String> {
        match self {
            Self::Tun(tun) => report::offloads(tun.abilities),
            Self::Ethernet { device, handle, .. } => {
                let abilities = Abilities {
                    checksum: true,
                    read: device.reads(),
                    write: device.takes(),
                };
                let mut lines = report::offloads(abilities);
                lines.push(describe(device.name(), handle));
                lines
            }
        }
    }
}

fn open_tun(name: &str, options: &Options, warn: &Warn) -> Result<Tun, Failure> {
    let mut tun = TunOptions::named(name);
    tun.trains = !options.no_offloads;
    let tun = Tun::open(&tun, warn).map_err(Failure::new)?;
    interface::prepare(name, warn);
    Ok(tun)
}

fn open_ethernet(
    site: &Site,
    name: &str,
    options: &Options,
    netlink: &mut Netlink,
    warn: &Warn,
) -> Result<Plaintext, Failure> {
    let refuse = |why: &str| Failure::new(format!("--forward {name}: {why}"));
    let look = |error: io::Error| refuse(&format!("the device cannot be looked at: {error}"));
    let index = netlink
        .link(name)
        .map_err(look)?
        .ok_or_else(|| refuse("there is no such device; `ip link` lists those there are"))?;
    let link = netlink.simple_link(index).map_err(look)?.ok_or_else(|| {
        refuse(
            "an Ethernet device is needed that is up, in no bridge or bond, and has no queue of somebody's choice; use a \
             TUN device (--tun) otherwise",
        )
    })?;
    let way = match options.native_io {
        NativeIo::Raw | NativeIo::Packet => NativeIo::Packet,
        wish => packet::choose(wish, warn),
    };
    let ethernet = EthernetOptions {
        name: name.to_owned(),
        device: index,
        mtu: link.mtu,
        mark: site.outside_mark(),
        way,
        trains: !options.no_offloads,
    };
    let device = Ethernet::open(ethernet, warn)
        .map_err(|why| refuse(&format!("no packet ring can be had there: {why}")))?;
    Ok(Plaintext::Ethernet {
        handle: device.handle(),
        device,
        mark: site.outside_mark(),
    })
}

fn describe(name: &str, handle: &EthernetHandle) -> String {
    let facts = handle.facts();
    let mut text = format!(
        "forwards for the hosts behind {name}: {} taken from its ring, {} left to the kernel; {} out by {} and {} by raw \
         socket",
        facts.taken(),
        facts.left(),
        facts.direct(),
        facts.way(),
        facts.by_raw_socket()
    );
    for (count, what) in [
        (facts.lost(), "lost for want of room"),
        (facts.expired(), "at the end of their hop limit"),
        (facts.undeliverable(), "with no place behind the device"),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    text
}
