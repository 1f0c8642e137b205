//! The options of `esplanade run` and `restart`.

use crate::argument::number;
use crate::routes::{DEFAULT_MARK, DEFAULT_TUN};
use clap::Args;
use dataplane::io::packet::NativeIo;
use dataplane::pipeline::governor::Workers;
use dataplane::pipeline::priority::Priority;
use dataplane::pipeline::wake::Wake;
use std::path::PathBuf;
use std::sync::Arc;

/// What `esplanade run` takes.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Associations and policies, in the language of setkey
    #[arg(long, value_name = "FILE")]
    pub setkey: PathBuf,
    /// The TUN device; its name keeps several gateways of one host apart
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TUN)]
    pub tun: String,
    /// Forward for the hosts behind this Ethernet device without a TUN device: more small packets a second, but no way
    /// into the tunnel for this host itself
    #[arg(long, value_name = "DEVICE", conflicts_with = "tun")]
    pub forward: Option<String>,
    /// The control socket [default: $ESPLANADE_CONTROL or /run/esplanade/control.sock]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Threads that encrypt and decrypt, beside the two that read; 0 does everything on those two; auto measures what
    /// the ciphers cost, and has workers while those bring more
    #[arg(long, value_name = "auto|N", default_value_t)]
    pub workers: Workers,
    /// Packets or trains that are read at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub batch: u16,
    /// Batches in a row after which a reading thread lets others have the processor; 0 for never
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub poll_budget: u32,
    /// What a thread with nothing to do does: sleep; look again for a moment if processors are to spare; or be busy
    #[arg(long, value_name = "sleep|adaptive[:µs]|busy[:µs]", default_value_t)]
    pub wake: Wake,
    /// Where all of them may run, such as 0-3,8
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpus: Option<CpuList>,
    /// How the threads that carry packets stand among all others; realtime gives them the processor as soon as a packet
    /// comes, which shortens the slowest round trips on a busy machine
    #[arg(long, value_name = "normal|realtime", default_value_t)]
    pub priority: Priority,
    /// Take the drop rules away when the gateway stops, so that protected traffic then passes IN CLEAR
    #[arg(long)]
    pub fail_open: bool,
    /// The mark bit of packets that must not enter the tunnel; the next higher bit is used too
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MARK, value_parser = number)]
    pub mark: u32,
    /// The routing table that leads to the TUN device [default: 4500 for esp0]
    #[arg(long, value_name = "N")]
    pub table: Option<u32>,
    /// The UDP port of ESP in UDP, beside those that associations name
    #[arg(long, value_name = "PORT", default_value_t = 4500)]
    pub port: u16,
    /// Send the UDP checksum 0 over IPv4, as RFC 3948 prefers; costs the trains of both ends
    #[arg(long)]
    pub zero_checksum: bool,
    /// Do without trains and checksum offloads, for broken drivers
    #[arg(long)]
    pub no_offloads: bool,
    /// How native ESP goes: raw sockets, a packet ring and a packet socket, or a packet ring and AF_XDP
    #[arg(long, value_name = "raw|packet|xdp|auto", default_value_t)]
    pub native_io: NativeIo,
    /// Send and receive protected packets in this network namespace (a name of `ip netns`, or a path)
    #[arg(long, value_name = "NAME|PATH")]
    pub outer_netns: Option<String>,
    /// Send and receive protected packets by this device alone, such as a VRF
    #[arg(long, value_name = "DEV")]
    pub outer_device: Option<String>,
    /// The folder in which sequence numbers, replay windows and lifetimes are kept across restarts [default:
    /// $ESPLANADE_STATE, or one below /var/lib/esplanade for each control socket]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Keep none: after a restart peers refuse what is sent, and recorded packets are accepted again
    #[arg(long, conflicts_with = "state")]
    pub no_state: bool,
    /// Begin anew where the kept numbers cannot be trusted: says that no key of the file was ever used before
    #[arg(long, conflicts_with = "no_state")]
    pub fresh_keys: bool,
    /// The user that the gateway is once it has started, by name or number, with its own group or another one [default: as
    /// root, $ESPLANADE_USER or `esplanade` if the host has it; otherwise whoever starts it]
    #[arg(
        long,
        value_name = "USER[:GROUP]",
        conflicts_with = "no_privilege_drop"
    )]
    pub user: Option<String>,
    /// Keep all capabilities, system calls and files
    #[arg(long)]
    pub no_privilege_drop: bool,
    /// Make IVs of CBC suites and the start of counters repeatable; for tests alone, and never twice with one key
    #[arg(long, value_name = "N", hide = true)]
    pub seed: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  esplanade run --setkey tunnel.conf
  esplanade run --setkey branch.conf --tun esp1 --control /run/esplanade/branch.sock
  esplanade run --setkey tunnel.conf --forward eth1
  esplanade run --setkey tunnel.conf --cpus 2-5 --workers 2
  esplanade run --setkey tunnel.conf --state /var/lib/esplanade/tunnel

SIGHUP has it read its file again, as `esplanade reload` does. SIGTERM or SIGINT stop it. The drop rules stay, so that nothing protected leaves in clear: `esplanade down` takes them away.";

/// What `esplanade restart --help` shows.
pub const RESTART_EXAMPLES: &str = "\
Examples:
  esplanade restart --setkey tunnel.conf
  /opt/new/esplanade restart --setkey branch.conf --tun esp1 --control /run/esplanade/branch.sock

It takes the options of `esplanade run`: those of the gateway that runs, or others. File and options are checked while that
one still carries; then it stops, nothing passes in clear, and this process goes on by the numbers that are kept. A gateway
that systemd started is restarted by `systemctl restart`.";

/// Numbers of processors.
pub type CpuList = Arc<[usize]>;

fn cpu_list(word: &str) -> Result<CpuList, String> {
    let wrong = || format!("`{word}` is no list of processors; an example is 0-3,8");
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

    #[test]
    fn processors_are_listed_one_by_one_and_in_ranges() {
        assert_eq!(*cpu_list("0-3,8").unwrap(), [0, 1, 2, 3, 8]);
        for wrong in ["", "a", "3-1", "1-", "0-99999", "1,,2"] {
            assert!(cpu_list(wrong).is_err(), "{wrong}");
        }
    }
}
