//! Where a packet ring takes native ESP, the kernel need not see it: dropped as it comes in, right behind the ring, it
//! costs no route look-up, no hook and no copy for a raw socket. A table of its own, because not every kernel can.

use crate::routes::Site;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

/// Which devices have rings, and for which addresses of ours.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rings {
    /// Names of devices.
    pub devices: BTreeSet<String>,
    /// Our own addresses.
    pub addresses: BTreeSet<IpAddr>,
}

/// The transaction that leaves the rings' packets to them alone, and takes back what stood there before.
pub fn script(site: &Site, rings: &Rings) -> String {
    let mut script = removal(site);
    let table = site.firewall_table();
    if rings.devices.is_empty() || rings.addresses.is_empty() {
        return script;
    }
    let _ = writeln!(script, "add table netdev {table}");
    for (n, device) in rings.devices.iter().enumerate() {
        let _ = writeln!(
            script,
            "add chain netdev {table} ring{n} {{ type filter hook ingress device \"{device}\" priority -500; }}"
        );
        for address in &rings.addresses {
            let (field, protocols) = match address {
                IpAddr::V4(_) => ("ip", &["ip protocol 50"][..]),
                IpAddr::V6(_) => (
                    "ip6",
                    &["ip6 nexthdr 50", "ip6 nexthdr 44 frag nexthdr 50"][..],
                ),
            };
            for protocol in protocols {
                let _ = writeln!(
                    script,
                    "add rule netdev {table} ring{n} {field} daddr {address} {protocol} drop"
                );
            }
        }
    }
    script
}

/// The transaction that takes the table away, whether or not it exists.
pub fn removal(site: &Site) -> String {
    let table = site.firewall_table();
    format!("add table netdev {table}\ndelete table netdev {table}\n")
}
