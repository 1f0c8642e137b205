//! A meter looks before and after the load and says what it cost. Readings are plain numbers under dotted names, whose
//! last part ends with the unit: `left.cpu.user_s`, `right.rss.peak_bytes`, `left.if.wan.rx_packets`.

mod counters;
mod drops;
mod machine;
mod machines;
mod processes;
mod profile;
mod protocols;
mod share;
mod soaker;
mod softnet;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contender::{Absence, Tunnel};
use crate::fault::Fault;
use crate::testbed::Bed;

pub use counters::Interfaces;
pub use drops::Drops;
pub use machine::Machine;
pub use processes::Processes;
pub use profile::{PLACES, Profile, WHO};
pub use protocols::Protocols;
pub use share::Share;
pub use soaker::Soaker;
pub use softnet::Softnet;

/// Names and numbers.
pub type Readings = BTreeMap<String, f64>;

/// What a meter may look at.
pub struct Scene<'a> {
    /// The hosts.
    pub bed: &'a Bed,
    /// The contender that is up.
    pub tunnel: &'a dyn Tunnel,
    /// A name of the case, fit for a file.
    pub case: &'a str,
}

/// Something that can be read before and after a load.
pub trait Meter {
    /// Its name in error texts.
    fn id(&self) -> &'static str;

    /// Whether it can look at this testbed at all.
    fn presence(&self, _bed: &Bed) -> Result<(), Absence> {
        Ok(())
    }

    /// Looks before the load.
    fn begin(&mut self, scene: &Scene<'_>) -> Result<(), Fault>;

    /// Hears that the load begins now, and a second time that it has just ended. Only a heavy meter does: between its own
    /// beginning and the load's, and between the two ends, all the others look, which may take a while on hosts far away.
    fn mark(&mut self, _scene: &Scene<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Looks after the load and gives the differences.
    fn end(&mut self, scene: &Scene<'_>) -> Result<Readings, Fault>;
}

/// A meter that takes something from what it measures. It gets a trial of its own for each case that asks for it, after all
/// rounds, which counts for no mean, ratio or rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heavy {
    /// [`Profile`].
    Profile,
    /// [`Soaker`].
    Soaker,
}

impl Heavy {
    /// All of them, in the order of their trials.
    pub const ALL: [Heavy; 2] = [Heavy::Profile, Heavy::Soaker];

    /// Its name in specs, records and on the screen.
    pub fn name(self) -> &'static str {
        match self {
            Heavy::Profile => "profile",
            Heavy::Soaker => "soaker",
        }
    }

    /// Its name for readers.
    pub fn label(self) -> &'static str {
        match self {
            Heavy::Profile => "sampled profile",
            Heavy::Soaker => "cycle soaker",
        }
    }

    /// What a trial takes under it beyond its load, about.
    pub fn takes(self) -> Duration {
        match self {
            // MEASURED: 0.9 to 1.4 s for trials of two seconds on two processors; names are what takes it.
            Heavy::Profile => Duration::from_millis(1500),
            // MEASURED: 0.27 s of its own time on each of two processors to calibrate; the rest is to start and be heard.
            Heavy::Soaker => Duration::from_millis(500),
        }
    }

    /// Whether what is idle is still idle under it.
    pub fn leaves_idle_time(self) -> bool {
        self != Heavy::Soaker
    }

    /// The round its trials belong to, behind those that are measured.
    pub fn round(self, rounds: usize) -> usize {
        rounds + 1 + self as usize
    }
}

/// The meters that get trials of their own, with the tools of `lab`.
pub fn heavy(lab: &Path) -> Vec<(Heavy, Box<dyn Meter>)> {
    vec![
        (Heavy::Profile, Box::new(Profile::default())),
        (Heavy::Soaker, Box::new(Soaker::new(lab))),
    ]
}

/// The meters of every trial. They only look before and after the load, and cost it nothing.
pub fn usual() -> Vec<Box<dyn Meter>> {
    vec![
        Box::new(Machine::default()),
        Box::new(Softnet::default()),
        Box::new(Protocols::default()),
        Box::new(Interfaces::default()),
        Box::new(Drops::default()),
        Box::new(Processes::default()),
        Box::new(Share::default()),
    ]
}

/// `after - before` for every name in `after`; a counter that appeared in between began at zero.
fn difference(before: &Readings, after: &Readings) -> Readings {
    after
        .iter()
        .map(|(name, value)| (name.clone(), value - before.get(name).unwrap_or(&0.0)))
        .collect()
}
