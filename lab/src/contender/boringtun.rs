//! boringtun, WireGuard in Rust: one packet at a time through TUN and UDP, with as many threads as it takes by itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Absence, Contender, Protection, Tunnel, tun_device, version_of, wireguard};
use crate::fault::Fault;
use crate::host::Command;
use crate::testbed::Bed;

/// boringtun.
pub struct Boringtun {
    program: Option<PathBuf>,
    lab: PathBuf,
}

impl Boringtun {
    /// Looks for the program. `lab` is `esplanade-lab`.
    pub fn find(lab: &Path) -> Boringtun {
        Boringtun {
            program: wireguard::installed(&["boringtun-cli", "boringtun"], ".cargo/bin"),
            lab: lab.to_owned(),
        }
    }
}

impl Contender for Boringtun {
    fn id(&self) -> &str {
        "boringtun"
    }

    fn label(&self) -> &str {
        "boringtun"
    }

    fn factors(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("suite".into(), "chacha20-poly1305".into())])
    }

    fn protection(&self) -> Protection {
        Protection::Secret
    }

    fn presence(&self, _bed: &Bed) -> Result<(), Absence> {
        match self.program {
            Some(_) => tun_device(),
            None => Err(Absence::new(
                "boringtun-cli is neither in PATH nor in ~/.cargo/bin",
                "cargo install boringtun-cli",
            )),
        }
    }

    fn version(&self, bed: &Bed) -> Option<(String, String)> {
        let program = self.program.as_ref()?.to_string_lossy();
        let (_, version) = version_of(&*bed.left, Command::line(&program).arg("--version"))?;
        Some(("boringtun".into(), version))
    }

    fn up(&self, bed: &Bed) -> Result<Box<dyn Tunnel>, Fault> {
        let program = self
            .program
            .clone()
            .unwrap_or_else(|| "boringtun-cli".into());
        let arguments = format!(
            "--foreground --disable-drop-privileges {}",
            wireguard::INTERFACE
        );
        let command = Command::line(&format!("boringtun-cli {arguments}")).program(&program);
        Ok(Box::new(wireguard::up(&command, &self.lab, bed)?))
    }
}
