//! The first barrier: the drop rules of [`firewall`], compared with what the kernel lists.

use super::Barrier;
use crate::routes::plan::Plan;
use crate::routes::{Site, firewall};
use std::io;

/// A table of our own in nftables.
pub struct Nftables {
    site: Site,
    /// The transaction in force.
    script: String,
    /// What the kernel listed right after it, counters left out.
    listing: String,
}

impl Nftables {
    /// Nothing is installed yet.
    pub fn new(site: &Site) -> Self {
        Self {
            site: site.clone(),
            script: String::new(),
            listing: String::new(),
        }
    }

    fn put(&mut self, script: String) -> io::Result<()> {
        firewall::apply(&script)?;
        self.script = script;
        self.listing = firewall::listing(&self.site)?.unwrap_or_default();
        Ok(())
    }
}

impl Barrier for Nftables {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn install(&mut self, plan: &Plan) -> io::Result<()> {
        let script = firewall::script(&self.site, plan);
        match script == self.script {
            true => Ok(()),
            false => self.put(script),
        }
    }

    fn missing(&mut self) -> io::Result<Vec<String>> {
        if self.script.is_empty() {
            return Ok(Vec::new());
        }
        Ok(match firewall::listing(&self.site)? {
            None => vec!["table deleted".to_owned()],
            Some(found) if found != self.listing => vec!["rules changed".to_owned()],
            Some(_) => Vec::new(),
        })
    }

    fn restore(&mut self) -> io::Result<()> {
        self.put(self.script.clone())
    }

    fn remove(&mut self) -> io::Result<()> {
        self.script.clear();
        firewall::apply(&firewall::removal(&self.site))
    }
}
