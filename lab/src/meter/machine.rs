//! Processor time of the whole machine by state, from `/proc/stat`. It includes other programs. Where the kernel does
//! no interrupt accounting the `irq` column stays empty, and that time is charged to the interrupted process.

use std::path::Path;

use super::readings::{Meter, MeterContext, Readings, difference};
use crate::fault::Fault;

/// `machine.<state>_s`.
#[derive(Default)]
pub struct Machine {
    before: Readings,
}

const STATES: [&str; 8] = [
    "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal",
];

impl Meter for Machine {
    fn id(&self) -> &'static str {
        "machine"
    }

    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault> {
        self.before = read_counters(context)?;
        Ok(())
    }

    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault> {
        Ok(difference(&self.before, &read_counters(context)?))
    }
}

fn read_counters(context: &MeterContext<'_>) -> Result<Readings, Fault> {
    let stat = context.topology.left.read(Path::new("/proc/stat"))?;
    read(&stat).ok_or_else(|| Fault::failed("/proc/stat has no line `cpu`"))
}

fn read(stat: &str) -> Option<Readings> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks = line
        .split_whitespace()
        .map(|field| field.parse::<f64>().ok());
    STATES
        .iter()
        .zip(ticks)
        .map(|(state, ticks)| {
            Some((
                format!("machine.{state}_s"),
                ticks? / super::processes::ticks_per_second(),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_split_by_state() {
        let readings = read("cpu  100 0 50 1000 0 0 25 5 0 0\ncpu0 1 1 1 1 1 1 1 1\n").unwrap();
        assert_eq!(readings["machine.user_s"], 1.0);
        assert_eq!(readings["machine.softirq_s"], 0.25);
        assert_eq!(readings["machine.steal_s"], 0.05);
        assert_eq!(readings.len(), 8);
    }
}
