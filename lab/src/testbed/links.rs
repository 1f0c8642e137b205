//! The settings of links and hosts in a topology: rates, offloads, coalescing, TCP options, the impairment box.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::isolate::{done, mount};
use super::namespaces::{Namespace, refused};
use super::{Impairment, LAN, Layout, Receiving, Shape, Tcp, TopologySpec, WAN};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::{Command, Host, Process};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Frame check sequence, preamble and gap: what a link carries beside what the kernel counts, which is the frame from
/// its Ethernet header on.
const UNCOUNTED_FRAME_BYTES: u32 = 4 + 8 + 12;
/// The least that a frame takes of a link, however short its packet is: 46 bytes, the header, and that.
const MIN_WIRE_BYTES: u32 = 46 + 14 + UNCOUNTED_FRAME_BYTES;
/// A bucket smaller than a few frames starves between two timer ticks; a larger one than this is no link any more.
const BURST_RANGE_BYTES: (f64, f64) = (10_000.0, 256_000.0);

fn run_command(host: &Namespace, command: Command) -> Result<(), Fault> {
    host.must(&command, COMMAND_TIMEOUT).map(drop)
}

/// Offloads and rate of a gateway's end of the wire. An impairment box handles frames one by one, so offloads are off
/// there, too.
pub(super) fn wire(spec: &TopologySpec, host: &Namespace) -> Result<(), Fault> {
    if !spec.wire_offloads || spec.impairment.is_some() {
        offloads_off(host, WAN)?;
    }
    match &spec.shape {
        Some(shape) if !in_front(spec) => {
            run_command(host, Command::line(&shaping(WAN, shape, spec.mtu)))
        }
        _ => Ok(()),
    }
}

/// Whether a link is shaped in front of the tunnel. Two hosts alone have nothing in front of it.
fn in_front(spec: &TopologySpec) -> bool {
    spec.layout == Layout::Gateways && spec.shape.is_some_and(|shape| shape.in_front)
}

/// The rate of an end's link to a gateway, at either of its ends, where that link is shaped and not the wire.
pub(super) fn before_tunnel(spec: &TopologySpec, host: &Namespace) -> Result<(), Fault> {
    match &spec.shape {
        Some(shape) if in_front(spec) => {
            offloads_off(host, LAN)?;
            run_command(host, Command::line(&shaping(LAN, shape, spec.mtu)))
        }
        _ => Ok(()),
    }
}

fn offloads_off(host: &Namespace, interface: &str) -> Result<(), Fault> {
    run_command(
        host,
        Command::line(&format!(
            "ethtool -K {interface} tx off rx off sg off tso off gso off gro off"
        )),
    )
}

/// A token bucket whose every frame costs what it costs on a link. The enormous peak rate with its one-frame bucket
/// makes the kernel cut super-frames *before* it counts: otherwise `overhead` would be paid once for dozens of frames.
fn shaping(device: &str, shape: &Shape, mtu: u32) -> String {
    let rate = shape.bits_per_second;
    let usual = (rate / 8.0 * 2e-3).clamp(BURST_RANGE_BYTES.0, BURST_RANGE_BYTES.1);
    let frames = f64::from(3 * (mtu + 14 + UNCOUNTED_FRAME_BYTES));
    let burst = shape.burst_bytes.map_or(usual.max(frames), f64::from);
    let latency = shape.latency_ms.unwrap_or(50.0);
    let frame = mtu + 14 + UNCOUNTED_FRAME_BYTES;
    format!(
        "tc qdisc add dev {device} root tbf rate {rate:.0}bit burst {burst:.0} latency {latency}ms \
         peakrate 1000gbit mtu {frame} overhead {UNCOUNTED_FRAME_BYTES} mpu {MIN_WIRE_BYTES}"
    )
}

/// Options of TCP in a namespace.
pub(super) fn tcp(options: &Tcp, host: &Namespace) -> Result<(), Fault> {
    for (name, value) in options.settings() {
        let path = PathBuf::from("/proc/sys/net/ipv4").join(&name);
        host.within(|| std::fs::write(&path, &value))
            .map_err(|error| refused(&format!("set {name} to {value}"), error))?;
    }
    Ok(())
}

impl Tcp {
    /// What is written where, below `/proc/sys/net/ipv4`.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let flag = |name: &str, value: Option<bool>| {
            value.map(|value| (format!("tcp_{name}"), u8::from(value).to_string()))
        };
        let buffer = |name: &str| {
            let sizes = match (self.buffers, self.buffer_bytes) {
                (Some([least, usual, most]), _) => format!("{least} {usual} {most}"),
                (None, Some(most)) => format!("4096 {} {most}", most.min(131_072)),
                (None, None) => return None,
            };
            Some((format!("tcp_{name}"), sizes))
        };
        let settings = [
            flag("timestamps", self.timestamps),
            flag("window_scaling", self.window_scaling),
            flag("sack", self.sack),
            buffer("rmem"),
            buffer("wmem"),
        ];
        settings.into_iter().flatten().collect()
    }
}

