//! A soaker, as the study of 2004 measured by one: on every processor of every machine a thread takes the idle time
//! (see [`crate::tool`]), and what it does not get is the load. It does not depend on the kernel's accounting, which
//! charges interrupts and softirqs to the process that was running, and shows how much that is.
//!
//! ```text
//!   each machine: tool soak ─► lines of counts ─► the last before the load, the last of the load ─► window ─► readings
//! ```
//!
//! A machine without idle time behaves differently, so a trial with a soaker is additional and not among the measured.

#[cfg(test)]
mod tests;
mod window;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::machines::machines;
use super::readings::{Meter, MeterContext, Readings};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::{Command, Host, Process};
use crate::testbed::Topology;
use crate::tool::{SoakCounts, SoakLine, Spinning};

/// `soaker.load_ratio`, `soaker.hidden_ratio` (of it, what the kernel charged to the soaker), `soaker.busiest_ratio`,
/// `soaker.cpu0.load_ratio` of each processor, `soaker.processors_count`, `soaker.window_s`, `soaker.faster_ratio` (by
/// how much it ran faster than it had calibrated), and `soaker.nice_count` where the idle class was refused to so many
/// of its threads. With several machines each begins with a host's name.
pub struct Soaker {
    lab: PathBuf,
    running: Vec<Soaking>,
}

/// To start and to calibrate, on a busy machine far away too.
const CALIBRATION_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two checks of one that is starting.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Soaker {
    /// By the tool of `lab`.
    pub fn new(lab: &Path) -> Soaker {
        Soaker {
            lab: lab.to_owned(),
            running: Vec::new(),
        }
    }

    /// Starts it on all machines, and returns when all of them soak.
    fn everywhere(&self, topology: &Topology) -> Result<Vec<Soaking>, Fault> {
        let machines = machines(topology).into_iter();
        let started = machines.map(|(prefix, host)| Soaking::start(&self.lab, prefix, host));
        let mut all = started.collect::<Result<Vec<Soaking>, Fault>>()?;
        all.iter_mut()
            .try_for_each(|soaking| soaking.wait(CALIBRATION_TIMEOUT))?;
        Ok(all)
    }
}

impl Meter for Soaker {
    fn id(&self) -> &'static str {
        "soaker"
    }

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        let tried = self.everywhere(topology).map(drop);
        tried.map_err(|fault| {
            Absence::new(
                fault.to_string(),
                "run `esplanade-lab tool soak` there; it needs the permission to set CPU affinity",
            )
        })
    }

    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault> {
        // Those of a trial that broke off.
        self.running.clear();
        self.running = self.everywhere(context.topology)?;
        Ok(())
    }

    fn mark(&mut self, _scene: &MeterContext<'_>) -> Result<(), Fault> {
        self.running.iter_mut().try_for_each(Soaking::mark)
    }

    fn end(&mut self, _scene: &MeterContext<'_>) -> Result<Readings, Fault> {
        let mut all = Readings::new();
        for soaking in std::mem::take(&mut self.running) {
            all.extend(soaking.readings()?);
        }
        Ok(all)
    }
}

/// The soaker of a machine.
struct Soaking {
    /// What its readings begin with.
    prefix: String,
    process: Box<dyn Process>,
    spinning: Vec<Spinning>,
    /// The beginning of the load, and its end.
    marks: Vec<Mark>,
}

/// The last counts at a moment.
struct Mark {
    /// By the clock here.
    at: Instant,
    /// By the clock there.
    seen: SoakCounts,
}

impl Soaking {
    fn start(lab: &Path, prefix: String, host: &dyn Host) -> Result<Soaking, Fault> {
        let process = host.start(&Command::tool(lab, "soak"))?;
        Ok(Soaking::of(prefix, process))
    }

    fn of(prefix: String, process: Box<dyn Process>) -> Soaking {
        Soaking {
            prefix,
            process,
            spinning: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Waits until it soaks and has printed counts.
    fn wait(&mut self, patience: Duration) -> Result<(), Fault> {
        let started = Instant::now();
        while started.elapsed() < patience {
            let said = self.output()?;
            if let Some((spinning, _)) = ready(&said).zip(last(&said)) {
                self.spinning = spinning;
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(Fault::TimedOut {
            what: format!("calibrating {}", self.name()),
            after: patience,
        })
    }

    /// Its output; a fault with the last message once it has ended.
    fn output(&mut self) -> Result<String, Fault> {
        let said = self.process.output();
        let Some(code) = self.process.ended() else {
            return Ok(said);
        };
        let words = said
            .lines()
            .rfind(|line| !line.trim().is_empty() && line_of(line).is_none());
        Err(Fault::failed(format!(
            "{} ended with {code}: {}",
            self.name(),
            words.unwrap_or("without a message")
        )))
    }

    fn mark(&mut self) -> Result<(), Fault> {
        let at = Instant::now();
        let seen = last(&self.output()?);
        let seen = seen.ok_or_else(|| Fault::failed(format!("{} is silent", self.name())))?;
        self.marks.push(Mark { at, seen });
        Ok(())
    }

    fn readings(self) -> Result<Readings, Fault> {
        let [began, ended] = &self.marks[..] else {
            return Err(Fault::failed(
                "the beginning and end of the load were not marked",
            ));
        };
        self.steady(began, ended)?;
        let found = window::readings(&self.prefix, &self.spinning, &began.seen, &ended.seen);
        found.ok_or_else(|| {
            Fault::failed(format!("{} counted nothing between the marks", self.name()))
        })
    }

    /// Both clocks must have seen about the same time pass, or it was silent for a part of the load.
    fn steady(&self, began: &Mark, ended: &Mark) -> Result<(), Fault> {
        let here = ended.at - began.at;
        let there = ended.seen.at_ns.saturating_sub(began.seen.at_ns);
        let there = Duration::from_nanos(there);
        if there * 2 >= here && !there.is_zero() {
            return Ok(());
        }
        Err(Fault::failed(format!(
            "{} fell silent: it saw {2:.1} of {1:.1} s",
            self.name(),
            here.as_secs_f64(),
            there.as_secs_f64()
        )))
    }

    /// For error texts.
    fn name(&self) -> String {
        match self.prefix.trim_end_matches('.') {
            "" => "the soaker".into(),
            host => format!("the soaker on the machine of {host}"),
        }
    }
}

fn line_of(line: &str) -> Option<SoakLine> {
    serde_json::from_str(line).ok()
}

/// Lines that are whole: the last may be half written.
fn complete_lines(said: &str) -> impl DoubleEndedIterator<Item = &str> {
    let lines = said.split_inclusive('\n');
    lines.filter(|line| line.ends_with('\n'))
}

fn ready(said: &str) -> Option<Vec<Spinning>> {
    complete_lines(said).find_map(|line| match line_of(line)? {
        SoakLine::Ready(spinning) => Some(spinning),
        SoakLine::Counts(_) => None,
    })
}

fn last(said: &str) -> Option<SoakCounts> {
    complete_lines(said)
        .rev()
        .find_map(|line| match line_of(line)? {
            SoakLine::Counts(seen) => Some(seen),
            SoakLine::Ready(_) => None,
        })
}
