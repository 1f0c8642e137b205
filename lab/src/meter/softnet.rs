//! How the kernel takes packets in, by processor: `/proc/net/softnet_stat`. Packets that met a full backlog are dropped
//! before other counters see them; a squeeze is a softirq that ran out of its budget with packets left. The table is
//! the machine's, whichever namespace reads it.

use std::path::Path;

use super::machines::machines;
use super::readings::{Meter, MeterContext, Readings, difference};
use crate::fault::Fault;

/// `softnet.processed_count`, `softnet.dropped_count`, `softnet.squeezed_count`, always; the same of each processor
/// that did anything, as `softnet.cpu0.processed_count`. With several machines each begins with a host's name.
#[derive(Default)]
pub struct Softnet {
    before: Readings,
}

impl Meter for Softnet {
    fn id(&self) -> &'static str {
        "softnet"
    }

    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault> {
        self.before = read_counters(context);
        Ok(())
    }

    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault> {
        Ok(between(&self.before, &read_counters(context)))
    }
}

/// A kernel that does not show the table has nothing to count with.
fn read_counters(context: &MeterContext<'_>) -> Readings {
    let tables = machines(context.topology)
        .into_iter()
        .map(|(prefix, host)| {
            let table = host.read(Path::new("/proc/net/softnet_stat"));
            read(&table.unwrap_or_default(), &prefix)
        });
    tables.flatten().collect()
}

/// Columns that are kept; all are hexadecimal.
const COLUMNS: [(usize, &str); 3] = [(0, "processed"), (1, "dropped"), (2, "squeezed")];
/// The column with the number of the processor, which older kernels lack: there lines are counted.
const PROCESSOR: usize = 12;

/// `softnet.cpu0.processed_count` and so on.
fn read(table: &str, prefix: &str) -> Readings {
    let mut readings = Readings::new();
    for (line, text) in table.lines().enumerate() {
        let fields: Vec<u32> = text
            .split_whitespace()
            .filter_map(|field| u32::from_str_radix(field, 16).ok())
            .collect();
        let processor = fields.get(PROCESSOR).map_or(line, |cpu| *cpu as usize);
        for (column, name) in COLUMNS {
            let value = f64::from(fields.get(column).copied().unwrap_or(0));
            readings.insert(
                format!("{prefix}softnet.cpu{processor}.{name}_count"),
                value,
            );
        }
    }
    readings
}

/// The differences, and their sums over all processors. The kernel counts in 32 bits, which a fast machine fills in an
/// hour.
fn between(before: &Readings, after: &Readings) -> Readings {
    let mut readings = Readings::new();
    for (name, count) in difference(before, after) {
        let count = count.rem_euclid(2f64.powi(32));
        let Some((machine, (_, what))) = name
            .split_once("softnet.")
            .and_then(|(machine, rest)| Some((machine, rest.split_once('.')?)))
        else {
            continue;
        };
        *readings
            .entry(format!("{machine}softnet.{what}"))
            .or_default() += count;
        if count > 0.0 {
            readings.insert(name, count);
        }
    }
    readings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_add_up_and_keep_their_numbers() {
        let line = |processed: &str, dropped: &str, cpu: &str| {
            format!("{processed} {dropped} 00000003 0 0 0 0 0 0 0 0 0 {cpu} 0 0\n")
        };
        let before = read(&(line("f0", "1", "0") + &line("10", "0", "4")), "");
        let after = read(&(line("ff", "3", "0") + &line("10", "0", "4")), "");
        let wanted = [
            ("softnet.cpu0.dropped_count", 2.0),
            ("softnet.cpu0.processed_count", 15.0),
            ("softnet.dropped_count", 2.0),
            ("softnet.processed_count", 15.0),
            ("softnet.squeezed_count", 0.0),
        ];
        let wanted = wanted.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(between(&before, &after), wanted.into());
    }

    #[test]
    fn a_counter_that_began_anew_at_its_32_bits_still_gives_the_difference() {
        let (before, after) = (read("ffffffff 0 0\n", ""), read("00000004 0 0\n", ""));
        assert_eq!(between(&before, &after)["softnet.processed_count"], 5.0);
    }

    #[test]
    fn the_short_lines_of_older_kernels_are_counted() {
        let readings = read("00000002 0 0\n00000005 0 1\n", "left.");
        assert_eq!(readings["left.softnet.cpu1.processed_count"], 5.0);
    }
}
