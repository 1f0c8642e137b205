//! How much of the processors a load took, by soakers: the readings of a cell, put together for readers.

use super::findings::Cell;
use crate::meter::{IntrusiveMeter, Readings};
use crate::record::{Outcome, Record};

/// What the soaker of one machine lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The host that stands for the machine; nothing where there is one machine.
    pub machine: String,
    /// How many processors it has.
    pub processors: usize,
    /// The share of all of them that others took.
    pub all: f64,
    /// The share, contained in it, that the kernel charged to the soaker.
    pub hidden: f64,
    /// The share of the processor that others took most of.
    pub busiest: f64,
    /// What `/proc/stat` counts in the same trial as neither idle nor nice, where that is of the same machine: a soaker is
    /// nice, and so perhaps is what others run there.
    pub by_the_kernel: Option<f64>,
    /// By how much the clock ran faster than in the calibration.
    pub faster: f64,
    /// Whether the soaker was in nobody's way.
    pub idle_class: bool,
    /// What was carried beside it, as a share of what is carried without.
    pub carried: f64,
}

/// One for each machine, where a soaker ran.
pub fn loads(cell: &Cell) -> Vec<Load> {
    let mut trials = cell.under_meters.iter();
    let found = trials.find_map(|trial| Some((*trial, readings(trial)?)));
    let Some((trial, readings)) = found else {
        return Vec::new();
    };
    let carried = trial.figures.get("goodput_bps").copied();
    let without = cell.other("goodput_bps");
    let carried = carried.zip(without).map_or(1.0, |(beside, without)| {
        beside / without.max(f64::MIN_POSITIVE)
    });
    let prefixes = readings
        .keys()
        .filter_map(|name| name.strip_suffix("soaker.load_ratio"));
    prefixes
        .filter_map(|prefix| load(readings, prefix, carried))
        .collect()
}

fn readings(trial: &Record) -> Option<&Readings> {
    match &trial.outcome {
        Outcome::Examined {
            by: IntrusiveMeter::Soaker,
            readings,
            ..
        } => Some(readings),
        _ => None,
    }
}

fn load(readings: &Readings, prefix: &str, carried: f64) -> Option<Load> {
    let read = |name: &str| readings.get(&format!("{prefix}soaker.{name}")).copied();
    Some(Load {
        machine: prefix.trim_end_matches('.').into(),
        processors: read("processors_count")? as usize,
        all: read("load_ratio")?,
        hidden: read("hidden_ratio")?,
        busiest: read("busiest_ratio")?,
        by_the_kernel: by_the_kernel(readings).filter(|_| prefix.is_empty()),
        faster: read("faster_ratio").unwrap_or(0.0),
        idle_class: read("nice_count").is_none(),
        carried,
    })
}

fn by_the_kernel(readings: &Readings) -> Option<f64> {
    let spent = |state: &&str| readings.get(&format!("machine.{state}_s")).copied();
    let sum = |states: &[&str]| states.iter().filter_map(spent).sum::<f64>();
    let busy = sum(&["user", "system", "irq", "softirq", "steal"]);
    let all = busy + sum(&["nice", "idle", "iowait"]);
    (all > 0.0).then(|| busy / all)
}

impl Load {
    /// Of which processors, as `both processors`.
    pub fn of_all(&self) -> String {
        let processors = match self.processors {
            1 => "the processor".into(),
            2 => "both processors".into(),
            count => format!("all {count} processors"),
        };
        match self.machine.is_empty() {
            true => processors,
            false => format!("{processors} of {}'s machine", self.machine),
        }
    }

    /// What makes its figures less sure, if anything does.
    pub fn doubt(&self) -> Option<&'static str> {
        if !self.idle_class {
            Some("the soaker was refused the idle class and took a little from the load")
        } else if self.faster > 0.01 {
            Some("the soaker ran faster than it had calibrated: the load is higher than it seems")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings::Findings;
    use crate::report::fixture;

    #[test]
    fn a_soaker_s_trial_is_told_beside_what_the_kernel_counted_in_it() {
        let mut records = fixture::cell("plain", 0, &[], &[1e9, 3e9]);
        let readings = [
            ("soaker.load_ratio", 0.3),
            ("soaker.hidden_ratio", 0.1),
            ("soaker.busiest_ratio", 0.5),
            ("soaker.processors_count", 2.0),
            ("machine.user_s", 0.2),
            ("machine.nice_s", 0.8),
        ];
        records.push(fixture::examined(
            "plain",
            0,
            &[],
            IntrusiveMeter::Soaker,
            &readings,
        ));
        let findings = Findings::of(&records).unwrap();
        let loads = loads(findings.cells().next().unwrap());
        let [load] = &loads[..] else {
            panic!("{loads:?}")
        };
        assert_eq!((load.all, load.hidden, load.busiest), (0.3, 0.1, 0.5));
        assert_eq!(load.by_the_kernel, Some(0.2));
        assert_eq!(
            (load.of_all().as_str(), load.doubt()),
            ("both processors", None)
        );
        // Made records under meters carry 1 Gbit/s, and the measured ones 2 on average.
        assert_eq!(load.carried, 0.5);
    }

    #[test]
    fn each_machine_has_its_own_and_a_profile_none() {
        let mut records = fixture::cell("plain", 0, &[], &[1e9]);
        let of = |host: &str| {
            ["load", "hidden", "busiest"]
                .map(|name| (format!("{host}.soaker.{name}_ratio"), 0.25))
                .into_iter()
                .chain([(format!("{host}.soaker.processors_count"), 8.0)])
                .collect::<Vec<_>>()
        };
        let both = [of("left"), of("right")].concat();
        let both: Vec<(&str, f64)> = both.iter().map(|(name, value)| (&**name, *value)).collect();
        records.push(fixture::examined(
            "plain",
            0,
            &[],
            IntrusiveMeter::Profile,
            &both,
        ));
        let told = |records: &[Record]| {
            let findings = Findings::of(records).unwrap();
            let told = loads(findings.cells().next().unwrap());
            told.iter().map(Load::of_all).collect::<Vec<_>>()
        };
        assert!(told(&records).is_empty());
        records.push(fixture::examined(
            "plain",
            0,
            &[],
            IntrusiveMeter::Soaker,
            &both,
        ));
        let wanted = ["left", "right"].map(|host| format!("all 8 processors of {host}'s machine"));
        assert_eq!(told(&records), wanted);
    }
}
