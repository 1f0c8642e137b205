//! Marks IPv6 packets that were decrypted or never left this host. XFRM policies do not match the device by which a
//! packet arrived, and IPv6 reads `disable_policy` of the device that has the destination address.

use crate::routes::Site;
use crate::routes::firewall::tables::Firewall;
use crate::routes::nftables::rule::{Field, Rule, Term};
use crate::routes::nftables::{Chain, Hook, Ruleset, TableFamily};
use crate::routes::plan::Family;
use std::io;

/// Runs before connection tracking.
const PRIORITY: i32 = -300;

/// An nftables table that only sets this mark.
pub(super) struct Opened {
    table: Firewall,
    name: String,
    bit: u32,
}

impl Opened {
    pub(super) fn new(site: &Site) -> Self {
        let name = format!("xfrm_{}", site.firewall_table());
        Self {
            table: Firewall::new(TableFamily::Inet, name.clone()),
            name,
            bit: site.opened_mark(),
        }
    }

    pub(super) fn bit(&self) -> u32 {
        self.bit
    }

    /// Marks what arrives by these devices and by the loopback device.
    pub(super) fn put(&mut self, devices: &[String]) -> io::Result<()> {
        let names = devices.iter().map(String::as_str).chain(["lo"]);
        let mark = Rule::default()
            .family(Family::V6)
            .device(Field::InDevice, names, false)
            .and(Term::AddMark(self.bit));
        let ruleset = Ruleset {
            family: TableFamily::Inet,
            table: self.name.clone(),
            counters: Vec::new(),
            sets: Vec::new(),
            chains: vec![Chain {
                name: "opened".to_owned(),
                kind: "filter",
                hook: Hook::Prerouting,
                priority: PRIORITY,
                rules: vec![mark],
            }],
        };
        let stands = self.table.applied() == Some(&ruleset) && self.table.missing()?.is_empty();
        if stands {
            Ok(())
        } else {
            self.table.apply(&ruleset)
        }
    }

    /// Describes what of the table is missing.
    pub(super) fn missing(&mut self) -> io::Result<Vec<String>> {
        self.table.missing()
    }

    pub(super) fn remove(&mut self) -> io::Result<()> {
        self.table.remove()
    }
}
