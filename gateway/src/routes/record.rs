//! A note beside the control socket of what is ours in the kernel, for a later `run` or `down` after this gateway died.
//!
//! What it says holds in one network namespace until the next boot, so it names both ([`network_namespace`]): whoever
//! reads it elsewhere must not take its names for those of the rules that stand there.

mod inherit;
pub(crate) mod network_namespace;

pub(crate) use inherit::inherit;

use super::{BadSite, Site};
use crate::control::Folder;
use crate::state::BootRecord;
use network_namespace::NetworkNamespace;
use serde::{Deserialize, Serialize};
use std::io;

/// The file's kind, behind the socket's name.
const KIND: &str = "state";

/// What is noted. Names and numbers only, nothing secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The TUN device, or the one that is forwarded for.
    pub tun: String,
    /// Whether it is the latter.
    #[serde(default)]
    pub forwards: bool,
    /// The routing table.
    pub table: u32,
    /// The mark.
    pub mark: u32,
    /// Kernel settings that were changed outside our own device, and their values before.
    #[serde(default)]
    pub settings: Vec<(String, String)>,
    /// Where all this stands. Absent in notes of old, which were always read as if about here.
    #[serde(default)]
    pub place: Option<NetworkNamespace>,
    /// The gateway's process.
    #[serde(default)]
    pub pid: u32,
    /// Which state its numbers are kept in: one that is older by the next start of this boot is not believed.
    #[serde(default)]
    pub numbers: Option<BootRecord>,
}

impl Record {
    /// The note about a site, here and now.
    pub(crate) fn of(site: &Site) -> io::Result<Self> {
        Ok(Self {
            tun: site.name().to_owned(),
            forwards: site.forward().is_some(),
            table: site.table(),
            mark: site.outside_mark(),
            settings: Vec::new(),
            place: Some(NetworkNamespace::here()?),
            pid: std::process::id(),
            numbers: None,
        })
    }

    /// The site it is about.
    pub(crate) fn site(&self) -> Result<Site, BadSite> {
        if self.forwards {
            Site::forwarding(&self.tun, Some(self.table), self.mark)
        } else {
            Site::new(&self.tun, Some(self.table), self.mark)
        }
    }

    /// Where that is, seen from here.
    pub(crate) fn whereabouts(&self) -> io::Result<network_namespace::NamespaceState> {
        match &self.place {
            Some(place) => place.seen_from_here(),
            None => Ok(network_namespace::NamespaceState::Here),
        }
    }

    /// Sets the kernel's settings back; returns the names of those that no gateway ever changes, and that were left
    /// alone.
    pub(crate) fn restore(&self) -> Vec<&str> {
        let (ours, others): (Vec<_>, _) = self
            .settings
            .iter()
            .partition(|(name, value)| is_ours(name, value));
        for (name, value) in ours {
            // If it was changed since, or may not be changed now, it stays.
            let _ = std::fs::write(format!("/proc/sys/{name}"), value);
        }
        others.into_iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Reads it, if there is one.
    pub(crate) fn load(folder: &Folder) -> io::Result<Option<Self>> {
        let Some(text) = folder.read(KIND).map_err(io::Error::other)? else {
            return Ok(None);
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let path = folder.socket().display();
            io::Error::other(format!(
                "{path}.{KIND} is damaged ({error}): clean up with `esplanade down --force --control {path}`"
            ))
        })
    }

    /// What the last gateway of this boot has noted of its numbers.
    pub(crate) fn noted_in_this_boot(folder: &Folder) -> Option<BootRecord> {
        let record = Self::load(folder).ok()??;
        let is_of_now = record
            .place
            .as_ref()
            .is_some_and(NetworkNamespace::is_of_this_boot);
        record.numbers.filter(|_| is_of_now)
    }

    /// Writes it, whole or not at all.
    pub(crate) fn save(&self, folder: &Folder) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        folder.write(KIND, &text).map_err(io::Error::other)
    }

    /// Takes it away.
    pub(crate) fn remove(folder: &Folder) -> io::Result<()> {
        folder.remove(KIND).map_err(io::Error::other)
    }
}

/// The settings that a gateway changes outside its own device, with the values they can have: the only ones that a note
/// is believed about, whatever else it says. `run/interface.rs` changes them.
fn is_ours(name: &str, value: &str) -> bool {
    let device = name
        .strip_prefix("net/ipv4/conf/")
        .and_then(|rest| rest.strip_suffix("/rp_filter"));
    let is_device = |device: &str| {
        !matches!(device, "" | "." | "..") && !device.contains('/') && device.len() <= 15
    };
    device.is_some_and(is_device) && matches!(value, "0" | "1" | "2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_a_gateway_changes_are_set_back() {
        assert!(is_ours("net/ipv4/conf/eth0.100/rp_filter", "1"));
        for name in [
            "../../tmp/rp_filter",
            "net/ipv4/conf/../../../../etc/rp_filter",
            "net/ipv4/conf/../rp_filter",
            "net/ipv4/conf//rp_filter",
            "net/ipv4/ip_forward",
            "kernel/core_pattern",
            "net/ipv4/conf/a/b/rp_filter",
        ] {
            assert!(!is_ours(name, "1"), "{name}");
        }
        assert!(!is_ours("net/ipv4/conf/eth0/rp_filter", "|/bin/sh"));
    }

    #[test]
    fn a_note_of_old_is_about_here() {
        let old = r#"{"tun":"esp0","table":4500,"mark":268435456}"#;
        let record: Record = serde_json::from_str(old).unwrap();
        assert_eq!(
            record.whereabouts().unwrap(),
            network_namespace::NamespaceState::Here
        );
    }
}
