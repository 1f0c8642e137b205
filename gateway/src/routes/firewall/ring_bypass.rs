//! Native ESP that a packet ring takes is of no use to the kernel: a chain at ingress, right after the ring, drops it,
//! which saves the route lookup, the other hooks and a copy for the raw socket. It is a separate table, because not
//! every kernel supports it.

use crate::routes::Site;
use crate::routes::nftables::rule::{Field, Rule};
use crate::routes::nftables::{Chain, Hook, Ruleset, TableFamily};
use crate::routes::plan::Family;
use std::collections::BTreeSet;
use std::net::IpAddr;

const ESP: u8 = 50;
const FRAGMENT: u8 = 44;

/// Which devices have rings, and for which of the gateway's addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rings {
    /// Names of devices.
    pub devices: BTreeSet<String>,
    /// Addresses of the gateway.
    pub addresses: BTreeSet<IpAddr>,
}

/// The rules that drop, after the rings, what these have taken; none if there are no rings.
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
        sets: Vec::new(),
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
