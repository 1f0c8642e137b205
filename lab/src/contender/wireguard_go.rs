//! wireguard-go, the fastest user-space tunnel people have: ChaCha20-Poly1305, trains through TUN and UDP as ours.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Absence, Contender, Protection, Tunnel, tun_device, version_of, wireguard};
use crate::fault::Fault;
use crate::host::Command;
use crate::testbed::Bed;

/// wireguard-go.
pub struct WireguardGo {
    program: Option<PathBuf>,
    lab: PathBuf,
}

impl WireguardGo {
    /// Looks for the program. `lab` is `esplanade-lab`.
    pub fn find(lab: &Path) -> WireguardGo {
        WireguardGo {
            program: wireguard::installed(&["wireguard-go", "wireguard"], "go/bin"),
            lab: lab.to_owned(),
        }
    }
}

impl Contender for WireguardGo {
    fn id(&self) -> &str {
        "wireguard-go"
    }

    fn label(&self) -> &str {
        "wireguard-go"
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
                "wireguard-go is neither in PATH nor in ~/go/bin",
                "go install golang.zx2c4.com/wireguard@latest (or apt-get install wireguard-go, an older one)",
            )),
        }
    }

    fn version(&self, bed: &Bed) -> Option<(String, String)> {
        let program = self.program.as_ref()?.to_string_lossy();
        let (_, version) = version_of(&*bed.left, Command::line(&program).arg("--version"))?;
        Some(("wireguard-go".into(), version))
    }

    fn up(&self, bed: &Bed) -> Result<Box<dyn Tunnel>, Fault> {
        let program = self
            .program
            .clone()
            .unwrap_or_else(|| "wireguard-go".into());
        let command = Command::line("")
            .program(&program)
            .arg("-f")
            .arg(wireguard::INTERFACE);
        Ok(Box::new(wireguard::up(&command, &self.lab, bed)?))
    }
}
