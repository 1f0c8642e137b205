//! A file beside the control socket that records what the gateway has installed in the kernel, for a later `run` or
//! `down` after this gateway died.
//!
//! It is valid in one network namespace until the next boot, so it records both ([`network_namespace`]): read in
//! another namespace, its names must not be taken for those of the rules there.

mod inherit;
pub(crate) mod network_namespace;

pub(crate) use inherit::inherit;

use super::{BadSite, Site};
use crate::control::Folder;
use network_namespace::NetworkNamespace;
use serde::{Deserialize, Serialize};
use std::io;

/// The file's extension, appended to the socket's name.
const KIND: &str = "state";

/// The record. It has names and numbers only, nothing secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The TUN device, or the inner device of a gateway without one.
    pub tun: String,
    /// Whether it is the latter.
    #[serde(default)]
    pub forwards: bool,
    /// The routing table.
    pub table: u32,
    /// The mark.
    pub mark: u32,
    /// Kernel settings of other devices that the gateway has changed, and their previous values.
    #[serde(default)]
    pub settings: Vec<(String, String)>,
    /// The network namespace and boot. Absent in records of old versions, which were always read as of this namespace.
    #[serde(default)]
    pub place: Option<NetworkNamespace>,
    /// The gateway's process.
    #[serde(default)]
    pub pid: u32,
}

impl Record {
    /// The record of a site in the current network namespace and boot.
    pub(crate) fn of(site: &Site) -> io::Result<Self> {
        Ok(Self {
            tun: site.name().to_owned(),
            forwards: site.forward().is_some(),
            table: site.table(),
            mark: site.outside_mark(),
            settings: Vec::new(),
            place: Some(NetworkNamespace::here()?),
            pid: std::process::id(),
        })
    }

    /// The site that it records.
    pub(crate) fn site(&self) -> Result<Site, BadSite> {
        if self.forwards {
            Site::forwarding(&self.tun, Some(self.table), self.mark)
        } else {
            Site::new(&self.tun, Some(self.table), self.mark)
        }
    }

    /// The state of the recorded network namespace, seen from the current one.
    pub(crate) fn whereabouts(&self) -> io::Result<network_namespace::NamespaceState> {
        match &self.place {
            Some(place) => place.seen_from_here(),
            None => Ok(network_namespace::NamespaceState::Here),
        }
    }

    /// Restores the kernel's settings; returns the names of those that no gateway ever changes, which are not touched.
    pub(crate) fn restore(&self) -> Vec<&str> {
        let (ours, others): (Vec<_>, _) = self
            .settings
            .iter()
            .partition(|(name, value)| is_ours(name, value));
        for (name, value) in ours {
            // An error is ignored: the setting then keeps its value.
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

    /// Writes it atomically.
    pub(crate) fn save(&self, folder: &Folder) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        folder.write(KIND, &text).map_err(io::Error::other)
    }

    /// Deletes it.
    pub(crate) fn remove(folder: &Folder) -> io::Result<()> {
        folder.remove(KIND).map_err(io::Error::other)
    }
}

/// The settings that a gateway changes on other devices, with the values they can have. No other settings of a record
/// are restored. `run/interface.rs` changes them.
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
