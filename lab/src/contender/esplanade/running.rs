//! One gateway of the two: its process, and its command line.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::RunOptions;
use crate::contender::daemons::Daemon;
use crate::fault::Fault;
use crate::gateway::Side;
use crate::host::Command;
use crate::testbed::Topology;

/// Starting takes milliseconds, more on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Until two gateways have negotiated: milliseconds, or a repetition of their first message.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(20);
/// For one request on the control socket.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);
/// Added to both for tens of thousands of associations.
const EXTRA_TIME_PER_ASSOCIATION: Duration = Duration::from_millis(1);

/// A file that a gateway is started with.
pub(super) struct ConfigFile {
    /// The option of `esplanade run` that names it.
    pub option: &'static str,
    /// How its name ends.
    pub extension: &'static str,
    /// What is in it.
    pub text: String,
}

/// A gateway that runs.
pub(super) struct Running {
    pub daemon: Daemon,
    /// Additional time for many associations.
    extra_time: Duration,
    pub program: PathBuf,
    pub control: PathBuf,
    pub config: PathBuf,
}

impl Running {
    /// Writes the file and starts `program` with it.
    pub(super) fn start(
        side: Side,
        (program, id): (&Path, &str),
        file: ConfigFile,
        options: &RunOptions,
        associations: u32,
        topology: &Topology,
    ) -> Result<Running, Fault> {
        let host = topology.gateway(side);
        let name = format!("config/{id}/{}.{}", side.name(), file.extension);
        let config = host.write_file(&name, &file.text)?;
        let control = host.scratch()?.join("control.sock");
        // In the environment, because older versions ignore it there.
        let kept = host.scratch()?.join("kept");
        let mut command = Command::line("env")
            .arg(format!("ESPLANADE_STATE={}", kept.display()))
            .arg(program)
            .arg("run")
            .arg(file.option)
            .arg(&config)
            .arg("--control")
            .arg(&control);
        for argument in options.arguments() {
            command = command.arg(argument);
        }
        // A gateway that is killed leaves its rules in place, because they fail closed.
        host.on_cleanup(&down(program, &control))?;
        let process = host.start(&command)?;
        Ok(Running {
            daemon: Daemon { side, process },
            extra_time: EXTRA_TIME_PER_ASSOCIATION * associations,
            program: program.to_owned(),
            control,
            config,
        })
    }

    /// Waits until the control socket answers: rules, routes and keys are in place then.
    pub(super) fn ready(&mut self, topology: &Topology) -> Result<(), Fault> {
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

    /// Waits until the peer is up, with a child SA. A failure tells what the gateway says of it.
    pub(super) fn wait_for_peer(&mut self, name: &str, topology: &Topology) -> Result<(), Fault> {
        let started = Instant::now();
        loop {
            let status = self.ask("status", topology)?;
            let peers = status["peers"].as_array().into_iter().flatten();
            let peer = peers.into_iter().find(|peer| peer["name"] == name);
            if peer.is_some_and(is_up) {
                return Ok(());
            }
            if started.elapsed() > NEGOTIATION_TIMEOUT {
                let side = self.daemon.side.name();
                let why = peer.and_then(|peer| peer["why"].as_str());
                return Err(Fault::failed(format!(
                    "the {side} gateway's peer is not up after {} s: {}",
                    NEGOTIATION_TIMEOUT.as_secs(),
                    why.unwrap_or("it has no child SA"),
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks a request on the control socket; the answer is JSON.
    pub(super) fn ask(&self, word: &str, topology: &Topology) -> Result<serde_json::Value, Fault> {
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

    pub(super) fn stop(&mut self, topology: &Topology) -> Result<(), Fault> {
        self.daemon.stop()?;
        let down = down(&self.program, &self.control);
        topology
            .gateway(self.daemon.side)
            .must(&down, CONTROL_TIMEOUT + self.extra_time)
            .map(drop)
    }
}

/// One word of the command line.
pub(super) fn on(program: &Path, word: &str) -> Command {
    let mut command = Command::line("");
    command.program = program.to_string_lossy().into_owned();
    command.arg(word)
}

/// What takes away the rules of a gateway.
fn down(program: &Path, control: &Path) -> Command {
    on(program, "down").arg("--control").arg(control)
}

fn is_up(peer: &serde_json::Value) -> bool {
    let children = peer["children"].as_array();
    peer["state"] == "up" && children.is_some_and(|children| !children.is_empty())
}
