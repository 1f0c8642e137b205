//! A path whose MTU shrinks: a router in the middle of the wire, whose routes get a smaller MTU while packets pass.
//! Gateways do not notice it until it rejects a packet: it answers for the other gateway's address (proxy ARP). Packets
//! that are too large are handled by the kernel, as on any path.

use std::fs;
use std::time::Duration;

use super::namespaces::{Namespace, refused};
use super::{PathMtuChange, ScheduledChange};
use crate::fault::Fault;
use crate::host::{Command, Host};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// The names of its two interfaces, the left one first.
pub(super) const ROUTER_INTERFACES: [&str; 2] = ["one", "other"];
/// What is behind each of them: a gateway, and its network for those who send in clear.
const TARGETS: [(&str, &str); 2] = [("192.0.2.1", "10.1.0.0/24"), ("192.0.2.2", "10.2.0.0/24")];

/// Configures a host with both interfaces as a router.
pub(super) fn route(middle: &Namespace) -> Result<(), Fault> {
    let mut batch = String::from("link set lo up\n");
    for (place, (end, (gateway, network))) in ROUTER_INTERFACES.iter().zip(TARGETS).enumerate() {
        // Its own addresses are what its complaints come from.
        batch += &format!(
            "link set {end} up\naddress add 192.0.2.{}/32 dev {end}\nroute add {gateway}/32 dev {end}\n\
             route add {network} via {gateway} dev {end}\n",
            253 + place
        );
    }
    run_command(middle, Command::line("ip -batch -").input(batch))?;
    // The default delay of a proxy ARP reply is random and up to 0.8 s.
    let settings = [
        ("conf/one/proxy_arp", "1"),
        ("conf/other/proxy_arp", "1"),
        ("neigh/one/proxy_delay", "0"),
        ("neigh/other/proxy_delay", "0"),
        ("ip_forward", "1"),
    ];
    let write = || {
        settings
            .iter()
            .try_for_each(|(name, value)| fs::write(format!("/proc/sys/net/ipv4/{name}"), value))
    };
    middle
        .within(write)
        .map_err(|error| refused("configure the router in the wire", error))
}

/// What narrows it, when it is started.
pub(super) fn narrowing(path: PathMtuChange, middle: Namespace) -> Result<ScheduledChange, Fault> {
    if !path.answers {
        let silence = "table ip path { chain out { type filter hook output priority 0; \
                       icmp type destination-unreachable drop; }; }";
        run_command(&middle, Command::line("nft -f -").input(silence))?;
    }
    Ok(ScheduledChange {
        command: Command::line("sh -c").arg(script(path)),
        host: Box::new(middle),
    })
}

fn script(path: PathMtuChange) -> String {
    let mtu = path.mtu;
    let change = |(end, (gateway, network)): (&str, (&str, &str))| {
        format!(
            "ip route change {gateway}/32 dev {end} mtu {mtu} && \
             ip route change {network} via {gateway} dev {end} mtu {mtu}"
        )
    };
    let changes: Vec<String> = ROUTER_INTERFACES
        .into_iter()
        .zip(TARGETS)
        .map(change)
        .collect();
    format!("sleep {} && {}", path.after_s, changes.join(" && "))
}

fn run_command(host: &Namespace, command: Command) -> Result<(), Fault> {
    host.must(&command, COMMAND_TIMEOUT).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_narrow_after_the_same_time() {
        let path = PathMtuChange {
            mtu: 1300,
            after_s: 1.5,
            answers: true,
        };
        let said = script(path);
        assert!(said.starts_with("sleep 1.5 && "), "{said}");
        for change in [
            "192.0.2.1/32 dev one mtu 1300",
            "10.1.0.0/24 via 192.0.2.1 dev one mtu 1300",
            "192.0.2.2/32 dev other mtu 1300",
            "10.2.0.0/24 via 192.0.2.2 dev other mtu 1300",
        ] {
            assert!(
                said.contains(&format!("ip route change {change}")),
                "{said}"
            );
        }
    }
}
