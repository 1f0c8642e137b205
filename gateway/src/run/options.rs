//! The options of `esplanade run` and `restart`.

use crate::argument::{InvalidWord, number};
use crate::plane::PlaneWish;
use crate::routes::{DEFAULT_MARK, DEFAULT_TUN};
use clap::Args;
use dataplane::io::packet::NativeIo;
use dataplane::pipeline::governor::Workers;
use dataplane::pipeline::priority::Priority;
use dataplane::pipeline::wake::Wake;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DEFAULT_BATCH_PACKETS: u16 = 64;
const DEFAULT_YIELD_BATCHES: u32 = 64;

/// What `esplanade run` takes.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunOptions {
    /// Associations and policies, in setkey syntax
    #[arg(long, value_name = "FILE")]
    pub setkey: Option<PathBuf>,
    /// Peers whose keys are negotiated (IKEv2), and all options of this command by the same names, in TOML
    #[arg(long, value_name = "FILE", conflicts_with = "setkey")]
    pub config: Option<PathBuf>,
    /// What seals and opens packets: Esplanade's own data plane, the kernel's own IPsec, or the kernel's if a trial
    /// shows that it can do all that is configured
    #[arg(long, value_name = "user|kernel|auto", default_value_t)]
    pub plane: PlaneWish,
    /// TUN device; gateways on one host need different names
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TUN)]
    pub tun: String,
    /// Forward for the hosts behind this Ethernet device without a TUN device: more small packets per second, but this
    /// host itself cannot use the tunnel
    #[arg(long, value_name = "DEVICE", conflicts_with = "tun")]
    pub forward: Option<String>,
    /// The control socket [default: $ESPLANADE_CONTROL or /run/esplanade/control.sock]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Extra threads for encryption and decryption beside the two reading threads; 0: none; auto: extra threads when
    /// measurements show a gain
    #[arg(long, value_name = "auto|N", default_value_t)]
    pub workers: Workers,
    /// Packets (or GSO buffers) read at a time
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BATCH_PACKETS,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub batch: u16,
    /// Batches after which a reading thread yields the CPU; 0: never
    #[arg(long, value_name = "N", default_value_t = DEFAULT_YIELD_BATCHES)]
    pub poll_budget: u32,
    /// When idle: sleep; poll briefly if CPUs are idle; or busy-poll
    #[arg(long, value_name = "sleep|adaptive[:µs]|busy[:µs]", default_value_t)]
    pub wake: Wake,
    /// CPUs for all threads, such as 0-3,8
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpus: Option<CpuList>,
    /// Scheduling priority of the packet threads; realtime runs them as soon as a packet arrives, which reduces tail
    /// latency on a busy machine
    #[arg(long, value_name = "normal|realtime", default_value_t)]
    pub priority: Priority,
    /// Remove the drop rules when the gateway stops, so that protected traffic then passes UNENCRYPTED
    #[arg(long)]
    pub fail_open: bool,
    /// Mark bit of packets that must not enter the tunnel; the next higher bit is used too
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MARK, value_parser = number)]
    pub mark: u32,
    /// Routing table with the routes to the TUN device [default: 4500 for esp0]
    #[arg(long, value_name = "N")]
    pub table: Option<u32>,
    /// UDP port for ESP in UDP, in addition to those in associations
    #[arg(long, value_name = "PORT", default_value_t = 4500)]
    pub port: u16,
    /// Send UDP checksum 0 over IPv4, as RFC 3948 recommends; disables GSO/GRO on both ends
    #[arg(long)]
    pub zero_checksum: bool,
    /// Disable GSO/GRO and checksum offload, for broken drivers
    #[arg(long)]
    pub no_offloads: bool,
    /// I/O for native ESP: raw sockets, packet ring and packet socket, or packet ring and AF_XDP
    #[arg(long, value_name = "raw|packet|xdp|auto", default_value_t)]
    pub native_io: NativeIo,
    /// Send and receive protected packets in this network namespace (a name of `ip netns`, or a path)
    #[arg(long, value_name = "NAME|PATH")]
    pub outer_netns: Option<String>,
    /// Send and receive protected packets only on this device, such as a VRF
    #[arg(long, value_name = "DEV")]
    pub outer_device: Option<String>,
    /// Folder where sequence numbers, replay windows and lifetimes are stored across restarts [default:
    /// $ESPLANADE_STATE, or one below /var/lib/esplanade for each control socket]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Store none: after a restart peers drop this gateway's packets as replayed, and it accepts recorded ones
    #[arg(long, conflicts_with = "state")]
    pub no_state: bool,
    /// Start with new numbers if the stored ones cannot be trusted: asserts that no key was ever used before
    #[arg(long, conflicts_with = "no_state")]
    pub fresh_keys: bool,
    /// Write the keys that IKE negotiates to this folder, in tables that Wireshark reads: for finding faults alone
    #[arg(long, value_name = "DIR")]
    pub key_log: Option<PathBuf>,
    /// User (and group) to run as after start-up, by name or number [default: for root $ESPLANADE_USER, or `esplanade`
    /// if it exists; otherwise the current user]
    #[arg(
        long,
        value_name = "USER[:GROUP]",
        conflicts_with = "no_privilege_drop"
    )]
    pub user: Option<String>,
    /// User (and group) of the hooks of peers, by name or number [default: the user of the gateway, unless that is
    /// root]
    #[arg(long, value_name = "USER[:GROUP]")]
    pub hook_user: Option<String>,
    /// Do not drop capabilities or restrict system calls and files
    #[arg(long)]
    pub no_privilege_drop: bool,
    /// Make CBC IVs and initial counters reproducible; only for tests, never twice with one key
    #[arg(long, value_name = "N", hide = true)]
    pub seed: Option<u64>,
}