/// How a gateway takes packets in.
pub(super) fn receive(
    asked: &Receiving,
    host: &Namespace,
    interfaces: &[&str],
) -> Result<(), Fault> {
    if let Some(on) = asked.early_demux {
        let path = "/proc/sys/net/ipv4/ip_early_demux";
        host.within(|| std::fs::write(path, u8::from(on).to_string()))
            .map_err(|error| refused("set ip_early_demux", error))?;
    }
    let features = [
        ("rx-udp-gro-forwarding", asked.udp_gro_forwarding),
        ("rx-gro-list", asked.gro_list),
    ];
    for (name, value) in features {
        let Some(on) = value else { continue };
        let word = if on { "on" } else { "off" };
        for interface in interfaces {
            // Both are kinds of receive coalescing, which virtual links begin without.
            let gro = if on { " gro on" } else { "" };
            let line = format!("ethtool -K {interface}{gro} {name} {word}");
            run_command(host, Command::line(&line))?;
        }
    }
    match &asked.steered_to {
        Some(list) => set_in_sys(host, interfaces, "queues/rx-0/rps_cpus", &mask(list)),
        None => Ok(()),
    }
}

/// A list of which this machine lacks a processor would stand for fewer than it names.
pub(super) fn processors_exist(list: &str) -> Result<(), Absence> {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let named = list
        .split([',', '-'])
        .filter_map(|one| one.parse::<usize>().ok());
    match named.max() {
        Some(highest) if highest >= available => Err(Absence::new(
            format!("this machine has {available} processors, none has the number {highest}"),
            "run it on a machine with more processors",
        )),
        _ => Ok(()),
    }
}

/// A list of processors such as `0-3,8` as the kernel writes sets: hexadecimal words of 32 bits, the highest first.
fn mask(list: &str) -> String {
    let number = |text: &str| text.parse::<usize>().unwrap_or(0);
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(part)..=number(part),
    };
    let mut words = vec![0_u32];
    for processor in list.split(',').flat_map(range) {
        if words.len() <= processor / 32 {
            words.resize(processor / 32 + 1, 0);
        }
        words[processor / 32] |= 1 << (processor % 32);
    }
    let words: Vec<String> = words
        .iter()
        .rev()
        .map(|word| format!("{word:08x}"))
        .collect();
    words.join(",")
}

/// How long coalescing may hold packets back, on each of these interfaces.
pub(super) fn coalesce(
    spec: &TopologySpec,
    host: &Namespace,
    interfaces: &[&str],
) -> Result<(), Fault> {
    let settings = [
        ("gro_flush_timeout", spec.gro_flush_timeout_ns),
        (
            "napi_defer_hard_irqs",
            spec.napi_defer_hard_irqs.map(u64::from),
        ),
    ];
    for (name, value) in settings {
        let Some(value) = value else { continue };
        set_in_sys(host, interfaces, name, &value.to_string())?;
    }
    Ok(())
}

/// Settings that live in `/sys`: it shows the interfaces of the namespace it was mounted in, so one is mounted for a
/// moment.
fn set_in_sys(host: &Namespace, interfaces: &[&str], name: &str, value: &str) -> Result<(), Fault> {
    let write = || {
        // SAFETY: unshare moves this thread only, which is gone when this closure returns.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        mount("none", "/sys", "sysfs", 0, "")?;
        interfaces.iter().try_for_each(|interface| {
            std::fs::write(format!("/sys/class/net/{interface}/{name}"), value)
        })
    };
    host.within(write)
        .map_err(|error: io::Error| refused(&format!("set {name} to {value}"), error))
}

/// Starts the box between the interfaces `one` and `other` of its host, and waits until it carries.
pub(super) fn impair(middle: &Namespace, asked: &Impairment) -> Result<Box<dyn Process>, Fault> {
    for interface in ["one", "other"] {
        offloads_off(middle, interface)?;
        run_command(
            middle,
            Command::line(&format!("ip link set {interface} promisc on up")),
        )?;
    }
    let words = [
        ("--delay-ms", asked.delay_ms),
        ("--loss", asked.loss),
        ("--duplicate", asked.duplicate),
        ("--reorder", asked.reorder),
    ];
    let mut command = Command::tool(&asked.program, "impair")
        .arg("one")
        .arg("other");
    for (word, value) in words {
        command = command.arg(word).arg(value.to_string());
    }
    let mut process = middle.start(&command.arg("--seed").arg(asked.seed.to_string()))?;
    let started = std::time::Instant::now();
    while !process.output().contains("ready") {
        if let Some(code) = process.ended() {
            let said = process.output();
            return Err(Fault::failed(format!(
                "the impairment box ended with {code}: {}",
                said.trim()
            )));
        }
        if started.elapsed() > COMMAND_TIMEOUT {
            return Err(Fault::failed("the impairment box did not become ready"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shaped_link_counts_its_framing_and_keeps_a_usable_bucket() {
        let shape = |bits_per_second| Shape {
            bits_per_second,
            burst_bytes: None,
            latency_ms: None,
            in_front: false,
        };
        let gigabit = shaping(WAN, &shape(1e9), 1500);
        assert!(
            gigabit.contains("rate 1000000000bit burst 250000 latency 50ms"),
            "{gigabit}"
        );
        assert!(
            gigabit.ends_with("mtu 1538 overhead 24 mpu 84"),
            "{gigabit}"
        );
        assert!(shaping(WAN, &shape(1e6), 1500).contains("burst 10000 "));
        assert!(shaping(WAN, &shape(1e6), 9000).contains("burst 27114 "));
    }

    #[test]
    fn a_processor_that_this_machine_lacks_is_named() {
        assert_eq!(processors_exist("0"), Ok(()));
        let said = processors_exist("0-4095").unwrap_err().why;
        assert!(said.contains("none has the number 4095"), "{said}");
    }

    #[test]
    fn a_list_of_processors_becomes_the_mask_that_the_kernel_reads() {
        assert_eq!(mask("0-1"), "00000003");
        assert_eq!(mask("0,2-3,33"), "00000002,0000000d");
    }
}
