//! Which devices have filters, and by which preference and handles the filters are recognised.

use crate::routes::Site;
use crate::routes::device_filter::LinkKind;
use crate::routes::netlink::traffic_control::{Device, Filter};
use crate::routes::plan::Planes;
use crate::routes::steering::OWNER;

/// Runs before most filters of other programs, after those of preference 1 to 6.
pub(super) const PREFERENCE: u16 = 7;

/// Link-layer types, from `linux/if_arp.h`.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// Bit of a handle: the gateway has added the `clsact` that the filter is in.
const MADE: u32 = 0x8000;

/// A device that has filters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FilteredDevice {
    pub index: u32,
    pub name: String,
    pub link: LinkKind,
    /// Whether this gateway sends decrypted packets out of it by a socket of its own.
    pub delivers: bool,
    pub is_bridged: bool,
}

/// None for the gateway's own devices, which carry the tunnel's inner packets, and for the loopback device. Without a
/// TUN device the gateway's own are known by their alias alone.
pub(super) fn filtered_device(
    site: &Site,
    planes: Planes,
    device: &Device,
) -> Option<FilteredDevice> {
    let has_name =
        || site.tun() == Some(&device.name) || site.direction_devices().contains(&device.name);
    let has_tun = site.tun().is_some() && planes.by_user();
    let is_ours = has_tun && has_name() || device.alias == site.alias();
    if is_ours || device.hardware == ARPHRD_LOOPBACK {
        return None;
    }
    Some(FilteredDevice {
        index: device.index,
        name: device.name.clone(),
        link: match device.hardware {
            ARPHRD_ETHER => LinkKind::Ethernet,
            _ => LinkKind::Other,
        },
        delivers: site.forward() == Some(&device.name) && planes.by_user(),
        is_bridged: device.is_bridged,
    })
}

/// The handles of one gateway's filters: the protocol number of its routes ([`OWNER`]), the number of its block of
/// routing rule preferences, whether it has added the `clsact`, and a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handles(u32);

impl Handles {
    pub(super) fn of(site: &Site) -> Self {
        Self(u32::from(OWNER) << 24 | (site.table() % 20) << 16)
    }

    /// Whether a filter is one of this gateway's.
    pub(super) fn has(self, filter: &Filter) -> bool {
        filter.kind == "bpf"
            && filter.preference == PREFERENCE
            && filter.handle & 0xffff_0000 == self.0
    }

    /// Whether its handle records that the gateway has added the `clsact`.
    pub(super) fn says_made(self, filter: &Filter) -> bool {
        self.has(filter) && filter.handle & MADE != 0
    }

    /// A handle that is not among `taken`.
    pub(super) fn free(self, taken: &[u32], made: bool) -> u32 {
        let first = self.0 | if made { MADE } else { 0 };
        // INVARIANT: a plan has at most 256 programs, so even with those of the previous plan there are free handles.
        let mut numbers = (1..MADE).map(|number| first | number);
        numbers
            .find(|handle| !taken.contains(handle))
            .unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::DEFAULT_MARK;

    fn device(name: &str, alias: &str, hardware: u16) -> Device {
        Device {
            index: 3,
            name: name.to_owned(),
            alias: alias.to_owned(),
            hardware,
            is_bridged: false,
        }
    }

    #[test]
    fn every_device_has_filters_but_ours_and_the_loopback() {
        let site = Site::new("esp0", None, DEFAULT_MARK).unwrap();
        for (name, alias, hardware) in [
            ("esp0", "", 65_534),
            ("esp0-in", "", 65_534),
            ("esp0-fwd", "", 65_534),
            ("branch7", "esplanade esp0", 65_534),
            ("lo", "", ARPHRD_LOOPBACK),
        ] {
            assert_eq!(
                filtered_device(&site, Planes::User, &device(name, alias, hardware)),
                None,
                "{name}"
            );
        }
        for (name, alias, hardware, link) in [
            ("eth0", "", 1, LinkKind::Ethernet),
            ("esp1", "", 65_534, LinkKind::Other),
            ("tun9", "esplanade esp1", 65_534, LinkKind::Other),
        ] {
            let place =
                filtered_device(&site, Planes::User, &device(name, alias, hardware)).unwrap();
            assert_eq!((place.link, place.delivers), (link, false), "{name}");
        }
        // Without a TUN device, one of that name is another program's.
        for (name, alias, is_filtered) in [
            ("esp0", "", true),
            ("esp0-in", "", true),
            ("branch7", "esplanade esp0", false),
        ] {
            let device = device(name, alias, 65_534);
            let found = filtered_device(&site, Planes::Kernel, &device);
            assert_eq!(found.is_some(), is_filtered, "{name}");
        }
        let site = Site::forwarding("eth1", None, DEFAULT_MARK).unwrap();
        assert!(
            filtered_device(&site, Planes::User, &device("eth1", "", 1))
                .unwrap()
                .delivers
        );
    }

    #[test]
    fn handles_identify_the_gateway_and_the_maker_of_the_qdisc() {
        let site = |name| Site::new(name, None, DEFAULT_MARK).unwrap();
        let (one, two) = (Handles::of(&site("esp0")), Handles::of(&site("esp1")));
        assert_ne!(one, two);
        let filter = |handle| Filter {
            kind: "bpf".to_owned(),
            preference: PREFERENCE,
            handle,
            is_direct: true,
            program: Vec::new(),
        };
        let first = one.free(&[], true);
        let second = one.free(&[first], true);
        assert_ne!(first, second);
        assert!(one.has(&filter(first)) && !two.has(&filter(first)));
        assert!(one.says_made(&filter(second)) && !one.says_made(&filter(one.free(&[], false))));
        let other = Filter {
            preference: 1,
            ..filter(first)
        };
        assert!(!one.has(&other));
    }
}
