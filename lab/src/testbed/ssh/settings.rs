//! The settings of a topology on a real machine: the undo of every change is registered before the change is made;
//! settings that are already right are left alone.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::hosts::LinkSpec;
use super::remote_host::RemoteHost;
use crate::fault::Fault;
use crate::host::{Command, Host};
use crate::testbed::{Tcp, TopologySpec, WAN};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

fn run_command(host: &RemoteHost, command: &Command) -> Result<String, Fault> {
    host.must(command, COMMAND_TIMEOUT)
}

/// Does something, and `undo` when the topology goes.
fn change(host: &RemoteHost, undo: &Command, command: &Command) -> Result<(), Fault> {
    host.on_cleanup(undo)?;
    run_command(host, command).map(drop)
}

/// Configures a device: up, with its address, MTU, offloads and coalescing.
pub(super) fn link(
    host: &RemoteHost,
    name: &str,
    link: &LinkSpec,
    spec: &TopologySpec,
) -> Result<(), Fault> {
    let device = &link.device;
    let folder = PathBuf::from("/sys/class/net").join(device);
    let here = is_up(host, device)
        .map_err(|fault| fault.during(&format!("{}: the device `{device}`", host.name())))?;
    // A device whose MTU changes may lose what it learnt of its neighbours, so that comes first.
    let mtu = host.read(&folder.join("mtu"))?;
    if mtu.trim() != spec.mtu.to_string() {
        let [earlier, wanted] = [mtu.trim(), &spec.mtu.to_string()]
            .map(|mtu| Command::line(&format!("ip link set {device} mtu {mtu}")));
        change(host, &earlier, &wanted)?;
    }
    if !here {
        let [down, up] =
            ["down", "up"].map(|word| Command::line(&format!("ip link set {device} {word}")));
        change(host, &down, &up)?;
    }
    address(host, link)?;
    if name == WAN && !spec.wire_offloads {
        offloads_off(host, device)?;
    }
    let waits = [
        ("gro_flush_timeout", spec.gro_flush_timeout_ns),
        (
            "napi_defer_hard_irqs",
            spec.napi_defer_hard_irqs.map(u64::from),
        ),
    ];
    waits
        .into_iter()
        .filter_map(|(file, value)| Some((folder.join(file), value?)))
        .try_for_each(|(path, value)| set(host, &path, &value.to_string()))
}

fn is_up(host: &RemoteHost, device: &str) -> Result<bool, Fault> {
    #[derive(Deserialize)]
    struct Device {
        flags: Vec<String>,
    }
    let said = run_command(host, &Command::line("ip -json link show dev").arg(device))?;
    let devices: Vec<Device> = serde_json::from_str(&said).unwrap_or_default();
    Ok(devices
        .iter()
        .any(|device| device.flags.iter().any(|flag| flag == "UP")))
}

fn address(host: &RemoteHost, link: &LinkSpec) -> Result<(), Fault> {
    let LinkSpec {
        device,
        address,
        prefix,
    } = link;
    let said = run_command(
        host,
        &Command::line("ip -4 -oneline address show dev").arg(device),
    )?;
    if said
        .split_whitespace()
        .any(|word| word.split('/').next() == Some(&address.to_string()))
    {
        return Ok(());
    }
    let [away, there] = ["del", "add"].map(|word| {
        Command::line(&format!(
            "ip address {word} {address}/{prefix} dev {device}"
        ))
    });
    change(host, &away, &there)
}

/// Adds a route. An existing one belongs to the user and stays.
pub(super) fn route(host: &RemoteHost, network: &str, next: Ipv4Addr) -> Result<(), Fault> {
    let said = run_command(host, &Command::line("ip -4 route show exact").arg(network))?;
    if said.split_whitespace().any(|word| word == next.to_string()) {
        return Ok(());
    }
    let [away, there] =
        ["del", "add"].map(|word| Command::line(&format!("ip route {word} {network} via {next}")));
    change(host, &away, &there)
}

/// Enables forwarding.
pub(super) fn forward(host: &RemoteHost) -> Result<(), Fault> {
    set(host, Path::new("/proc/sys/net/ipv4/ip_forward"), "1")
}

/// Options of TCP.
pub(super) fn tcp(options: &Tcp, host: &RemoteHost) -> Result<(), Fault> {
    options
        .settings()
        .into_iter()
        .try_for_each(|(name, value)| {
            set(host, &Path::new("/proc/sys/net/ipv4").join(name), &value)
        })
}

/// Writes a setting of the kernel.
fn set(host: &RemoteHost, path: &Path, value: &str) -> Result<(), Fault> {
    let earlier = host.read(path)?;
    let earlier: Vec<&str> = earlier.split_whitespace().collect();
    let earlier = earlier.join(" ");
    if earlier == value {
        return Ok(());
    }
    let write = |value: &str| {
        Command::line("sh -c")
            .arg("echo \"$1\" >\"$0\"")
            .arg(path)
            .arg(value)
    };
    change(host, &write(&earlier), &write(value))
}

/// Offloads by the names under which they are listed, and by those under which they are set.
const OFFLOADS: [(&str, &str); 6] = [
    ("tx-checksumming", "tx"),
    ("rx-checksumming", "rx"),
    ("scatter-gather", "sg"),
    ("tcp-segmentation-offload", "tso"),
    ("generic-segmentation-offload", "gso"),
    ("generic-receive-offload", "gro"),
];

fn offloads_off(host: &RemoteHost, device: &str) -> Result<(), Fault> {
    let listed = run_command(host, &Command::line("ethtool -k").arg(device))?;
    let on = enabled_offloads(&listed);
    if on.is_empty() {
        return Ok(());
    }
    let words = |value: &str| {
        let pairs: Vec<String> = on.iter().map(|name| format!("{name} {value}")).collect();
        Command::line(&format!("ethtool -K {device} {}", pairs.join(" ")))
    };
    change(host, &words("on"), &words("off"))
}

/// What `ethtool -k` lists as on and as changeable.
fn enabled_offloads(listed: &str) -> Vec<&'static str> {
    let on = |line: &str| {
        let (name, state) = line.trim().split_once(": ")?;
        let known = OFFLOADS.iter().find(|(listed, _)| *listed == name)?;
        (state == "on").then_some(known.1)
    };
    listed.lines().filter_map(on).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_offloads_that_are_on_and_not_fixed_are_touched() {
        let listed = "Features for eth1:\nrx-checksumming: on [fixed]\ntx-checksumming: on\n\ttx-checksum-ipv4: on\n\
                      scatter-gather: off\ntcp-segmentation-offload: on\n";
        assert_eq!(enabled_offloads(listed), ["tx", "tso"]);
    }
}
