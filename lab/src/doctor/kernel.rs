//! What the running kernel supports: IPsec and WireGuard, accounting, and CPU settings.

use std::fs;
use std::path::Path;

use super::finding::{Finding, Weight, finding};
use crate::testbed::Quotas;

/// All findings on the kernel.
pub(super) fn findings() -> Vec<Finding> {
    let mut all: Vec<Finding> = MODULES.iter().map(module).collect();
    all.extend([governor(), multithreading(), sampling(), groups()]);
    all
}

/// Module, its name in the kernel's configuration, and what cannot be measured without it.
const MODULES: [(&str, &str, &str); 3] = [
    (
        "esp4",
        "CONFIG_INET_ESP",
        "the kernel's own IPsec (kernel-xfrm, and esplanade with `plane = \"kernel\"`)",
    ),
    ("wireguard", "CONFIG_WIREGUARD", "the kernel's WireGuard"),
    (
        "pcrypt",
        "CONFIG_CRYPTO_PCRYPT",
        "the kernel's parallel crypto layer",
    ),
];

fn module((name, option, subject): &(&str, &str, &str)) -> Finding {
    let release = read("/proc/sys/kernel/osrelease");
    let folder = format!("/lib/modules/{}", release.trim());
    let loaded = Path::new("/sys/module").join(name).exists();
    let listed = |list: &str| read(&format!("{folder}/{list}")).contains(&format!("/{name}.ko"));
    if loaded || listed("modules.builtin") || listed("modules.dep") {
        finding(Weight::Good, format!("{subject} is available ({name})"))
    } else {
        finding(
            Weight::Poor,
            format!(
                "{subject} is not available: boot a kernel with {option} (Debian's linux-image-amd64 has it), or measure in a guest: `esplanade lab run STUDY --guest`"
            ),
        )
    }
}

fn governor() -> Finding {
    match read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim() {
        "" => finding(
            Weight::Good,
            "this kernel does not control the CPU frequency (usual in a virtual machine)",
        ),
        "performance" => finding(Weight::Good, "frequency governor performance"),
        other => finding(
            Weight::Poor,
            format!(
                "frequency governor {other}: results depend on recent load. As root: cpupower frequency-set -g performance"
            ),
        ),
    }
}

fn multithreading() -> Finding {
    match read("/sys/devices/system/cpu/smt/active").trim() {
        "1" => finding(
            Weight::Poor,
            "simultaneous multithreading is on: two processors share one core. As root: echo off > /sys/devices/system/cpu/smt/control",
        ),
        _ => finding(
            Weight::Good,
            "no two processors share a core, according to the kernel",
        ),
    }
}

fn sampling() -> Finding {
    let level: i32 = read("/proc/sys/kernel/perf_event_paranoid")
        .trim()
        .parse()
        .unwrap_or(4);
    let root = rustix::process::geteuid().is_root();
    match (crate::host::program("perf"), root || level <= 1) {
        (Some(_), true) => finding(Weight::Good, "perf can sample all processors"),
        (Some(_), false) => finding(
            Weight::Poor,
            "perf may not sample the kernel: sysctl kernel.perf_event_paranoid=1",
        ),
        (None, _) => finding(
            Weight::Poor,
            "perf is missing (it samples all processors): apt-get install linux-perf",
        ),
    }
}

fn groups() -> Finding {
    let tried = Quotas::open().and_then(|quotas| quotas.tried(0.5).map(|()| quotas.describe()));
    match tried {
        Ok(place) => finding(
            Weight::Good,
            format!(
                "processes can be limited to a share of a processor ({place}); softirqs cannot"
            ),
        ),
        Err(absence) => finding(
            Weight::Poor,
            format!(
                "processes cannot be limited to a share of a processor: {}. Fix: {}",
                absence.why, absence.remedy
            ),
        ),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
