//! What this machine can and cannot measure, and how to fix it. Every finding results from a test.

mod finding;
mod kernel;
mod noise;

use std::fs;
use std::path::Path;

use crate::host::program;
use crate::record::Provenance;
use crate::testbed::{guest, isolate};
use finding::finding;

pub(crate) use finding::{Finding, Weight};

/// Looks at everything. Must be called before any thread exists.
pub(crate) fn examine() -> Vec<Finding> {
    let mut findings = vec![machine(), namespaces(), tun()];
    findings.extend(TOOLS.iter().map(tool));
    findings.extend([processors(), clock(), buffers(), steal()]);
    findings.extend(kernel::findings());
    findings.push(guest());
    findings.push(noise::floor());
    findings
}

/// The findings as JSON: an array of `{"weight": "good" | "poor" | "fatal", "text": …}`.
pub(crate) fn json(findings: &[Finding]) -> String {
    let word = |weight| match weight {
        Weight::Good => "good",
        Weight::Poor => "poor",
        Weight::Fatal => "fatal",
    };
    let one = |finding: &Finding| serde_json::json!({ "weight": word(finding.weight), "text": finding.text });
    let all: Vec<serde_json::Value> = findings.iter().map(one).collect();
    format!("{:#}\n", serde_json::Value::Array(all))
}

fn machine() -> Finding {
    let place = Provenance::of_this_machine();
    let flags = place.cpu_flags.join(" ");
    let text = format!(
        "{}, {} processors, Linux {}, {}; {flags}",
        place.cpu, place.cpus, place.kernel, place.system
    );
    finding(Weight::Good, text)
}

fn namespaces() -> Finding {
    match isolate::possible() {
        Ok(()) => finding(Weight::Good, "namespaces can be created"),
        Err(why) => finding(Weight::Fatal, why),
    }
}

fn tun() -> Finding {
    match fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
    {
        Ok(_) => finding(Weight::Good, "/dev/net/tun can be opened"),
        Err(error) => finding(
            Weight::Poor,
            format!(
                "/dev/net/tun cannot be opened ({error}): user-space tunnels cannot be measured. As root: modprobe tun; in a container: --device /dev/net/tun"
            ),
        ),
    }
}

/// Program, what it is for, its Debian package, and how its absence weighs.
const TOOLS: [(&str, &str, &str, Weight); 7] = [
    ("ip", "builds the testbed", "iproute2", Weight::Fatal),
    (
        "ping",
        "checks a tunnel before the load",
        "iputils-ping",
        Weight::Fatal,
    ),
    ("iperf3", "generates load", "iperf3", Weight::Fatal),
    (
        "netperf",
        "generates load where a spec names it",
        "netperf, from Debian's component non-free",
        Weight::Poor,
    ),
    ("ethtool", "disables offloads", "ethtool", Weight::Poor),
    (
        "nft",
        "drops ICMP where a spec asks for a silent router",
        "nftables",
        Weight::Poor,
    ),
    (
        "swanctl",
        "drives strongSwan",
        "strongswan-charon strongswan-swanctl libcharon-extra-plugins",
        Weight::Poor,
    ),
];

fn tool((name, purpose, package, weight): &(&str, &str, &str, Weight)) -> Finding {
    match program(name) {
        Some(path) => finding(
            Weight::Good,
            format!("{} found ({name} {purpose})", path.display()),
        ),
        None => finding(
            *weight,
            format!("{name} is missing ({name} {purpose}): apt-get install {package}"),
        ),
    }
}

/// Whether a guest can be booted, whose kernel has the kernel's contenders even if the running one lacks them.
fn guest() -> Finding {
    match guest::absence() {
        None => finding(
            Weight::Good,
            "a guest can be booted: `esplanade lab run STUDY --guest` runs in an emulated machine whose kernel has IPsec and WireGuard",
        ),
        Some(absence) => finding(
            Weight::Poor,
            format!(
                "no guest can be booted to measure a kernel with IPsec and WireGuard: {}. Fix: {}",
                absence.why, absence.remedy
            ),
        ),
    }
}

fn processors() -> Finding {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    match count {
        0..4 => finding(
            Weight::Poor,
            format!(
                "{count} processors for a client, two gateways and a server: too few to show a gain from parallel work"
            ),
        ),
        _ => finding(Weight::Good, format!("{count} processors")),
    }
}

fn clock() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match fs::read_to_string(path).unwrap_or_default().trim() {
        "" => finding(Weight::Poor, "the clock source is unknown"),
        source @ ("tsc" | "kvm-clock" | "arch_sys_counter") => {
            finding(Weight::Good, format!("clock source {source}"))
        }
        source => finding(
            Weight::Poor,
            format!("clock source {source}: every time stamp is a slow system call"),
        ),
    }
}

fn buffers() -> Finding {
    const WANTED_BYTES: u64 = 4 << 20;
    let read = |name: &str| -> u64 {
        let text =
            fs::read_to_string(Path::new("/proc/sys/net/core").join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let least = read("rmem_max").min(read("wmem_max"));
    match least {
        least if least >= WANTED_BYTES => finding(
            Weight::Good,
            format!("socket buffers may have {least} bytes"),
        ),
        least => finding(
            Weight::Poor,
            format!(
                "socket buffers are limited to {least} bytes (except for root): sysctl net.core.rmem_max={WANTED_BYTES} net.core.wmem_max={WANTED_BYTES}"
            ),
        ),
    }
}

fn steal() -> Finding {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    let (all, stolen) = (
        fields.iter().take(8).sum::<f64>(),
        fields.get(7).copied().unwrap_or(0.0),
    );
    let percent = if all > 0.0 { 100.0 * stolen / all } else { 0.0 };
    match percent {
        percent if percent < 0.5 => finding(
            Weight::Good,
            format!("{percent:.2} % of the time was stolen by the host"),
        ),
        percent => finding(
            Weight::Poor,
            format!(
                "{percent:.1} % of the time was stolen by the host: results will scatter, measure more rounds"
            ),
        ),
    }
}

/// The findings as lines, and whether an experiment can run at all.
pub(crate) fn text(findings: &[Finding]) -> (String, bool) {
    let mark = |weight| match weight {
        Weight::Good => "good ",
        Weight::Poor => "poor ",
        Weight::Fatal => "FATAL",
    };
    let lines: String = findings
        .iter()
        .map(|one| format!("{}  {}\n", mark(one.weight), one.text))
        .collect();
    (
        lines,
        findings.iter().all(|one| one.weight != Weight::Fatal),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_names_its_package() {
        let found = tool(&(
            "no-such-program-here",
            "does nothing",
            "nothing-at-all",
            Weight::Fatal,
        ));
        assert_eq!(found.weight, Weight::Fatal);
        assert!(
            found.text.ends_with("apt-get install nothing-at-all"),
            "{}",
            found.text
        );
    }

    #[test]
    fn json_has_weight_and_text_of_each() {
        let text = json(&[
            finding(Weight::Poor, "a \"b\""),
            finding(Weight::Fatal, "c"),
        ]);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read[0]["text"], "a \"b\"");
        assert_eq!(read[1]["weight"], "fatal");
    }

    #[test]
    fn only_a_fatal_finding_stops_experiments() {
        let good = text(&[finding(Weight::Poor, "x"), finding(Weight::Good, "y")]);
        assert_eq!(good, ("poor   x\ngood   y\n".into(), true));
        assert!(!text(&[finding(Weight::Fatal, "z")]).1);
    }
}
