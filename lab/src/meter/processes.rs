//! What the processes that carry packets cost: processor time of each and of each of its threads, and the peak memory
//! of each. Work in a softirq is charged to the process that was running: a gateway that sends through a virtual link
//! is also charged for some of the receiver's work.

use std::path::{Path, PathBuf};

use super::readings::{Meter, MeterContext, Readings, difference};
use crate::fault::Fault;
use crate::gateway::Gateway;
use crate::host::Host;

/// `left.cpu.user_s`, `left.cpu.system_s`, `left.thread.<name>-<number>.cpu_s`, `left.rss.peak_bytes`.
#[derive(Default)]
pub struct Processes {
    before: Readings,
}

impl Meter for Processes {
    fn id(&self) -> &'static str {
        "processes"
    }

    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault> {
        self.before = times(context)?;
        Ok(())
    }

    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault> {
        let mut readings = difference(&self.before, &times(context)?);
        for gateway in context.tunnel.gateways() {
            let status = context
                .topology
                .gateway(gateway.side)
                .read(&proc(&gateway).join("status"))?;
            let name = format!("{}.rss.peak_bytes", gateway.side.name());
            readings.insert(name, peak(&status).unwrap_or(0.0));
        }
        Ok(readings)
    }
}

fn proc(gateway: &Gateway) -> PathBuf {
    PathBuf::from(format!("/proc/{}", gateway.pid))
}

fn times(context: &MeterContext<'_>) -> Result<Readings, Fault> {
    let mut all = Readings::new();
    for gateway in context.tunnel.gateways() {
        let (host, side) = (context.topology.gateway(gateway.side), gateway.side.name());
        let folder = proc(&gateway);
        let stat = read_stat(host, &folder.join("stat"))?;
        all.insert(format!("{side}.cpu.user_s"), stat.user_s);
        all.insert(format!("{side}.cpu.system_s"), stat.system_s);
        all.extend(threads(host, &folder.join("task"), side)?);
    }
    Ok(all)
}

/// A thread that ends while it is looked at is left out: its time is in the sum of its process.
fn threads(host: &dyn Host, folder: &Path, side: &str) -> Result<Readings, Fault> {
    let mut all = Readings::new();
    for (number, thread) in sorted(host.list(folder)?).into_iter().enumerate() {
        let path = folder.join(thread.to_string());
        let Ok(stat) = read_stat(host, &path.join("stat")) else {
            continue;
        };
        let exact = host.read(&path.join("schedstat")).ok();
        let nanoseconds =
            exact.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        let spent = nanoseconds.map_or(stat.user_s + stat.system_s, |ns| ns / 1e9);
        all.insert(format!("{side}.thread.{}-{number}.cpu_s", stat.name), spent);
    }
    Ok(all)
}

fn sorted(threads: Vec<String>) -> Vec<u32> {
    let mut numbers: Vec<u32> = threads
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

struct Stat {
    name: String,
    user_s: f64,
    system_s: f64,
}

fn read_stat(host: &dyn Host, path: &Path) -> Result<Stat, Fault> {
    parse_stat(&host.read(path)?)
        .ok_or_else(|| Fault::failed(format!("{} is not understood", path.display())))
}

/// The name is in parentheses and may itself hold some, and blanks: fields are counted from the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let mut fields = tail.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some(Stat {
        name: name.replace(['.', ' '], "_"),
        user_s: ticks()? / ticks_per_second(),
        system_s: ticks()? / ticks_per_second(),
    })
}

fn peak(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

/// The unit of processor time in `/proc`.
pub(super) fn ticks_per_second() -> f64 {
    // SAFETY: sysconf takes a number and returns one.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_wild_name_is_read() {
        let text =
            "77 (we (ird) na.me) S 1 77 77 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 1000 1 1 1";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.user_s, stat.system_s), (2.5, 0.5));
        assert_eq!(stat.name, "we_(ird)_na_me");
    }

    #[test]
    fn peak_memory_is_in_bytes() {
        let status =
            "Name:\tesplanade\nVmPeak:\t  99999 kB\nVmHWM:\t   2048 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!(peak(status), Some(2_097_152.0));
    }

    #[test]
    fn this_very_process_can_be_read() {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap();
        let stat = parse_stat(&text).unwrap();
        assert!(stat.user_s >= 0.0 && stat.system_s >= 0.0 && !stat.name.is_empty());
    }
}
