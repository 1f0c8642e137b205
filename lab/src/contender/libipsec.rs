//! strongSwan with its kernel-libipsec plugin. One charon per gateway, each with its own `/run`, `/etc/strongswan.conf`
//! and `/etc/swanctl` by bind mounts, which is what its AppArmor profile on Debian allows. IKEv2 with a pre-shared key
//! sets up the tunnel; ESP is encapsulated in UDP.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::daemons::{Daemon, Daemons};
use super::{Contender, Protection, Tunnel, tun_device, version_of};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::gateway::Side;
use crate::host::{Command, Host, program};
use crate::suite::Suite;
use crate::testbed::{Addresses, Topology};

const CHARON: &str = "/usr/lib/ipsec/charon";
const PLUGIN: &str = "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so";
const REMEDY: &str = "apt-get install strongswan-charon strongswan-swanctl libcharon-extra-plugins \
                      libstrongswan-standard-plugins";
/// Loading, two round trips of IKE, a TUN device: well under a second, more on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// strongSwan kernel-libipsec with one suite.
pub struct KernelLibipsec {
    suite: &'static Suite,
    proposal: &'static str,
    id: String,
    label: String,
}

impl KernelLibipsec {
    /// `None` where strongSwan's user-space ESP does not know the suite.
    pub fn new(suite: &'static Suite) -> Option<KernelLibipsec> {
        Some(KernelLibipsec {
            suite,
            proposal: suite.strongswan?,
            id: format!("kernel-libipsec-{}", suite.name),
            label: format!("strongSwan kernel-libipsec, {}", suite.label),
        })
    }
}

impl Contender for KernelLibipsec {
    fn id(&self) -> &str {
        &self.id
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn factors(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("suite".into(), self.suite.name.into())])
    }

    fn protection(&self) -> Protection {
        if self.suite.hides() {
            Protection::Secret
        } else {
            Protection::Readable
        }
    }

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        let missing = [CHARON, PLUGIN]
            .into_iter()
            .find(|path| !Path::new(path).exists());
        match missing {
            Some(path) => Err(Absence::new(format!("{path} is not installed"), REMEDY)),
            None if program("swanctl").is_none() => {
                Err(Absence::new("swanctl is not installed", REMEDY))
            }
            None => tun_device(topology),
        }
    }

    fn version(&self, topology: &Topology) -> Option<(String, String)> {
        version_of(&*topology.left, Command::line(CHARON).arg("--version"))
    }

    fn up(&self, topology: &Topology) -> Result<Box<dyn Tunnel>, Fault> {
        let mut left = Charon::start(self, Side::Left, topology)?;
        let mut right = Charon::start(self, Side::Right, topology)?;
        left.load(topology)?;
        right.load(topology)?;
        left.initiate(topology).map_err(|fault| {
            fault.during(&format!("{}{}", left.last_message(), right.last_message()))
        })?;
        Ok(Box::new(Daemons([left.daemon, right.daemon])))
    }
}

struct Charon {
    daemon: Daemon,
    binds: Vec<(PathBuf, PathBuf)>,
}

impl Charon {
    fn start(contender: &KernelLibipsec, side: Side, topology: &Topology) -> Result<Charon, Fault> {
        let host = topology.gateway(side);
        let binds = contender.files(side, topology, host)?;
        let mut command = Command::line(CHARON);
        command.binds.clone_from(&binds);
        let process = host.start(&command)?;
        Ok(Charon {
            daemon: Daemon { side, process },
            binds,
        })
    }

    /// Loads connections and secrets once the daemon answers.
    fn load(&self, topology: &Topology) -> Result<(), Fault> {
        let started = Instant::now();
        loop {
            match self.swanctl("--load-all --noprompt", topology) {
                Ok(()) => return Ok(()),
                Err(Fault::Interrupted) => return Err(Fault::Interrupted),
                Err(fault) if started.elapsed() > START_TIMEOUT => return Err(fault),
                Err(_) => std::thread::sleep(Duration::from_millis(30)),
            }
        }
    }

    fn initiate(&self, topology: &Topology) -> Result<(), Fault> {
        self.swanctl("--initiate --child tunnel --timeout 8", topology)
    }

    /// What the daemon complained of, for the reader of a failure.
    fn last_message(&mut self) -> String {
        let said = self.daemon.process.output();
        let complaint = said
            .lines()
            .rfind(|line| line.contains("failed") || line.contains("error"));
        complaint.map_or_else(String::new, |line| {
            format!(
                "{} charon said `{}`; ",
                self.daemon.side.name(),
                line.trim()
            )
        })
    }

    fn swanctl(&self, arguments: &str, topology: &Topology) -> Result<(), Fault> {
        let mut command = Command::line(&format!("swanctl {arguments}"));
        command.binds.clone_from(&self.binds);
        topology
            .gateway(self.daemon.side)
            .must(&command, START_TIMEOUT)
            .map(drop)
    }
}

impl KernelLibipsec {
    /// Writes the files of one gateway; returns which path each is mounted over.
    fn files(
        &self,
        side: Side,
        topology: &Topology,
        host: &dyn Host,
    ) -> Result<Vec<(PathBuf, PathBuf)>, Fault> {
        let folder = format!("config/{}/{}", self.id, side.name());
        let daemon = host.write_file(&format!("{folder}/strongswan.conf"), STRONGSWAN_CONF)?;
        let connection = self.connection(side, &topology.addresses);
        let tunnel = host.write_file(&format!("{folder}/swanctl/swanctl.conf"), &connection)?;
        let swanctl = tunnel.parent().unwrap_or(&tunnel).to_owned();
        Ok(vec![
            (host.scratch()?, "/run".into()),
            (daemon, "/etc/strongswan.conf".into()),
            (swanctl, "/etc/swanctl".into()),
        ])
    }

    fn connection(&self, side: Side, map: &Addresses) -> String {
        let (own, other, own_network, other_network) = match side {
            Side::Left => (map.left, map.right, &map.left_network, &map.right_network),
            Side::Right => (map.right, map.left, &map.right_network, &map.left_network),
        };
        let proposal = self.proposal;
        format!(
            "connections {{
    lab {{
        version = 2
        local_addrs = {own}
        remote_addrs = {other}
        encap = yes
        proposals = aes128-sha256-x25519,aes128-sha256-modp2048
        local {{
            auth = psk
            id = {own}
        }}
        remote {{
            auth = psk
            id = {other}
        }}
        children {{
            tunnel {{
                local_ts = {own_network}
                remote_ts = {other_network}
                esp_proposals = {proposal}
            }}
        }}
    }}
}}
secrets {{
    ike-lab {{
        secret = \"made for one run in namespaces that are gone\"
    }}
}}
"
        )
    }
}

const STRONGSWAN_CONF: &str = "charon {
    load = random nonce openssl kdf hmac kernel-libipsec kernel-netlink socket-default vici updown pem pkcs1 pubkey
    threads = 16
    filelog {
        stderr {
            default = 1
        }
    }
}
";
