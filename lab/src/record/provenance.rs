//! Where a number comes from: the machine, the kernel, the versions, and the command that repeats it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::host::Host;

/// Everything needed to judge or repeat a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Provenance {
    /// The command that repeats the run.
    pub command: String,
    /// Version of the lab.
    pub lab: String,
    /// The processor's name.
    pub cpu: String,
    /// The processor's flags that matter to ciphers.
    pub cpu_flags: Vec<String>,
    /// The processor's clock at the time, in MHz; `None` if the kernel does not report it.
    #[serde(default)]
    pub cpu_mhz: Option<f64>,
    /// Processors the lab may run on.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The kernel's answers to processor weaknesses, which cost time.
    pub mitigations: BTreeMap<String, String>,
    /// Settings of the host that move results: clock source, simultaneous multithreading, governor, socket buffers.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What the testbed is.
    pub testbed: String,
    /// Whether its processors are emulated: then figures are compared with none that were measured natively.
    #[serde(default)]
    pub emulated: bool,
    /// Versions of the programs that took part.
    pub versions: BTreeMap<String, String>,
}

impl Provenance {
    /// Reads this machine; testbed, command and versions are for the caller to add.
    pub fn of_this_machine() -> Provenance {
        let seen = MachineFiles {
            text: &|path| fs::read_to_string(path).unwrap_or_default(),
            names: &|path| {
                let entries = fs::read_dir(path).into_iter().flatten().flatten();
                let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
                entries.filter_map(name).collect()
            },
        };
        Provenance {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            ..Provenance::seen(&seen)
        }
    }

    /// The same of another machine.
    pub fn of(host: &dyn Host) -> Provenance {
        Provenance::seen(&MachineFiles {
            text: &|path| host.read(Path::new(path)).unwrap_or_default(),
            names: &|path| host.list(Path::new(path)).unwrap_or_default(),
        })
    }

    fn seen(machine: &MachineFiles<'_>) -> Provenance {
        let read = |path: &str| (machine.text)(path);
        let cpuinfo = read("/proc/cpuinfo");
        let processors = cpuinfo.lines().filter(|line| line.starts_with("processor"));
        Provenance {
            lab: env!("CARGO_PKG_VERSION").into(),
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").into(),
            cpu_flags: cipher_flags(&cpuinfo),
            cpu_mhz: field(&cpuinfo, "cpu MHz").and_then(|clock| clock.parse().ok()),
            cpus: processors.count(),
            memory_bytes: memory(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            system: os_name(&read("/etc/os-release")),
            mitigations: mitigations(machine),
            settings: settings(machine),
            ..Provenance::default()
        }
    }
}

/// The files and folders of a machine; what it does not have is empty.
struct MachineFiles<'a> {
    text: &'a dyn Fn(&str) -> String,
    names: &'a dyn Fn(&str) -> Vec<String>,
}

impl Provenance {
    /// What is not the same in another: a run may be resumed on another day, after an update, or elsewhere.
    pub fn changes(&self, other: &Provenance) -> Vec<String> {
        let differs = |what: &str, here: &str, there: &str| {
            (here != there).then(|| format!("{what}: {here}, then {there}"))
        };
        let plain = [
            ("processor", &self.cpu, &other.cpu),
            ("kernel", &self.kernel, &other.kernel),
            ("system", &self.system, &other.system),
            ("lab", &self.lab, &other.lab),
            ("testbed", &self.testbed, &other.testbed),
        ];
        let plain = plain
            .into_iter()
            .filter_map(|(what, here, there)| differs(what, here, there));
        let count = differs(
            "processors",
            &self.cpus.to_string(),
            &other.cpus.to_string(),
        );
        let maps = [
            (&self.versions, &other.versions),
            (&self.settings, &other.settings),
            (&self.mitigations, &other.mitigations),
        ];
        let named = maps.into_iter().flat_map(|(here, there)| {
            let both = here
                .iter()
                .filter_map(|(name, value)| Some((name, value, there.get(name)?)));
            both.filter_map(|(name, here, there)| differs(name, here, there))
        });
        plain.chain(count).chain(named).collect()
    }
}

/// Read from where the kernel shows them; what a machine does not have is left out.
fn settings(machine: &MachineFiles<'_>) -> BTreeMap<String, String> {
    const SETTINGS: [(&str, &str); 7] = [
        (
            "clock source",
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        (
            "simultaneous multithreading",
            "/sys/devices/system/cpu/smt/control",
        ),
        (
            "frequency governor",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        ),
        ("net.core.rmem_max", "/proc/sys/net/core/rmem_max"),
        ("net.core.wmem_max", "/proc/sys/net/core/wmem_max"),
        ("net.core.netdev_budget", "/proc/sys/net/core/netdev_budget"),
        (
            "net.ipv4.tcp_congestion_control",
            "/proc/sys/net/ipv4/tcp_congestion_control",
        ),
    ];
    let found = SETTINGS
        .iter()
        .map(|(name, path)| (*name, (machine.text)(path)));
    found
        .filter(|(_, value)| !value.trim().is_empty())
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn cipher_flags(cpuinfo: &str) -> Vec<String> {
    const CIPHER_FLAGS: [&str; 11] = [
        "aes",
        "pclmulqdq",
        "sha_ni",
        "ssse3",
        "avx",
        "avx2",
        "avx512f",
        "avx512bw",
        "vaes",
        "vpclmulqdq",
        "gfni",
    ];
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    flags
        .split_whitespace()
        .filter(|flag| CIPHER_FLAGS.contains(flag))
        .map(str::to_owned)
        .collect()
}

fn memory(meminfo: &str) -> u64 {
    let kilobytes: Option<u64> =
        field(meminfo, "MemTotal").and_then(|text| text.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn os_name(os_release: &str) -> String {
    let line = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or("unknown").trim_matches('"').into()
}

fn mitigations(machine: &MachineFiles<'_>) -> BTreeMap<String, String> {
    const FOLDER: &str = "/sys/devices/system/cpu/vulnerabilities";
    let answer = |name: &String| {
        (machine.text)(&format!("{FOLDER}/{name}"))
            .trim()
            .to_owned()
    };
    let names = (machine.names)(FOLDER).into_iter();
    let answers = names.map(|name| (name.clone(), answer(&name)));
    answers
        .filter(|(_, answer)| !answer.is_empty() && answer != "Not affected")
        .collect()
}
