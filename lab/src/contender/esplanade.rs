//! Our own gateway, driven like anybody's: two setkey files with fresh keys, two `esplanade run`, and its command line to
//! ask whether it is ready and what it dropped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{
    Absence, Contender, Encapsulation, Gateway, Protection, Side, Tunnel, Wrapping, tun_device,
    version_of,
};
use crate::capture::EspKey;
use crate::fault::Fault;
use crate::host::{Command, Process};
use crate::testbed::Bed;

mod keyfile;

pub(super) use keyfile::{Keys, Layer};

/// Starting is a matter of milliseconds; a busy machine gets more.
const PATIENCE: Duration = Duration::from_secs(10);
/// For one question on the control socket.
const ANSWER: Duration = Duration::from_secs(5);

/// Esplanade with one suite.
pub struct Esplanade {
    program: Option<PathBuf>,
    wrapping: Wrapping,
    workers: Option<u32>,
    keys: Keys,
    id: String,
    label: String,
}

impl Esplanade {
    /// `program` is where `esplanade` is, if it was found. `order` keeps the SPIs of several apart in one capture.
    pub fn new(
        program: Option<PathBuf>,
        wrapping: Wrapping,
        workers: Option<u32>,
        order: usize,
    ) -> Result<Esplanade, Fault> {
        let note = workers.map_or_else(String::new, |count| format!(", {count} workers"));
        let differences = wrapping.note(Encapsulation::Udp);
        Ok(Esplanade {
            program,
            workers,
            keys: Keys::fresh(&wrapping, 0x1000 + 0x100 * order as u32)?,
            id: Esplanade::name(&wrapping, workers),
            label: format!("Esplanade, {}{differences}{note}", wrapping.suite.label),
            wrapping,
        })
    }

    /// The id of such a contender.
    pub fn name(wrapping: &Wrapping, workers: Option<u32>) -> String {
        let workers = workers.map_or_else(String::new, |count| format!("-workers-{count}"));
        let differences = wrapping.suffix(Encapsulation::Udp);
        format!("esplanade-{}{differences}{workers}", wrapping.suite.name)
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
        let mut factors = self.wrapping.factors();
        if let Some(count) = self.workers {
            factors.insert("workers".into(), count.to_string());
        }
        factors
    }

    fn protection(&self) -> Protection {
        self.wrapping.protection()
    }

    fn presence(&self, _bed: &Bed) -> Result<(), Absence> {
        match &self.program {
            Some(_) => tun_device(),
            None => Err(Absence::new(
                "the program `esplanade` was not found beside esplanade-lab or in PATH",
                "build it: cargo build --release",
            )),
        }
    }

    fn version(&self, bed: &Bed) -> Option<(String, String)> {
        version_of(&*bed.left, on(self.program.as_ref()?, "--version"))
    }

    fn up(&self, bed: &Bed) -> Result<Box<dyn Tunnel>, Fault> {
        let left = self.start(Side::Left, bed)?;
        let right = self.start(Side::Right, bed)?;
        let mut pair = Pair {
            gateways: [left, right],
            keys: self.keys.for_analysers(&self.wrapping, &bed.addresses),
        };
        pair.gateways
            .iter_mut()
            .try_for_each(|gateway| gateway.ready(bed))?;
        Ok(Box::new(pair))
    }
}

impl Esplanade {
    fn start(&self, side: Side, bed: &Bed) -> Result<Running, Fault> {
        let host = bed.gateway(side);
        let program = self.program.clone().unwrap_or_else(|| "esplanade".into());
        let name = format!("config/{}/{}.setkey", self.id, side.name());
        let keyfile = host.place(&name, &self.keys.text(&self.wrapping, side, &bed.addresses))?;
        let control = host.scratch()?.join("control.sock");
        let mut command = on(&program, "run")
            .arg("--setkey")
            .arg(&keyfile)
            .arg("--control")
            .arg(&control);
        if let Some(count) = self.workers {
            command = command.arg("--workers").arg(count.to_string());
        }
        let process = host.start(&command)?;
        Ok(Running {
            side,
            process,
            program,
            control,
        })
    }
}

fn on(program: &Path, word: &str) -> Command {
    let mut command = Command::line("");
    command.program = program.to_string_lossy().into_owned();
    command.arg(word)
}

struct Running {
    side: Side,
    process: Box<dyn Process>,
    program: PathBuf,
    control: PathBuf,
}

impl Running {
    /// Waits until the control socket answers: rules, routes and keys are in place then.
    fn ready(&mut self, bed: &Bed) -> Result<(), Fault> {
        let started = Instant::now();
        loop {
            if let Some(code) = self.process.ended() {
                let (side, said) = (self.side.name(), self.process.said());
                let last = said.trim();
                return Err(Fault::failed(format!(
                    "the {side} gateway ended with {code}: {last}"
                )));
            }
            match self.ask("status", bed) {
                Ok(_) => return Ok(()),
                Err(Fault::Interrupted) => return Err(Fault::Interrupted),
                Err(fault) if started.elapsed() > PATIENCE => {
                    return Err(
                        fault.during(&format!("the {} gateway does not answer", self.side.name()))
                    );
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Asks a question on the control socket; the answer is JSON.
    fn ask(&self, word: &str, bed: &Bed) -> Result<serde_json::Value, Fault> {
        let command = on(&self.program, word)
            .arg("--json")
            .arg("--control")
            .arg(&self.control);
        let finished = bed.gateway(self.side).run(&command, ANSWER)?;
        let answer = finished.success(&command)?;
        serde_json::from_str(&answer)
            .map_err(|error| Fault::failed(format!("`{command}` gave no JSON: {error}")))
    }

    fn stop(&mut self, bed: &Bed) -> Result<(), Fault> {
        self.process.stop(Duration::from_secs(5))?;
        let down = on(&self.program, "down")
            .arg("--control")
            .arg(&self.control);
        let finished = bed.gateway(self.side).run(&down, ANSWER)?;
        finished.success(&down).map(drop)
    }
}

struct Pair {
    gateways: [Running; 2],
    keys: Vec<EspKey>,
}

impl Tunnel for Pair {
    fn gateways(&self) -> Vec<Gateway> {
        let gateway = |running: &Running| Gateway {
            side: running.side,
            pid: running.process.pid(),
        };
        self.gateways.iter().map(gateway).collect()
    }

    fn drops(&self, bed: &Bed) -> Result<Option<BTreeMap<String, u64>>, Fault> {
        let mut all = BTreeMap::new();
        for gateway in &self.gateways {
            let answer = gateway.ask("drops", bed)?;
            count(answer, &mut all)
                .map_err(|why| Fault::failed(format!("`esplanade drops --json`: {why}")))?;
        }
        Ok(Some(all))
    }

    fn keys(&self) -> Vec<EspKey> {
        self.keys.clone()
    }

    fn down(&mut self, bed: &Bed) -> Result<(), Fault> {
        let stopped: Vec<_> = self
            .gateways
            .iter_mut()
            .map(|gateway| gateway.stop(bed))
            .collect();
        stopped.into_iter().collect()
    }
}

/// Adds up what `esplanade drops --json` tells: the engine's reasons, and clear packets that the kernel dropped for it.
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
