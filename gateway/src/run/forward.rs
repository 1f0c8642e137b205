//! The plaintext side: the TUN device, or the Ethernet device that hosts behind this gateway use.

use super::{RunOptions, interface};
use crate::failure::Failure;
use crate::report;
use crate::routes::Site;
use crate::routes::netlink::{KernelNextHops, Netlink};
use arc_swap::ArcSwap;
use dataplane::io::ethernet::{Ethernet, EthernetHandle, EthernetOptions, LocalAddresses};
use dataplane::io::packet::{self, NativeIo};
use dataplane::io::tun::{Tun, TunOffloads, TunOptions};
use dataplane::io::tun_devices::{self, TunDevices};
use dataplane::io::{OpenError, PlaintextSink, PlaintextSource, Waker, Warn};
use ipsec::database::Snapshot;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Where plaintext packets come from and go to.
pub(super) enum Plaintext {
    /// The kernel routes them into a device of our own.
    Tun { tun: Arc<Tun>, trains: bool },
    /// The kernel's own IPsec takes them from the kernel's own path.
    Kernel,
    /// They are read from the Ethernet device on which they arrive.
    Ethernet {
        device: Ethernet,
        handle: EthernetHandle,
        mark: u32,
    },
}

/// Its ends: the source of the outbound direction, the sink of the inbound one, and the sink for "packet too big"
/// messages to senders.
pub(super) type PlaintextEnds = (
    Box<dyn PlaintextSource>,
    Box<dyn PlaintextSink>,
    Box<dyn PlaintextSink>,
);

impl Plaintext {
    /// Opens it. No route leads to it yet, and no packets are read.
    pub(super) fn open(
        site: &Site,
        options: &RunOptions,
        inherited: Option<(OwnedFd, TunOffloads)>,
        netlink: &mut Netlink,
        warn: &Warn,
    ) -> Result<Self, Failure> {
        match (site.tun(), site.forward()) {
            (_, Some(device)) => open_ethernet(site, device, options, netlink, warn),
            (tun, None) => {
                let trains = !options.no_offloads;
                let name = tun.unwrap_or_default();
                let options = options_of(name, trains);
                let known =
                    inherited.and_then(|(queue, offloads)| Tun::adopt(queue, offloads, &options));
                let tun = match known {
                    Some(tun) => Arc::new(tun),
                    None => tun_named(name, trains, None, warn).map_err(Failure::new)?,
                };
                Ok(Self::Tun { tun, trains })
            }
        }
    }

    /// The TUN device and its offloads, for the handover to the next gateway.
    pub(super) fn share(&self) -> Option<(OwnedFd, TunOffloads)> {
        match self {
            Self::Tun { tun, .. } => Some((tun.share().ok()?, tun.offloads)),
            Self::Kernel | Self::Ethernet { .. } => None,
        }
    }

    /// What has happened to the TUN device, as text.
    pub(super) fn missing(&self, netlink: &mut Netlink) -> io::Result<Vec<String>> {
        let Self::Tun { tun, .. } = self else {
            return Ok(Vec::new());
        };
        let mut words = Vec::from_iter(fault(tun, u16::MAX.into(), netlink)?);
        if words.is_empty() && interface::has_strict_rp_filter(&tun.name) {
            words.push(format!("rp_filter of {} set to strict", tun.name));
        }
        Ok(words)
    }

    /// Restores the TUN device: as it was, or a new one in its place.
    pub(super) fn restore(
        &mut self,
        tunnels: &TunDevices,
        netlink: &mut Netlink,
        warn: &Warn,
    ) -> io::Result<()> {
        let Self::Tun { tun, trains } = self else {
            return Ok(());
        };
        if is_as_before(tun, u16::MAX, netlink)? {
            interface::prepare(&tun.name, warn);
            return Ok(());
        }
        if let Some(other) = tun.name_now()
            && netlink.link(&other)? == Some(tun.index)
        {
            // It was renamed and must be deleted explicitly: sinks may hold it open until they have packets to deliver.
            netlink.delete_link(tun.index)?;
        }
        let known = Some(tun.offloads);
        let again = tun_named(&tun.name, *trains, known, warn).map_err(io::Error::other)?;
        tunnels.set(tun_devices::FIRST_DEVICE, Some(Arc::clone(&again)));
        *tun = again;
        Ok(())
    }

    /// Its source and sinks, for a gateway that starts.
    pub(super) fn ends(
        &mut self,
        tunnels: &TunDevices,
        databases: &Arc<ArcSwap<Snapshot>>,
        waker: &Waker,
    ) -> io::Result<PlaintextEnds> {
        match self {
            Self::Kernel => Err(io::ErrorKind::Unsupported.into()),
            Self::Tun { tun, .. } => {
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
                let replies = device.reply_sink(next_hops()?);
                Ok((Box::new(source), Box::new(sink), Box::new(replies)))
            }
        }
    }

