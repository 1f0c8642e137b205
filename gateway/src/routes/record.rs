//! A note beside the control socket of what is ours in the kernel, for a later `run` or `down` after this gateway died.

use super::{BadSite, Site};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// What is noted. Names and numbers only, nothing secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
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
}

impl Record {
    /// The note about a site.
    pub fn of(site: &Site) -> Self {
        Self {
            tun: site.name().to_owned(),
            forwards: site.forward().is_some(),
            table: site.table(),
            mark: site.outside_mark(),
            settings: Vec::new(),
        }
    }

    /// The site it is about.
    pub fn site(&self) -> Result<Site, BadSite> {
        match self.forwards {
            true => Site::forwarding(&self.tun, Some(self.table), self.mark),
            false => Site::new(&self.tun, Some(self.table), self.mark),
        }
    }

    /// Sets the kernel's settings back.
    pub fn restore(&self) {
        for (name, value) in &self.settings {
            // Whoever has changed it since, or forbids it now, knows better.
            let _ = std::fs::write(format!("/proc/sys/{name}"), value);
        }
    }

    /// Where it lies for a control socket.
    pub fn path(control: &Path) -> PathBuf {
        control.with_extension("state")
    }

    /// Reads it, if there is one.
    pub fn load(control: &Path) -> io::Result<Option<Self>> {
        let path = Self::path(control);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let path = path.display();
            io::Error::other(format!(
                "{path} is damaged ({error}); look at `ip rule` and `nft list tables` for what was left, then remove it"
            ))
        })
    }

    /// Writes it, whole or not at all.
    pub fn save(&self, control: &Path) -> io::Result<()> {
        let path = Self::path(control);
        let draft = path.with_extension("state.new");
        std::fs::write(&draft, serde_json::to_vec(self)?)?;
        std::fs::rename(&draft, &path)
    }

    /// Takes it away.
    pub fn remove(control: &Path) -> io::Result<()> {
        match std::fs::remove_file(Self::path(control)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
