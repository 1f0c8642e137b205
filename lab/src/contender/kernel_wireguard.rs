//! WireGuard in the kernel. It has no process to start: a link of its own kind, configured by `wg`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Contender, Protection, Tunnel};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::gateway::Side;
use crate::host::{Command, program};
use crate::testbed::Topology;

/// The kernel's WireGuard.
pub struct KernelWireguard;

const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
const INTERFACE: &str = "wg0";

impl Contender for KernelWireguard {
    fn id(&self) -> &str {
        "kernel-wireguard"
    }

    fn label(&self) -> &str {
        "WireGuard in the kernel"
    }

    fn factors(&self) -> BTreeMap<String, String> {
        super::wireguard::only_suite()
    }

    fn protection(&self) -> Protection {
        Protection::Secret
    }

    /// Checked by a trial: a link of this kind is created and deleted again.
    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        let made = ip(topology, Side::Left, "link add name probe type wireguard");
        let gone = made.and_then(|()| ip(topology, Side::Left, "link delete probe"));
        if let Err(fault) = gone {
            return Err(Absence::new(
                format!("this kernel has no WireGuard ({fault})"),
                "a kernel with CONFIG_WIREGUARD: modprobe wireguard",
            ));
        }
        match program("wg") {
            Some(_) => Ok(()),
            None => Err(Absence::new(
                "wg is not installed",
                "apt-get install wireguard-tools",
            )),
        }
    }

    fn up(&self, topology: &Topology) -> Result<Box<dyn Tunnel>, Fault> {
        for side in Side::BOTH {
            ip(
                topology,
                side,
                &format!("link add name {INTERFACE} type wireguard"),
            )?;
            let host = topology.gateway(side);
            let text = super::wireguard::tool_configuration(side, &topology.addresses);
            let file = host.write_file(
                &format!("config/kernel-wireguard/{}.conf", side.name()),
                &text,
            )?;
            let set = Command::line(&format!("wg setconf {INTERFACE}")).arg(&file);
            host.must(&set, COMMAND_TIMEOUT)?;
            super::wireguard::route_into_tunnel(host, side, topology)?;
        }
        Ok(Box::new(Links))
    }
}

fn ip(topology: &Topology, side: Side, arguments: &str) -> Result<(), Fault> {
    let command = Command::line(&format!("ip {arguments}"));
    topology
        .gateway(side)
        .must(&command, COMMAND_TIMEOUT)
        .map(drop)
}

/// The links go with the topology.
struct Links;

impl Tunnel for Links {}
