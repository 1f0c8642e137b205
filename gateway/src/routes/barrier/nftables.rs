//! The first barrier: the drop rules of [`firewall`], in a table that only this process may change while it runs.

use super::Barrier;
use crate::routes::firewall::tables::Firewall;
use crate::routes::nftables::TableFamily;
use crate::routes::plan::Plan;
use crate::routes::{Site, firewall};
use std::io;

/// The gateway's table in nftables.
pub(crate) struct Nftables {
    site: Site,
    table: Firewall,
}

impl Nftables {
    /// Nothing is installed yet.
    pub(crate) fn new(site: &Site) -> Self {
        Self {
            site: site.clone(),
            table: Firewall::new(TableFamily::Inet, site.firewall_table()),
        }
    }
}

impl Barrier for Nftables {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn install(&mut self, plan: &Plan) -> io::Result<()> {
        let ruleset = firewall::ruleset(&self.site, plan);
        if self.table.applied() == Some(&ruleset) {
            Ok(())
        } else {
            self.table.apply(&ruleset)
        }
    }

    fn install_outer(&mut self, plan: &Plan) -> io::Result<()> {
        let sets = firewall::outer_sets(plan);
        match self.table.applied() {
            Some(old) if old.sets == sets => Ok(()),
            Some(old) if old.has_sets_like(&sets) => self.table.change_values(sets),
            _ => self.install(plan),
        }
    }

    fn nftables_port(&self) -> Option<u32> {
        self.table.port()
    }

    fn missing(&mut self) -> io::Result<Vec<String>> {
        self.table.missing()
    }

    fn restore(&mut self) -> io::Result<()> {
        match self.table.applied().cloned() {
            Some(ruleset) => self.table.apply(&ruleset),
            None => Ok(()),
        }
    }

    fn remove(&mut self) -> io::Result<()> {
        self.table.remove()
    }
}
