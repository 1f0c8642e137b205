//! The owner of a sample. A process's code and system calls are its own. Received packets are processed in softirqs,
//! charged to whichever process was running; there the functions on the stack decide:
//!
//! ```text
//! softirq ─┬─ … ip_forward … xfrm … wg … tun_net_xmit … udp of a tunnel   forwarding: the gateways' work in the kernel
//!          ├─ … tcp_v4_rcv …                                              endpoints
//!          └─ neither                                                     kernel: not attributed (links, backlogs)
//! ```

use std::collections::BTreeMap;

use super::samples::{Sample, UNNAMED, read};
use super::work_kind::work_kind;
use crate::gateway::Side;
use crate::meter::Readings;

/// Whose work it can be, each with its name for readers.
pub const OWNERS: [(&str, &str); 6] = [
    ("left", "left gateway"),
    ("right", "right gateway"),
    ("forwarding", "forwarding in the kernel"),
    ("endpoints", "endpoints"),
    ("kernel", "kernel, not attributed"),
    ("others", "other programs"),
];
const IDLE: &str = "idle";

/// Who is who on a machine.
#[derive(Debug, Default)]
pub(crate) struct ProcessRoles {
    /// The processes that carry packets.
    pub gateways: Vec<(i64, Side)>,
    /// What stands in a wire.
    pub machinery: Vec<i64>,
    /// Whether the tunnel is a process at all: then datagrams that arrive are its, and else those of an endpoint.
    pub carried_by_processes: bool,
}

/// Programs that fill or empty a tunnel, by their names.
const ENDPOINTS: [&str; 4] = ["iperf3", "esplanade-lab", "netperf", "netserver"];

/// Functions in which a processor waits for work.
const WAITING: [&str; 9] = [
    "pv_native_safe_halt",
    "native_safe_halt",
    "default_idle",
    "default_idle_call",
    "acpi_idle_do_entry",
    "intel_idle",
    "mwait_idle",
    "cpuidle_enter_state",
    "do_idle",
];
/// Work for an endpoint, and work of a gateway, by the functions of the kernel that do it.
const ARRIVES: [&str; 5] = [
    "tcp_v4_rcv",
    "tcp_v6_rcv",
    "tcp_write_timer",
    "tcp_tsq",
    "tcp_delack",
];
const FORWARDS: [&str; 8] = [
    "ip_forward",
    "ip6_forward",
    "xfrm",
    "esp",
    "wg_",
    "tun_net_xmit",
    "br_forward",
    "br_handle_frame",
];
const DATAGRAMS: [&str; 8] = [
    "udp_queue_rcv",
    "udp_unicast_rcv",
    "__udp4_lib_rcv",
    "__udp6_lib_rcv",
    "raw_local_deliver",
    "packet_rcv",
    "tpacket_rcv",
    "__xsk_",
];

/// Which of [`OWNERS`], or [`IDLE`].
fn owner(sample: &Sample<'_>, roles: &ProcessRoles) -> &'static str {
    if let Some(frames) = sample.in_softirq() {
        return in_softirq(frames, roles);
    }
    let gateway = roles.gateways.iter().find(|(pid, _)| *pid == sample.pid);
    if let Some((_, side)) = gateway {
        return side.name();
    }
    if sample.pid == 0 {
        return of_no_process(sample);
    }
    if ENDPOINTS.contains(&sample.comm) && !roles.machinery.contains(&sample.pid) {
        "endpoints"
    } else {
        "others"
    }
}

/// The innermost known function decides: packets from a tunnel belong to the endpoint in the end.
fn in_softirq(frames: &[&str], roles: &ProcessRoles) -> &'static str {
    let begins = |name: &str, table: &[&str]| table.iter().any(|one| name.starts_with(one));
    let told = frames.iter().find_map(|name| match *name {
        name if begins(name, &ARRIVES) => Some("endpoints"),
        name if begins(name, &FORWARDS) => Some("forwarding"),
        name if begins(name, &DATAGRAMS) => Some(if roles.carried_by_processes {
            "forwarding"
        } else {
            "endpoints"
        }),
        _ => None,
    });
    told.unwrap_or("kernel")
}

