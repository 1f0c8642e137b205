//! Devices of associations with `-o interface=NAME`: made when the first one names it, kept as long as a route leads to
//! it. Those of peers of IKE exist as long as the peer is configured.
//!
//! Fail closed: a device stays when its associations are deleted and when the gateway stops or is killed. A route to a
//! device without a gateway loses traffic; if the route disappeared, the next matching route would carry the traffic
//! unencrypted. Packets routed into a device without an association, or without a gateway, are dropped.
//!
//! On the user plane they are TUN devices, on the kernel's XFRM interfaces ([`xfrm`]).
//!
//! Also the *direction devices*: two devices for decrypted packets that only `in` or only `fwd` policies allow.

mod xfrm;

use super::forward::{fault, is_as_before};
use super::interface;
use crate::routes::Site;
use crate::routes::netlink::{DeviceKind, Netlink};
use dataplane::io::Warn;
use dataplane::io::tun::{Tun, TunOffloads, TunOptions};
use dataplane::io::tun_devices::{FWD_ONLY_DEVICE, IN_ONLY_DEVICE, TunDevices};
use ipsec::database::Interface;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use xfrm::XfrmInterfaces;

/// IPv6 needs at least this MTU; packets for smaller paths are fragmented.
const MIN_MTU_BYTES: u32 = 1280;

/// The devices of a gateway beside its first.
pub(super) struct Devices {
    tunnels: TunDevices,
    /// Present on the kernel's plane, whose devices they are.
    by_kernel: Option<XfrmInterfaces>,
    held: BTreeMap<Arc<str>, Device>,
    /// Those of the gateway before, until the start is over.
    inherited: BTreeMap<String, (OwnedFd, TunOffloads)>,
    alias: String,
    first: String,
    has_direction_devices: bool,
    trains: bool,
    warn: Warn,
}

#[derive(Clone, Copy)]
struct Device {
    number: u32,
    mtu: u32,
    kind: Kind,
}

/// Whose device it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Named by associations with keys set by hand.
    ByHand,
    /// A peer's, into which nothing leads but what others route there.
    Peers,
    /// A peer's, into which policies lead: as the gateway's first one it has no address.
    Following,
}

impl Kind {
    fn of(interface: &Interface) -> Self {
        match (interface.is_kept, interface.follows_policies) {
            (_, true) => Self::Following,
            (true, false) => Self::Peers,
            (false, false) => Self::ByHand,
        }
    }
}

impl Devices {
    /// None yet.
    pub(super) fn new(site: &Site, by_kernel: bool, trains: bool, warn: &Warn) -> Self {
        Self {
            tunnels: TunDevices::default(),
            by_kernel: by_kernel.then(XfrmInterfaces::default),
            held: BTreeMap::new(),
            inherited: BTreeMap::new(),
            alias: site.alias(),
            first: site.name().to_owned(),
            has_direction_devices: false,
            trains,
            warn: Arc::clone(warn),
        }
    }

    /// Takes over TUN devices of the gateway before, with what waits in them. Those that are not made before the end of
    /// the start are closed.
    pub(super) fn inherit(&mut self, devices: BTreeMap<String, (OwnedFd, TunOffloads)>) {
        self.inherited = devices;
    }

    /// The start is over.
    pub(super) fn forget_inherited(&mut self) {
        self.inherited.clear();
    }

