//! A contender builds a tunnel, or nothing, between the two gateways of a testbed. One file each. A contender that is
//! not available reports why and how to install it, and the experiment continues without it.

mod boringtun;
mod daemons;
mod esplanade;
mod ipsec_config;
mod kernel_wireguard;
mod kernel_xfrm;
mod libipsec;
mod openvpn;
mod plain;
mod wireguard;
mod wireguard_go;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::absence::Absence;
use crate::capture::EspKey;
use crate::fault::Fault;
use crate::gateway::{Gateway, Side};
use crate::host::{Command, Host};
use crate::testbed::Topology;

pub use boringtun::BORINGTUN;
pub use esplanade::{Esplanade, FLAGS, FLAGS_OF_THREADS, Keying, RunOptions, cannot_negotiate};
pub use ipsec_config::{
    COMPRESSION_WORD, Combine, DEFAULT_REPLAY_WINDOW, Encapsulation, IpsecConfig, Mode,
};
pub use kernel_wireguard::KernelWireguard;
pub use kernel_xfrm::KernelXfrm;
pub use libipsec::KernelLibipsec;
pub use openvpn::OpenVpn;
pub use plain::Plain;
pub use wireguard::{Implementation, UserSpaceWireguard};
pub use wireguard_go::WIREGUARD_GO;

/// One way to carry packets from the client's network to the server's.
pub trait Contender {
    /// A name fit for files and records, as `esplanade-aes-128-gcm`.
    fn id(&self) -> &str;

    /// The name a reader sees, as `Esplanade, AES-128-GCM`.
    fn label(&self) -> &str;

    /// What distinguishes it from its neighbours, as `suite = aes-128-gcm`.
    fn factors(&self) -> BTreeMap<String, String>;

    /// The declared protection on the wire between the gateways, which the check verifies.
    fn protection(&self) -> Protection;

    /// Where the wire must be captured for this contender.
    fn capture_point(&self) -> CapturePoint {
        CapturePoint::Left
    }

    /// Whether it can come up on this testbed at all.
    fn presence(&self, topology: &Topology) -> Result<(), Absence>;

    /// The program that carries the packets and its version, for the record.
    fn version(&self, _topology: &Topology) -> Option<(String, String)> {
        None
    }

    /// Starts it. When this returns, packets can flow.
    fn up(&self, topology: &Topology) -> Result<Box<dyn Tunnel>, Fault>;
}

/// A contender that is up. Dropping it takes its processes away. The defaults fit a tunnel in the kernel that counts
/// nothing, has no keys to show and ends with the topology.
pub trait Tunnel {
    /// The processes that carry packets, for the meters. Empty where the kernel does the work.
    fn gateways(&self) -> Vec<Gateway> {
        Vec::new()
    }

    /// What the contender itself counted as dropped, by reason, summed over both gateways. `None`: it does not count,
    /// and what is lost shows at interfaces and sockets.
    fn drops(&self, _topology: &Topology) -> Result<Option<BTreeMap<String, u64>>, Fault> {
        Ok(None)
    }

    /// Whatever else it counts of itself, under dotted names with the unit last, as `rekeys_count`.
    fn counts(&self) -> Result<BTreeMap<String, f64>, Fault> {
        Ok(BTreeMap::new())
    }

    /// The keys with which a packet analyser can read the wire, where the lab knows them.
    fn keys(&self) -> Vec<EspKey> {
        Vec::new()
    }

    /// Takes it down in an orderly way.
    fn down(&mut self, _topology: &Topology) -> Result<(), Fault> {
        Ok(())
    }
}

/// Where the wire between the gateways is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapturePoint {
    /// At the left gateway, both directions. This also captures frames that a program sends past the kernel, because
    /// they are seen when they arrive.
    Left,
    /// At the sender's gateway: kernel IPsec shows each packet a second time on the receiver's side, as it leaves the
    /// tunnel.
    Sender,
}

/// The declared protection of a contender on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Plain packets: what is sent can be read on the wire. The positive control of the canary.
    Clear,
    /// Encapsulated but readable: a tunnel without encryption.
    Readable,
    /// Nothing of what is sent may be readable on the wire.
    Secret,
}

/// Every user-space tunnel needs the TUN device, on both gateways.
fn tun_device(topology: &Topology) -> Result<(), Absence> {
    const DEVICE: &str = "/dev/net/tun";
    let open = Command::line("sh -c").arg(format!("exec 3<>{DEVICE}"));
    for side in Side::BOTH {
        if let Err(fault) = topology.gateway(side).must(&open, Duration::from_secs(3)) {
            return Err(Absence::new(
                format!("{DEVICE} cannot be opened ({fault})"),
                "modprobe tun; chmod 0666 /dev/net/tun (as root); in a container: --device /dev/net/tun",
            ));
        }
    }
    Ok(())
}

/// The program's name and the version that it prints.
fn version_of(host: &dyn Host, command: Command) -> Option<(String, String)> {
    let answer = host.must(&command, Duration::from_secs(3)).ok()?;
    let name = Path::new(&command.program)
        .file_name()?
        .to_string_lossy()
        .into_owned();
    Some((name, answer.lines().next()?.trim().to_owned()))
}