/// Idle, a thread of the kernel, or a process that this namespace does not show.
fn of_no_process(sample: &Sample<'_>) -> &'static str {
    let has = |wanted: &[&str]| sample.kernel.iter().any(|name| wanted.contains(name));
    match sample.kernel.first() {
        Some(leaf) if WAITING.contains(leaf) => IDLE,
        Some(_) if has(&["ret_from_fork", "kthread", "do_idle", "cpu_startup_entry"]) => "kernel",
        _ => "others",
    }
}

/// Samples by whose they are and what they did.
#[derive(Debug, Default)]
pub(super) struct SampleCounts {
    samples: u64,
    unnamed: u64,
    shares: BTreeMap<(&'static str, &'static str), u64>,
    /// By machine and processor.
    processors: BTreeMap<(usize, usize), BTreeMap<&'static str, u64>>,
    stacks: BTreeMap<String, u64>,
}

impl SampleCounts {
    /// Adds the samples of one machine.
    pub(super) fn add(&mut self, script: &str, roles: &ProcessRoles, machine: usize) {
        for sample in read(script) {
            let (who, place) = (owner(&sample, roles), work_kind(&sample));
            self.samples += 1;
            self.unnamed += u64::from(sample.kernel.first().is_some_and(|name| *name == UNNAMED));
            let processor = self.processors.entry((machine, sample.cpu)).or_default();
            *processor.entry(who).or_default() += 1;
            if who != IDLE {
                *self.shares.entry((who, place)).or_default() += 1;
                *self.stacks.entry(folded(who, &sample)).or_default() += 1;
            }
        }
    }

    /// Shares of everything that was sampled. Nothing at all where nothing was.
    pub(super) fn readings(&self) -> Readings {
        let mut readings = Readings::from([("profile.samples_count".into(), self.samples as f64)]);
        if self.samples == 0 {
            return readings;
        }
        let share = |count: u64| count as f64 / self.samples as f64;
        let busy: u64 = self.shares.values().sum();
        readings.insert("profile.idle_ratio".into(), share(self.samples - busy));
        readings.insert("profile.unnamed_ratio".into(), share(self.unnamed));
        for ((who, place), count) in &self.shares {
            readings.insert(format!("profile.{who}.{place}_ratio"), share(*count));
        }
        readings.extend(self.busiest());
        readings
    }

    /// The processor that was idle least, and who kept it busy.
    fn busiest(&self) -> Readings {
        let idle = |by: &BTreeMap<&str, u64>| {
            by.get(IDLE).copied().unwrap_or(0) as f64 / by.values().sum::<u64>().max(1) as f64
        };
        let found = self
            .processors
            .values()
            .min_by(|one, other| idle(one).total_cmp(&idle(other)));
        let Some(by) = found else {
            return Readings::new();
        };
        let all = by.values().sum::<u64>().max(1) as f64;
        by.iter()
            .map(|(who, count)| (format!("profile.busiest.{who}_ratio"), *count as f64 / all))
            .collect()
    }

    /// A line for each stack, the outermost first, with its number of samples: what flame graphs are drawn from.
    pub(super) fn folded(&self) -> String {
        let lines = self.stacks.iter();
        lines
            .map(|(stack, count)| format!("{stack} {count}\n"))
            .collect()
    }
}

/// Programs are built without frame pointers, mostly: of theirs only the innermost function is reliable.
fn folded(who: &str, sample: &Sample<'_>) -> String {
    let user = sample.user.first().map(|(symbol, _)| *symbol);
    let frames = user.into_iter().chain(sample.kernel.iter().rev().copied());
    let mut stack = format!("{who};{}", sample.comm.replace(';', ":"));
    for frame in frames.filter(|name| *name != UNNAMED) {
        stack.push(';');
        stack += &frame.replace(';', ":");
    }
    stack
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles() -> ProcessRoles {
        ProcessRoles {
            gateways: vec![(7, Side::Left), (8, Side::Right)],
            machinery: vec![9],
            carried_by_processes: true,
        }
    }

    fn whose(comm: &str, pid: i64, kernel: &[&'static str]) -> &'static str {
        let sample = Sample {
            comm,
            pid,
            kernel: kernel.to_vec(),
            ..Sample::default()
        };
        owner(&sample, &roles())
    }

    #[test]
    fn a_process_owns_its_code_and_its_calls() {
        assert_eq!(whose("tx", 7, &["copy_from_user", "do_syscall_64"]), "left");
        assert_eq!(whose("rx", 8, &[]), "right");
        assert_eq!(whose("iperf3", 20, &["tcp_sendmsg"]), "endpoints");
        assert_eq!(whose("esplanade-lab", 9, &[]), "others");
        assert_eq!(whose("rustc", 30, &[]), "others");
        assert_eq!(whose("rustc", 0, &["do_syscall_64"]), "others");
    }

    #[test]
    fn time_in_a_softirq_is_attributed_by_its_functions_and_not_by_the_interrupted_task() {
        let softirq = |kernel: &[&'static str]| {
            let all = [kernel, &["net_rx_action", "handle_softirqs", "tcp_sendmsg"]].concat();
            whose("iperf3", 20, &all)
        };
        assert_eq!(
            softirq(&["veth_xmit", "ip_forward", "ip_rcv"]),
            "forwarding"
        );
        assert_eq!(softirq(&["tcp_rcv_established", "tcp_v4_rcv"]), "endpoints");
        assert_eq!(softirq(&["tcp_v4_rcv", "xfrm_input"]), "endpoints");
        assert_eq!(
            softirq(&["skb_release_data", "udp_queue_rcv_skb"]),
            "forwarding"
        );
        assert_eq!(softirq(&["process_backlog"]), "kernel");
        let plain = ProcessRoles::default();
        assert_eq!(in_softirq(&["udp_queue_rcv_skb"], &plain), "endpoints");
    }

    #[test]
    fn waiting_is_idle_and_threads_of_the_kernel_are_attributed_to_no_program() {
        let idle = ["default_idle", "do_idle", "cpu_startup_entry"];
        assert_eq!(whose("swapper", 0, &idle), IDLE);
        assert_eq!(whose("swapper", 0, &["schedule_idle", "do_idle"]), "kernel");
        let thread = ["rcu_do_batch", "kthread", "ret_from_fork"];
        assert_eq!(whose("swapper", 0, &thread), "kernel");
    }

    #[test]
    fn shares_add_up_and_the_busiest_processor_is_named() {
        let script = "tx 7/7 [000] \n\tffffffff81000001 _copy_from_iter ([kernel.kallsyms])\n\n\
                      tx 7/7 [000] \n\t5555 multibuffer::gcm::seal (/usr/bin/esplanade)\n\n\
                      iperf3 20/20 [001] \n\tffffffff81000001 tcp_sendmsg ([kernel.kallsyms])\n\n\
                      swapper 0/0 [001] \n\tffffffff81000002 default_idle ([kernel.kallsyms])\n\n";
        let mut counts = SampleCounts::default();
        counts.add(script, &roles(), 0);
        let wanted = [
            ("profile.busiest.left_ratio", 1.0),
            ("profile.endpoints.network_ratio", 0.25),
            ("profile.idle_ratio", 0.25),
            ("profile.left.cipher_ratio", 0.25),
            ("profile.left.copies_ratio", 0.25),
            ("profile.samples_count", 4.0),
            ("profile.unnamed_ratio", 0.0),
        ];
        assert_eq!(
            counts.readings(),
            wanted.map(|(name, value)| (name.to_owned(), value)).into()
        );
        assert_eq!(
            counts.folded(),
            "endpoints;iperf3;tcp_sendmsg 1\nleft;tx;_copy_from_iter 1\nleft;tx;multibuffer::gcm::seal 1\n"
        );
    }

    #[test]
    fn no_sample_is_no_share() {
        assert_eq!(SampleCounts::default().readings().len(), 1);
    }
}