    /// The TUN devices with their offloads, for the next gateway.
    pub(super) fn share(&self) -> impl Iterator<Item = (String, OwnedFd, TunOffloads)> + '_ {
        self.held.iter().filter_map(|(name, device)| {
            let tun = self.tunnels.get(device.number)?;
            Some((name.to_string(), tun.share().ok()?, tun.offloads))
        })
    }

    /// The ends of all of them.
    pub(super) fn tunnels(&self) -> &TunDevices {
        &self.tunnels
    }

    /// Their names and MTUs.
    pub(super) fn describe(&self) -> Vec<(String, u32)> {
        let each = self.held.iter();
        each.map(|(name, device)| (name.to_string(), device.mtu))
            .collect()
    }

    /// The names alone.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.held.keys().cloned().collect()
    }

    /// The number of the device with this name.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.held.get(name).map(|device| device.number)
    }

    /// The name of the device with this number.
    pub(super) fn name(&self, number: u32) -> Option<String> {
        let mut each = self.held.iter();
        let found = each.find(|(_, device)| device.number == number);
        found.map(|(name, _)| name.to_string())
    }

    /// Makes the two devices by which the kernel distinguishes whether `in` or `fwd` policies allow a packet, where
    /// these can differ. They stay as long as the gateway runs: packets checked against older policies may still be
    /// queued.
    pub(super) fn open_direction_devices(
        &mut self,
        site: &Site,
        netlink: &mut Netlink,
    ) -> io::Result<()> {
        for (number, name) in [IN_ONLY_DEVICE, FWD_ONLY_DEVICE]
            .into_iter()
            .zip(site.direction_devices())
        {
            if self.tunnels.get(number).is_none() {
                let device = self.make_direction_device(&name, netlink)?;
                self.tunnels.set(number, Some(Arc::new(device)));
            }
        }
        self.has_direction_devices = true;
        Ok(())
    }

    /// Whether the two devices exist.
    pub(super) fn has_direction_devices(&self) -> bool {
        self.has_direction_devices
    }

    fn make_direction_device(&self, name: &str, netlink: &mut Netlink) -> io::Result<Tun> {
        let options = TunOptions {
            offloads: self.trains,
            ..TunOptions::named(name)
        };
        let device = Tun::open(&options, &self.warn).map_err(|why| {
            io::Error::other(format!(
                "`in` and `fwd` policies that differ need the device {name} beside {}, which cannot be created: {why}",
                self.first
            ))
        })?;
        interface::prepare(name, &self.warn);
        // No route leads back through a device: even a loose reverse path check allows that only for a device with an
        // address.
        netlink.add_dummy_address(device.index)?;
        Ok(device)
    }

    /// Makes every device that is named; `mtu` is the largest packet that it carries, where that is known.
    pub(super) fn open(
        &mut self,
        interface: &Interface,
        mtu: Option<u32>,
        netlink: &mut Netlink,
    ) -> io::Result<()> {
        let mtu = mtu.map(|mtu| mtu.clamp(MIN_MTU_BYTES, u16::MAX.into()));
        let device = Device {
            number: interface.number,
            mtu: match mtu {
                Some(mtu) => mtu,
                None => self.left_mtu(&interface.name, netlink)?,
            },
            kind: Kind::of(interface),
        };
        if !self.is_open(interface.number) {
            self.make(&interface.name, device, netlink)?;
        } else if mtu.is_some_and(|mtu| self.mtu(&interface.name) != Some(mtu)) {
            self.set_mtu(device, netlink)?;
        } else {
            return Ok(());
        }
        self.held.insert(Arc::clone(&interface.name), device);
        Ok(())
    }

    /// Where the path is not known yet: that of the XFRM interface which the gateway before has left, and by which
    /// packets may pass.
    fn left_mtu(&self, name: &str, netlink: &mut Netlink) -> io::Result<u32> {
        let interfaces = self.by_kernel.as_ref();
        let left = interfaces.map(|interfaces| interfaces.left_mtu(name, netlink));
        Ok(left.transpose()?.flatten().unwrap_or(MIN_MTU_BYTES))
    }

    /// Removes devices that are not in `named` and that no route leads to.
    pub(super) fn close(&mut self, named: &[Interface], netlink: &mut Netlink) -> io::Result<()> {
        for (name, index) in netlink.links_called(&self.alias)? {
            let is_named = named.iter().any(|known| *known.name == *name);
            if name == self.first || is_named || netlink.is_led_to(index)? {
                continue;
            }
            if let Some(device) = self.held.remove(&*name) {
                self.forget(device.number);
            }
            netlink.delete_link(index)?;
        }
        Ok(())
    }

    /// What has happened to them, as text.
    pub(super) fn missing(&self, netlink: &mut Netlink) -> io::Result<Vec<String>> {
        let mut words = Vec::new();
        for (name, device) in &self.held {
            words.extend(self.fault(name, *device, netlink)?);
        }
        Ok(words)
    }

    /// Restores the devices: as they were, or new ones in their place. Routes through them were made by others and are
    /// not restored.
    pub(super) fn restore(&mut self, netlink: &mut Netlink) -> io::Result<()> {
        let mut outcome = Ok(());
        for (name, device) in self.held.clone() {
            let restored = self.restore_one(&name, device, netlink);
            outcome = outcome.and(restored);
        }
        outcome
    }

    fn restore_one(&mut self, name: &str, device: Device, netlink: &mut Netlink) -> io::Result<()> {
        let is_whole = self.fault(name, device, netlink)?.is_none();
        if is_whole || self.is_as_before(device, netlink)? {
            return Ok(());
        }
        self.make(name, device, netlink)
    }

    fn mtu(&self, name: &str) -> Option<u32> {
        self.held.get(name).map(|device| device.mtu)
    }

    fn is_open(&self, number: u32) -> bool {
        match &self.by_kernel {
            Some(interfaces) => interfaces.has(number),
            None => self.tunnels.get(number).is_some(),
        }
    }

    fn forget(&mut self, number: u32) {
        match &mut self.by_kernel {
            Some(interfaces) => interfaces.forget(number),
            None => self.tunnels.set(number, None),
        }
    }

    fn set_mtu(&mut self, device: Device, netlink: &mut Netlink) -> io::Result<()> {
        let Device { number, mtu, .. } = device;
        if let Some(interfaces) = &mut self.by_kernel {
            return interfaces.set_mtu(number, mtu, netlink);
        }
        match self.tunnels.get(number) {
            Some(tun) => tun.set_mtu(mtu as u16).map_err(io::Error::other),
            None => Ok(()),
        }
    }

    fn fault(
        &self,
        name: &str,
        device: Device,
        netlink: &mut Netlink,
    ) -> io::Result<Option<String>> {
        if let Some(interfaces) = &self.by_kernel {
            return interfaces.fault(device.number, device.mtu, netlink);
        }
        match self.tunnels.get(device.number) {
            Some(tun) => fault(&tun, device.mtu, netlink),
            None => Ok(Some(format!("device {name} deleted"))),
        }
    }

    fn is_as_before(&self, device: Device, netlink: &mut Netlink) -> io::Result<bool> {
        if let Some(interfaces) = &self.by_kernel {
            return interfaces.is_as_before(device.number, device.mtu, netlink);
        }
        match self.tunnels.get(device.number) {
            Some(tun) => is_as_before(&tun, device.mtu as u16, netlink),
            None => Ok(false),
        }
    }

    /// A new device, or an existing one that this gateway left.
    fn make(&mut self, name: &str, device: Device, netlink: &mut Netlink) -> io::Result<()> {
        let Device { number, mtu, kind } = device;
        self.check_name(name, kind, netlink)?;
        self.check_kind(name, netlink)?;
        let has_link_local = kind != Kind::Following;
        let index = match &mut self.by_kernel {
            Some(interfaces) => interfaces.make(number, name, (mtu, has_link_local), netlink)?,
            None => {
                let options = TunOptions {
                    mtu: mtu as u16,
                    offloads: self.trains,
                    persistent: true,
                    link_local: has_link_local,
                    ..TunOptions::named(name)
                };
                let inherited = self.inherited.remove(name);
                let adopted =
                    inherited.and_then(|(queue, offloads)| Tun::adopt(queue, offloads, &options));
                let tun = match adopted {
                    Some(tun) => tun,
                    None => Tun::open(&options, &self.warn).map_err(io::Error::other)?,
                };
                let index = tun.index;
                self.tunnels.set(number, Some(Arc::new(tun)));
                index
            }
        };
        netlink.call_link(index, &self.alias)?;
        if kind != Kind::ByHand {
            interface::prepare(name, &self.warn);
        }
        Ok(())
    }

    /// Refuses the name of a device that this gateway did not make.
    fn check_name(&self, name: &str, kind: Kind, netlink: &mut Netlink) -> io::Result<()> {
        let known = netlink.link(name)?.is_some();
        let left_behind = netlink.links_called(&self.alias)?;
        if known && (name == self.first || !left_behind.iter().any(|(left, _)| left == name)) {
            let (option, advice) = match kind {
                Kind::ByHand => (format!("-o interface={name}"), "choose another name"),
                Kind::Peers | Kind::Following => (
                    "mode = \"route\"".to_owned(),
                    "choose another name with `interface = \"…\"` in the peer",
                ),
            };
            return Err(io::Error::other(format!(
                "`{option}`: a device of the name {name} exists already and was not created by this gateway: {advice}"
            )));
        }
        Ok(())
    }

    /// A device that a gateway of the other plane left is replaced, unless routes lead there: they would be lost, and
    /// other routes carry the traffic in clear.
    fn check_kind(&self, name: &str, netlink: &mut Netlink) -> io::Result<()> {
        let Some((index, kind)) = netlink.device_kind(name)? else {
            return Ok(());
        };
        if matches!(kind, DeviceKind::Xfrm { .. }) == self.by_kernel.is_some() {
            return Ok(());
        }
        if netlink.is_led_to(index)? {
            return Err(io::Error::other(format!(
                "the device {name} was left by a gateway of the other plane, and routes lead there: `esplanade down` \
                 removes both, or start with the other `--plane`"
            )));
        }
        netlink.delete_link(index)
    }
}
