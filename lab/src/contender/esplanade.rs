//! Esplanade, run like any other program: two setkey files with fresh keys, or two files of peers that negotiate them;
//! two `esplanade run`, and its command line to query readiness and drops.

mod keyfile;
mod peerfile;
mod run_options;
mod running;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::daemons::stop_all;
use super::{
    CapturePoint, Contender, Encapsulation, IpsecConfig, Protection, Tunnel, tun_device, version_of,
};
use crate::absence::Absence;
use crate::capture::EspKey;
use crate::fault::Fault;
use crate::gateway::{Gateway, Side};
use crate::host::{Command, Process};
use crate::testbed::{Addresses, Topology};
use running::{ConfigFile, Running, on};

pub(super) use keyfile::{Keys, Layer};
pub use peerfile::cannot_negotiate;
pub use run_options::{FLAGS, FLAGS_OF_THREADS, Keying, RunOptions};

/// Esplanade with one suite.
pub struct Esplanade {
    program: Option<PathBuf>,
    lab: PathBuf,
    ipsec: IpsecConfig,
    options: RunOptions,
    material: Material,
    id: String,
    label: String,
}

/// What is secret in the files of both gateways.
enum Material {
    /// The keys of the associations.
    Keys(Keys),
    /// The key that both peers prove to have.
    Shared(peerfile::SharedKey),
}

impl Esplanade {
    /// `program` is where `esplanade` is, if it was found, and `lab` where the lab's own tools are. `order` keeps the
    /// SPIs of several apart in one capture.
    pub fn new(
        program: Option<PathBuf>,
        lab: &Path,
        ipsec: IpsecConfig,
        options: RunOptions,
        order: usize,
    ) -> Result<Esplanade, Fault> {
        let (differences, note) = (ipsec.note(Encapsulation::Udp), options.note());
        Ok(Esplanade {
            program,
            lab: lab.to_owned(),
            material: match options.keying {
                Keying::Hand => Material::Keys(Keys::fresh(&ipsec, 0x1000 + 0x100 * order as u32)?),
                Keying::Ike => Material::Shared(peerfile::SharedKey::fresh()?),
            },
            id: Esplanade::name(&ipsec, &options),
            label: format!("Esplanade, {}{differences}{note}", ipsec.suite.label),
            ipsec,
            options,
        })
    }

    /// The id of such a contender.
    pub fn name(ipsec: &IpsecConfig, options: &RunOptions) -> String {
        let words = options.words();
        let differences = ipsec.suffix(Encapsulation::Udp);
        format!("esplanade-{}{differences}{words}", ipsec.suite.name)
    }
}

impl Contender for Esplanade {
    fn id(&self) -> &str {
        &self.id
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn factors(&self) -> BTreeMap<String, String> {
        let mut factors = self.ipsec.factors();
        factors.extend(self.options.factors());
        factors
    }

    fn protection(&self) -> Protection {
        self.ipsec.protection()
    }

    fn capture_point(&self) -> CapturePoint {
        if self.options.is_by_kernel() {
            CapturePoint::Sender
        } else {
            CapturePoint::Left
        }
    }

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        match &self.program {
            Some(_) if self.options.is_by_kernel() => self.tried(topology),
            Some(_) => tun_device(topology),
            None => Err(Absence::new(
                "the program `esplanade` is neither beside esplanade-lab nor in PATH",
                "build it: cargo build --release",
            )),
        }
    }

    fn version(&self, topology: &Topology) -> Option<(String, String)> {
        version_of(&*topology.left, on(self.program.as_ref()?, "--version"))
    }

    fn up(&self, topology: &Topology) -> Result<Box<dyn Tunnel>, Fault> {
        let left = self.start(Side::Left, topology)?;
        let right = self.start(Side::Right, topology)?;
        let mut pair = Pair {
            gateways: [left, right],
            keys: self.wireshark_keys(&topology.addresses),
            renewing: None,
        };
        let mut gateways = pair.gateways.iter_mut();
        gateways.try_for_each(|gateway| gateway.ready(topology))?;
        if self.options.keying == Keying::Ike {
            let mut gateways = pair.gateways.iter_mut();
            gateways.try_for_each(|gateway| gateway.wait_for_peer(peerfile::PEER, topology))?;
        }
        pair.renewing = self.renewing(&pair.gateways, topology)?.map(RefCell::new);
        Ok(Box::new(pair))
    }
}

impl Esplanade {
    /// Whether the kernel has what this needs: a gateway is started for a moment.
    fn tried(&self, topology: &Topology) -> Result<(), Absence> {
        let started = self.start(Side::Left, topology).and_then(|mut gateway| {
            let ready = gateway.ready(topology);
            // Where it did not start there is nothing to stop.
            let stopped = gateway.stop(topology);
            ready.and(stopped)
        });
        started.map_err(|fault| {
            Absence::new(
                format!("the kernel's IPsec does not carry this ({fault})"),
                "a kernel with CONFIG_INET_ESP and CONFIG_XFRM_USER: modprobe -a esp4 esp6 ah4 ah6 xfrm_user xfrm_algo",
            )
        })
    }

