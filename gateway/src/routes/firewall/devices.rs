//! The devices that rules name: those whose packets the gateway carries.

use super::condition::when;
use crate::routes::Site;
use crate::routes::nftables::rule::{Field, Rule};
use crate::routes::plan::Plan;

/// The devices that lead to no network: those of the tunnel, if there are any, and the loopback device.
pub(super) fn inside<'a>(site: &'a Site, plan: &'a Plan) -> impl Iterator<Item = &'a str> {
    of_tunnel(site, plan).chain(["lo"])
}

/// The devices whose packets follow the policies.
fn of_tunnel<'a>(site: &'a Site, plan: &'a Plan) -> impl Iterator<Item = &'a str> {
    let of_peers = plan.devices.iter().map(|name| &**name);
    tun(site, plan).into_iter().chain(of_peers)
}

/// The TUN device, if traffic is carried by it.
pub(super) fn tun<'a>(site: &'a Site, plan: &Plan) -> Option<&'a str> {
    site.tun().filter(|_| plan.planes.by_user())
}

/// The device whose hosts' traffic is taken by a ring, if it is.
pub(super) fn ring<'a>(site: &'a Site, plan: &Plan) -> Option<&'a str> {
    site.forward().filter(|_| plan.planes.by_user())
}

/// Whether a packet's device is one of the tunnel's, or none of them; none if there are no such devices.
pub(super) fn by_tunnel(site: &Site, plan: &Plan, way: Field, negated: bool) -> Option<Rule> {
    let mut devices = of_tunnel(site, plan).peekable();
    devices.peek()?;
    Some(when().device(way, devices, negated))
}

/// The devices for decrypted packets that only `in` policies let through, and for those that only `fwd` policies do, if
/// there are such policies. The kernel's own IPsec judges by its own policies, without such devices.
pub(super) fn direction_devices(site: &Site, plan: &Plan) -> Option<[String; 2]> {
    (plan.has_direction_devices && tun(site, plan).is_some()).then(|| site.direction_devices())
}
