//! Esplanade, run like any other program: two setkey files with fresh keys, two `esplanade run`, and its command line
//! to query readiness and drops.

mod keyfile;
mod run_options;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::daemons::{Daemon, stop_all};
use super::{Contender, Encapsulation, IpsecConfig, Protection, Tunnel, tun_device, version_of};
use crate::absence::Absence;
use crate::capture::EspKey;
use crate::fault::Fault;
use crate::gateway::{Gateway, Side};
use crate::host::{Command, Process};
use crate::testbed::Topology;

pub(super) use keyfile::{Keys, Layer};
pub use run_options::{FLAGS, RunOptions};

/// Starting takes milliseconds, more on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// For one request on the control socket.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);
/// Added to both for tens of thousands of associations.
const EXTRA_TIME_PER_ASSOCIATION: Duration = Duration::from_millis(1);

/// Esplanade with one suite.
pub struct Esplanade {
    program: Option<PathBuf>,
    lab: PathBuf,
    ipsec: IpsecConfig,
    options: RunOptions,
    keys: Keys,
    id: String,
    label: String,
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
            keys: Keys::fresh(&ipsec, 0x1000 + 0x100 * order as u32)?,
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

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        match &self.program {
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
            keys: self.keys.wireshark_keys(&self.ipsec, &topology.addresses),
            renewing: None,
        };
        pair.gateways
            .iter_mut()
            .try_for_each(|gateway| gateway.ready(topology))?;
        pair.renewing = self.renewing(&pair.gateways, topology)?.map(RefCell::new);
        Ok(Box::new(pair))
    }
}

impl Esplanade {
    fn start(&self, side: Side, topology: &Topology) -> Result<Running, Fault> {
        let host = topology.gateway(side);
        let program = self.program.clone().unwrap_or_else(|| "esplanade".into());
        let name = format!("config/{}/{}.setkey", self.id, side.name());
        let keyfile = host.write_file(
            &name,
            &self.keys.text(&self.ipsec, side, &topology.addresses),
        )?;
        let control = host.scratch()?.join("control.sock");
        // In the environment, because older versions ignore it there.
        let kept = host.scratch()?.join("kept");
        let mut command = Command::line("env")
            .arg(format!("ESPLANADE_STATE={}", kept.display()))
            .arg(&program)
            .arg("run")
            .arg("--setkey")
            .arg(&keyfile)
            .arg("--control")
            .arg(&control);
        for argument in self.options.arguments() {
            command = command.arg(argument);
        }
        // A gateway that is killed leaves its rules in place, because they fail closed.
        host.on_cleanup(&down(&program, &control))?;
        let process = host.start(&command)?;
        Ok(Running {
            daemon: Daemon { side, process },
            extra_time: EXTRA_TIME_PER_ASSOCIATION * self.ipsec.associations,
            program,
            control,
            keyfile,
        })
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
            .arg("--file")
            .arg(&left.keyfile)
            .arg("--left")
            .arg(&left.control)
            .arg("--right")
            .arg(&right.control)
            .arg("--every")
            .arg(every.as_millis().to_string());
        topology.left.start(&command).map(Some)
    }
}

fn on(program: &Path, word: &str) -> Command {
    let mut command = Command::line("");
    command.program = program.to_string_lossy().into_owned();
    command.arg(word)
}

/// What takes away the rules of a gateway.
fn down(program: &Path, control: &Path) -> Command {
    on(program, "down").arg("--control").arg(control)
}

struct Running {
    daemon: Daemon,
    /// Additional time for many associations.
    extra_time: Duration,
    program: PathBuf,
    control: PathBuf,
    keyfile: PathBuf,
}

impl Running {
    /// Waits until the control socket answers: rules, routes and keys are in place then.
    fn ready(&mut self, topology: &Topology) -> Result<(), Fault> {
        let started = Instant::now();
        loop {
            if let Some(code) = self.daemon.process.ended() {
                let (side, said) = (self.daemon.side.name(), self.daemon.process.output());
                let last = said.trim();
                return Err(Fault::failed(format!(
                    "the {side} gateway ended with {code}: {last}"
                )));
            }
            match self.ask("status", topology) {
                Ok(_) => return Ok(()),
                Err(Fault::Interrupted) => return Err(Fault::Interrupted),
                Err(fault) if started.elapsed() > START_TIMEOUT + self.extra_time => {
                    let side = self.daemon.side.name();
                    return Err(fault.during(&format!("the {side} gateway does not answer")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Asks a request on the control socket; the answer is JSON.
    fn ask(&self, word: &str, topology: &Topology) -> Result<serde_json::Value, Fault> {
        let command = on(&self.program, word)
            .arg("--json")
            .arg("--control")
            .arg(&self.control);
        let answer = topology
            .gateway(self.daemon.side)
            .must(&command, CONTROL_TIMEOUT + self.extra_time)?;
        serde_json::from_str(&answer)
            .map_err(|error| Fault::failed(format!("`{command}` gave no JSON: {error}")))
    }

    fn stop(&mut self, topology: &Topology) -> Result<(), Fault> {
        self.daemon.stop()?;
        let down = down(&self.program, &self.control);
        topology
            .gateway(self.daemon.side)
            .must(&down, CONTROL_TIMEOUT + self.extra_time)
            .map(drop)
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