impl RunOptions {
    /// Those about threads and sockets of Esplanade's own data plane, where they are not the default.
    pub(super) fn of_the_user_plane(&self) -> Vec<&'static str> {
        let all = [
            ("--workers", self.workers != Workers::default()),
            ("--batch", self.batch != DEFAULT_BATCH_PACKETS),
            ("--poll-budget", self.poll_budget != DEFAULT_YIELD_BATCHES),
            ("--wake", self.wake != Wake::default()),
            ("--priority", self.priority != Priority::default()),
            ("--zero-checksum", self.zero_checksum),
            ("--native-io", self.native_io != NativeIo::default()),
        ];
        let given = all.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(name, _)| name).collect()
    }
}

const EXAMPLES: &str = "\
Examples:
  esplanade run --config /etc/esplanade/esplanade.toml
  esplanade run --setkey tunnel.conf
  esplanade run --setkey branch.conf --tun esp1 --control /run/esplanade/branch.sock
  esplanade run --setkey tunnel.conf --forward eth1
  esplanade run --setkey tunnel.conf --plane auto
  esplanade run --setkey tunnel.conf --cpus 2-5 --workers 2
  esplanade run --setkey tunnel.conf --state /var/lib/esplanade/tunnel

SIGHUP reloads the file, like `esplanade reload`. SIGTERM or SIGINT stop the gateway. Its drop rules
stay in force, so that protected traffic is never sent unencrypted; `esplanade down` removes them.";

/// Why a log of keys is for finding faults alone.
pub(crate) fn key_log_warning(folder: &Path) -> String {
    format!(
        "the keys of all that IKE negotiates are written to {}: who reads them reads the traffic, of before too",
        folder.display()
    )
}

/// What `esplanade restart --help` shows.
pub(crate) const RESTART_EXAMPLES: &str = "\
Examples:
  esplanade restart --setkey tunnel.conf
  /opt/new/esplanade restart --setkey branch.conf --tun esp1 --control /run/esplanade/branch.sock

It takes the options of `esplanade run`, the same as before or others. File and options are checked
while the old process still forwards; then that one stops, nothing passes unencrypted, and the new
process continues with the stored sequence numbers. Restart a gateway that systemd started with
`systemctl restart`.";

/// Numbers of processors.
pub(crate) type CpuList = Arc<[usize]>;

fn cpu_list(word: &str) -> Result<CpuList, InvalidWord> {
    let wrong = || InvalidWord("a list of CPUs is expected, such as 0-3,8");
    let mut cpus = Vec::new();
    for part in word.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.parse().map_err(|_| wrong())?;
        let last: usize = last.parse().map_err(|_| wrong())?;
        if first > last || last >= 1024 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn options(words: &[&str]) -> RunOptions {
        let command = RunOptions::augment_args(Command::new("run").no_binary_name(true));
        RunOptions::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn options_of_the_user_plane_are_those_that_were_given() {
        assert_eq!(options(&[]).of_the_user_plane(), [""; 0]);
        let given = options(&[
            "--wake",
            "busy",
            "--mark",
            "8",
            "--workers",
            "2",
            "--batch",
            "32",
        ]);
        assert_eq!(
            given.of_the_user_plane(),
            ["--workers", "--batch", "--wake"]
        );
    }

    #[test]
    fn processors_are_listed_one_by_one_and_in_ranges() {
        assert_eq!(*cpu_list("0-3,8").unwrap(), [0, 1, 2, 3, 8]);
        for wrong in ["", "a", "3-1", "1-", "0-99999", "1,,2"] {
            assert!(cpu_list(wrong).is_err(), "{wrong}");
        }
    }
}