    fn start(&self, side: Side, topology: &Topology) -> Result<Running, Fault> {
        let map = &topology.addresses;
        let file = match &self.material {
            Material::Keys(keys) => ConfigFile {
                option: "--setkey",
                extension: "setkey",
                text: keys.text(&self.ipsec, side, map),
            },
            Material::Shared(key) => ConfigFile {
                option: "--config",
                extension: "toml",
                text: key.text(&self.ipsec, side, map)?,
            },
        };
        let program = self.program.clone().unwrap_or_else(|| "esplanade".into());
        let associations = self.ipsec.associations;
        Running::start(
            side,
            (&program, &self.id),
            file,
            &self.options,
            associations,
            topology,
        )
    }

    /// What opens a capture. The lab does not know keys that the gateways negotiate.
    fn wireshark_keys(&self, map: &Addresses) -> Vec<EspKey> {
        match &self.material {
            Material::Keys(keys) => keys.wireshark_keys(&self.ipsec, map),
            Material::Shared(_) => Vec::new(),
        }
    }

    /// Starts the process that renews the keys of both gateways, if configured.
    fn renewing(
        &self,
        [left, right]: &[Running; 2],
        topology: &Topology,
    ) -> Result<Option<Box<dyn Process>>, Fault> {
        let Some(every) = self.options.rekey else {
            return Ok(None);
        };
        let command = Command::tool(&self.lab, "rekey")
            .arg("--esplanade")
            .arg(&left.program)
            .arg("--left")
            .arg(&left.control)
            .arg("--right")
            .arg(&right.control)
            .arg("--every")
            .arg(every.as_millis().to_string());
        let command = match self.options.keying {
            Keying::Hand => command.arg("--file").arg(&left.config),
            Keying::Ike => command.arg("--peer").arg(peerfile::PEER),
        };
        topology.left.start(&command).map(Some)
    }
}

struct Pair {
    gateways: [Running; 2],
    keys: Vec<EspKey>,
    renewing: Option<RefCell<Box<dyn Process>>>,
}

impl Tunnel for Pair {
    fn gateways(&self) -> Vec<Gateway> {
        let gateways = self.gateways.iter();
        gateways.map(|running| running.daemon.gateway()).collect()
    }

    fn drops(&self, topology: &Topology) -> Result<Option<BTreeMap<String, u64>>, Fault> {
        let mut all = BTreeMap::new();
        for gateway in &self.gateways {
            let answer = gateway.ask("drops", topology)?;
            count(answer, &mut all)
                .map_err(|why| Fault::failed(format!("`esplanade drops --json`: {why}")))?;
        }
        Ok(Some(all))
    }

    fn counts(&self) -> Result<BTreeMap<String, f64>, Fault> {
        let Some(renewing) = &self.renewing else {
            return Ok(BTreeMap::new());
        };
        let mut renewing = renewing.borrow_mut();
        let (ended, said) = (renewing.ended(), renewing.output());
        if let Some(code) = ended {
            let last = said.lines().last().unwrap_or_default();
            return Err(Fault::failed(format!(
                "renewing the keys ended with {code}: {last}"
            )));
        }
        let renewals = said.lines().filter(|line| *line == "renewed").count();
        Ok([("rekeys_count".to_owned(), renewals as f64)].into())
    }

    fn keys(&self) -> Vec<EspKey> {
        self.keys.clone()
    }

    fn down(&mut self, topology: &Topology) -> Result<(), Fault> {
        self.renewing = None;
        stop_all(&mut self.gateways, |gateway| gateway.stop(topology))
    }
}

/// Sums the output of `esplanade drops --json`: the engine's reasons, and unencrypted packets that the firewall
/// dropped.
fn count(
    answer: serde_json::Value,
    all: &mut BTreeMap<String, u64>,
) -> Result<(), serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Drops {
        reasons: BTreeMap<String, u64>,
        #[serde(default)]
        clear: BTreeMap<String, u64>,
    }
    let drops: Drops = serde_json::from_value(answer)?;
    for (reason, number) in drops.reasons.into_iter().chain(drops.clear) {
        *all.entry(reason).or_default() += number;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_both_gateways_add_up_by_reason() {
        let left = r#"{"total": 2, "reasons": {"no-sa": 2}, "associations": [{"spi": 4097, "reasons": {"no-sa": 2}}]}"#;
        let right =
            r#"{"total": 4, "reasons": {"no-sa": 3, "bad-icv": 1}, "clear": {"clear_leaving": 7}}"#;
        let mut all = BTreeMap::new();
        for answer in [left, right] {
            count(serde_json::from_str(answer).unwrap(), &mut all).unwrap();
        }
        let expected = [("bad-icv", 1), ("clear_leaving", 7), ("no-sa", 5)];
        assert_eq!(
            all,
            expected
                .map(|(name, number)| (name.to_owned(), number))
                .into()
        );
    }

    #[test]
    fn an_answer_without_reasons_is_an_error_and_not_zero() {
        let mut all = BTreeMap::new();
        assert!(count(serde_json::json!({"total": 3}), &mut all).is_err());
    }
}
