//! Where a packet ring takes native ESP, the kernel need not see it: dropped as it comes in, right behind the ring, it
//! costs no route look-up, no hook and no copy for a raw socket. A table of its own, because not every kernel can.

use crate::routes::Site;
use crate::routes::nftables::rule::{Field, Rule};
use crate::routes::nftables::{Chain, Hook, Ruleset, TableFamily};
use crate::routes::plan::Family;
use std::collections::BTreeSet;
use std::net::IpAddr;

const ESP: u8 = 50;
const FRAGMENT: u8 = 44;

/// Which devices have rings, and for which addresses of ours.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rings {
    /// Names of devices.
    pub devices: BTreeSet<String>,
    /// Our own addresses.
    pub addresses: BTreeSet<IpAddr>,
}

/// The rules that leave the rings' packets to them alone; none where there are no rings.
pub(crate) fn ruleset(site: &Site, rings: &Rings) -> Option<Ruleset> {
    if rings.devices.is_empty() || rings.addresses.is_empty() {
        return None;
    }
    let chains = rings.devices.iter().enumerate().map(|(n, device)| Chain {
        name: format!("ring{n}"),
        kind: "filter",
        hook: Hook::Ingress(device.clone()),
        priority: -500,
        rules: rings.addresses.iter().flat_map(esp_to).collect(),
    });
    Some(Ruleset {
        family: TableFamily::Netdev,
        table: site.firewall_table(),
        counters: Vec::new(),
        chains: chains.collect(),
    })
}

fn esp_to(address: &IpAddr) -> Vec<Rule> {
    match address {
        IpAddr::V4(address) => {
            let to = to(Family::V4, &address.octets());
            vec![to.is(Field::Protocol4, [ESP]).drop()]
        }
        IpAddr::V6(address) => {
            let to = to(Family::V6, &address.octets());
            let fragment = to.clone().is(Field::NextHeader, [FRAGMENT]);
            vec![
                to.is(Field::NextHeader, [ESP]).drop(),
                fragment.is(Field::FragmentNextHeader, [ESP]).drop(),
            ]
        }
    }
}

fn to(family: Family, address: &[u8]) -> Rule {
    let ether_type = match family {
        Family::V4 => 0x0800_u16,
        Family::V6 => 0x86dd,
    };
    Rule::default()
        .is(Field::EtherType, ether_type.to_be_bytes())
        .is(Field::Destination(family), address)
}