    /// Updates the addresses that a forwarding device treats as this host's.
    pub(super) fn know_addresses(&self, netlink: &mut Netlink) -> io::Result<()> {
        if let Self::Ethernet { device, handle, .. } = self {
            let all = netlink.addresses_by_device()?;
            let of_device = all.iter().filter(|(index, _)| *index == device.device());
            handle.set_local_addresses(LocalAddresses {
                on_device: of_device.map(|(_, address)| *address).collect(),
                all: all.iter().map(|(_, address)| *address).collect(),
            });
        }
        Ok(())
    }

    /// Its features and statistics, as text.
    pub(super) fn describe(&self) -> Vec<String> {
        match self {
            Self::Kernel => Vec::new(),
            Self::Tun { tun, .. } => report::offloads(tun.offloads),
            Self::Ethernet { device, handle, .. } => {
                let abilities = TunOffloads {
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

fn options_of(name: &str, trains: bool) -> TunOptions {
    TunOptions {
        offloads: trains,
        ..TunOptions::named(name)
    }
}

/// `known` is what an earlier device of this name was able to do.
fn tun_named(
    name: &str,
    trains: bool,
    known: Option<TunOffloads>,
    warn: &Warn,
) -> Result<Arc<Tun>, OpenError> {
    let options = TunOptions {
        known_offloads: known,
        ..options_of(name, trains)
    };
    let tun = Tun::open(&options, warn)?;
    interface::prepare(name, warn);
    Ok(Arc::new(tun))
}

/// What has happened to the gateway's device, if anything. A device of the same name that another program made is left
/// alone.
pub(super) fn fault(tun: &Tun, mtu: u32, netlink: &mut Netlink) -> io::Result<Option<String>> {
    let name = &tun.name;
    let what = match tun.name_now() {
        None => "deleted",
        Some(now) if now != *name => "renamed",
        Some(_) if netlink.link(name)? != Some(tun.index) => "moved to another namespace",
        Some(_) => match netlink.link_state(tun.index)? {
            None => "deleted",
            Some((false, _)) => "set down",
            Some((true, found)) if found != mtu => "MTU changed",
            Some((true, _)) => return Ok(None),
        },
    };
    Ok(Some(format!("device {name} {what}")))
}

/// Restores the name and MTU of a device that still exists, and sets it up. If it does not exist or cannot be changed,
/// a new one has to replace it, which takes longer: the kernel deletes a device only when no CPU uses it any more.
pub(super) fn is_as_before(tun: &Tun, mtu: u16, netlink: &mut Netlink) -> io::Result<bool> {
    let Some(now) = tun.name_now() else {
        return Ok(false);
    };
    let is_named = now == tun.name
        || netlink.link(&now)? == Some(tun.index)
            && netlink.rename_link(tun.index, &tun.name).is_ok();
    Ok(is_named && tun.set_mtu(mtu).is_ok())
}

fn open_ethernet(
    site: &Site,
    name: &str,
    options: &RunOptions,
    netlink: &mut Netlink,
    warn: &Warn,
) -> Result<Plaintext, Failure> {
    let refuse = |why: &str| Failure::new(format!("--forward {name}: {why}"));
    let cannot_check = |error: io::Error| refuse(&format!("the device cannot be checked: {error}"));
    let index = netlink
        .link(name)
        .map_err(cannot_check)?
        .ok_or_else(|| refuse("no such device; `ip link` lists the devices"))?;
    let link = netlink.simple_link(index).map_err(cannot_check)?.ok_or_else(|| {
        refuse(
            "the device must be Ethernet, up, in no bridge or bond, and have a default qdisc; otherwise use a TUN \
             device (--tun)",
        )
    })?;
    let way = match options.native_io {
        NativeIo::Raw | NativeIo::Packet => NativeIo::Packet,
        wish => packet::probe(wish, warn),
    };
    let ethernet = EthernetOptions {
        name: name.to_owned(),
        device: index,
        mtu: link.mtu,
        mark: site.outside_mark(),
        native_io: way,
        offloads: !options.no_offloads,
    };
    let device = Ethernet::open(ethernet, warn)
        .map_err(|why| refuse(&format!("cannot open a packet ring there: {why}")))?;
    Ok(Plaintext::Ethernet {
        handle: device.handle(),
        device,
        mark: site.outside_mark(),
    })
}

fn describe(name: &str, handle: &EthernetHandle) -> String {
    let stats = handle.stats();
    let mut text = format!(
        "forwarding for the hosts behind {name}: {} packets from its ring, {} left to the kernel; {} sent by {} and \
         {} by raw socket",
        stats.taken(),
        stats.left(),
        stats.direct(),
        stats.native_io(),
        stats.by_raw_socket()
    );
    for (count, what) in [
        (stats.lost(), "lost because the ring was full"),
        (stats.expired(), "with expired hop limit"),
        (stats.undeliverable(), "with no known next hop"),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    text
}
