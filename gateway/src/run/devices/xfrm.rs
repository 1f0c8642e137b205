//! The devices of the kernel's plane: XFRM interfaces. No process has them open; they are found by their index.

use crate::plane::interface_id;
use crate::routes::netlink::{DeviceKind, Netlink};
use std::collections::BTreeMap;
use std::fs;
use std::io;

/// Index and name of each, by its number.
#[derive(Default)]
pub(super) struct XfrmInterfaces(BTreeMap<u32, (u32, String)>);

impl XfrmInterfaces {
    pub(super) fn has(&self, number: u32) -> bool {
        self.0.contains_key(&number)
    }

    pub(super) fn forget(&mut self, number: u32) {
        self.0.remove(&number);
    }

    /// A new one, or the existing one of this name that an earlier gateway made.
    pub(super) fn make(
        &mut self,
        number: u32,
        name: &str,
        (mtu, has_link_local): (u32, bool),
        netlink: &mut Netlink,
    ) -> io::Result<u32> {
        let id = interface_id(name);
        let index = match netlink.device_kind(name)? {
            Some((index, kind)) if kind == (DeviceKind::Xfrm { id }) => index,
            _ => netlink.add_xfrm_interface(name, id)?,
        };
        if !has_link_local {
            disable_ipv6_autoconfiguration(name);
        }
        netlink.bring_up(index, mtu)?;
        self.0.insert(number, (index, name.to_owned()));
        Ok(index)
    }

    /// The MTU of an existing one of this name.
    pub(super) fn left_mtu(&self, name: &str, netlink: &mut Netlink) -> io::Result<Option<u32>> {
        let id = interface_id(name);
        match netlink.device_kind(name)? {
            Some((index, kind)) if kind == (DeviceKind::Xfrm { id }) => {
                Ok(netlink.link_state(index)?.map(|(_, mtu)| mtu))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn set_mtu(
        &mut self,
        number: u32,
        mtu: u32,
        netlink: &mut Netlink,
    ) -> io::Result<()> {
        match self.0.get(&number) {
            Some((index, _)) => netlink.bring_up(*index, mtu),
            None => Ok(()),
        }
    }

    /// What has happened to one, as text.
    pub(super) fn fault(
        &self,
        number: u32,
        mtu: u32,
        netlink: &mut Netlink,
    ) -> io::Result<Option<String>> {
        let Some((index, name)) = self.0.get(&number) else {
            return Ok(Some("a device deleted".to_owned()));
        };
        let what = match netlink.link_state(*index)? {
            None => "deleted",
            Some(_) if netlink.link(name)? != Some(*index) => "renamed",
            Some((false, _)) => "set down",
            Some((true, found)) if found != mtu => "MTU changed",
            Some(_) => return Ok(None),
        };
        Ok(Some(format!("device {name} {what}")))
    }

    /// Restores name and MTU of one that still exists, and sets it up.
    pub(super) fn is_as_before(
        &self,
        number: u32,
        mtu: u32,
        netlink: &mut Netlink,
    ) -> io::Result<bool> {
        let Some((index, name)) = self.0.get(&number) else {
            return Ok(false);
        };
        if netlink.link_state(*index)?.is_none() {
            return Ok(false);
        }
        let is_named =
            netlink.link(name)? == Some(*index) || netlink.rename_link(*index, name).is_ok();
        Ok(is_named && netlink.bring_up(*index, mtu).is_ok())
    }
}

/// Without an address of the device the kernel sends no packets of its own by it (`addr_gen_mode` 1 is "none").
fn disable_ipv6_autoconfiguration(name: &str) {
    // A kernel without IPv6 has no such setting; if it cannot be written, the price is a dropped packet.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1");
}
