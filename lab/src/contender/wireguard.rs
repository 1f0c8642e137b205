//! What the WireGuard contenders share: two programs, each with a TUN device and a control socket, their configuration,
//! and addresses and routes by `ip`. The tool `wg` is not needed: the control protocol of user-space WireGuard is lines
//! of `name=value`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::daemons::{Daemon, Daemons};
use super::{Contender, Protection, Tunnel, tun_device, version_of};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::gateway::Side;
use crate::host::{Command, Host, Process};
use crate::ideal::WIREGUARD_OVERHEAD_BYTES;
use crate::testbed::{Addresses, Topology};

/// Key pairs made for namespaces that are gone when a run ends: `(private, public)` of left and right.
const KEYS: [(&str, &str); 2] = [
    (
        "1ee6f2645fec8e75e3c22b633e314d8a003b7f8762d38c7fc5310ba0da4e0905",
        "7894f443312fbddca16b1408664f6a13a7353cec45bd10c13c804f43b94bd906",
    ),
    (
        "33f21cbb295c9854242bbc6e81c1384bf2e02481772f5d95fe3b6fc8d110ae02",
        "b86b6b0250afa5653c1096b010d8657f8999640250a8ca0b961fe39420a9616a",
    ),
];
/// WireGuard's usual port.
const PORT: u16 = 51_820;
/// The tunnel's interface on both gateways.
pub(super) const INTERFACE: &str = "wg0";
/// Opening a TUN device and a socket takes milliseconds; a busy machine gets more.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A user-space WireGuard program.
pub struct Implementation {
    /// Its id and label.
    pub name: &'static str,
    /// What the program may be called, the usual name first.
    pub programs: &'static [&'static str],
    /// Where its language's tools install it in the user's home.
    pub home_folder: &'static str,
    /// How to get it.
    pub remedy: &'static str,
    /// What keeps it in the foreground, before the name of the interface.
    pub foreground: &'static [&'static str],
}

/// One of them as a contender. It counts nothing by reason; what it loses shows at interfaces and sockets.
pub struct UserSpaceWireguard {
    implementation: &'static Implementation,
    program: Option<PathBuf>,
    lab: PathBuf,
}

impl UserSpaceWireguard {
    /// Looks for the program. `lab` is `esplanade-lab`.
    pub fn find(implementation: &'static Implementation, lab: &Path) -> UserSpaceWireguard {
        UserSpaceWireguard {
            implementation,
            program: installed(implementation.programs, implementation.home_folder),
            lab: lab.to_owned(),
        }
    }
}

impl Contender for UserSpaceWireguard {
    fn id(&self) -> &str {
        self.implementation.name
    }

    fn label(&self) -> &str {
        self.implementation.name
    }

    fn factors(&self) -> BTreeMap<String, String> {
        only_suite()
    }

    fn protection(&self) -> Protection {
        Protection::Secret
    }

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        match self.program {
            Some(_) => tun_device(topology),
            None => Err(Absence::new(
                format!(
                    "{} is neither in PATH nor in ~/{}",
                    self.implementation.programs[0], self.implementation.home_folder
                ),
                self.implementation.remedy,
            )),
        }
    }

    fn version(&self, topology: &Topology) -> Option<(String, String)> {
        let asked = Command::line("").program(self.program.as_ref()?);
        let (_, version) = version_of(&*topology.left, asked.arg("--version"))?;
        Some((self.implementation.name.into(), version))
    }

    /// Starts it on both gateways, configures both through their control sockets (by a tool of `lab`, which works on
    /// any host) and routes the networks into the tunnel.
    fn up(&self, topology: &Topology) -> Result<Box<dyn Tunnel>, Fault> {
        let usual = || self.implementation.programs[0].into();
        let mut command = Command::line("").program(&self.program.clone().unwrap_or_else(usual));
        for word in self.implementation.foreground {
            command = command.arg(word);
        }
        let command = command.arg(INTERFACE);
        let left = start(&command, &self.lab, Side::Left, topology)?;
        let right = start(&command, &self.lab, Side::Right, topology)?;
        Ok(Box::new(Daemons([left, right])))
    }
}

/// WireGuard has one suite.
pub(super) fn only_suite() -> BTreeMap<String, String> {
    BTreeMap::from([("suite".into(), "chacha20-poly1305".into())])
}

fn start(command: &Command, lab: &Path, side: Side, topology: &Topology) -> Result<Daemon, Fault> {
    let host = topology.gateway(side);
    let run = host.scratch()?;
    let mut command = command.clone();
    command.binds.push((run.clone(), "/run".into()));
    let mut process = host.start(&command)?;
    let socket = run.join(format!("wireguard/{INTERFACE}.sock"));
    configure(
        host,
        lab,
        &socket,
        &configuration(side, &topology.addresses),
        &mut *process,
    )?;
    route_into_tunnel(host, side, topology)?;
    Ok(Daemon { side, process })
}

/// The control protocol's answer ends with `errno=0` when all of it was taken.
fn configure(
    host: &dyn Host,
    lab: &Path,
    socket: &Path,
    text: &str,
    process: &mut dyn Process,
) -> Result<(), Fault> {
    let ask = Command::tool(lab, "ask-socket").arg(socket).input(text);
    let started = Instant::now();
    loop {
        if let Some(code) = process.ended() {
            let said = process.output();
            return Err(Fault::failed(format!(
                "it ended with {code}: {}",
                said.trim()
            )));
        }
        let finished = host.run(&ask, Duration::from_secs(5))?;
        match finished.code {
            0 if finished.stdout.lines().any(|line| line == "errno=0") => return Ok(()),
            0 => {
                let answer = finished.stdout.trim();
                return Err(Fault::failed(format!(
                    "it rejected its configuration: {answer}"
                )));
            }
            _ if started.elapsed() > START_TIMEOUT => return finished.success(&ask).map(drop),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn configuration(side: Side, map: &Addresses) -> String {
    let (own, other, endpoint, network) = ends(side, map);
    format!(
        "set=1\nprivate_key={own}\nlisten_port={PORT}\nreplace_peers=true\npublic_key={other}\n\
         endpoint={endpoint}\nreplace_allowed_ips=true\nallowed_ip={network}\n\n"
    )
}

/// The same for the kernel's WireGuard, as `wg setconf` reads it: keys in base 64.
pub(super) fn tool_configuration(side: Side, map: &Addresses) -> String {
    let (own, other, endpoint, network) = ends(side, map);
    format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {PORT}\n[Peer]\nPublicKey = {}\nEndpoint = {endpoint}\n\
         AllowedIPs = {network}\n",
        base64(own),
        base64(other)
    )
}

fn ends(side: Side, map: &Addresses) -> (&'static str, &'static str, SocketAddr, &str) {
    let at = |address| SocketAddr::new(address, PORT);
    match side {
        Side::Left => (KEYS[0].0, KEYS[1].1, at(map.right), &map.right_network),
        Side::Right => (KEYS[1].0, KEYS[0].1, at(map.left), &map.left_network),
    }
}

/// RFC 4648 4, of a key in hexadecimal.
fn base64(hex: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = (0..hex.len() / 2)
        .filter_map(|place| u8::from_str_radix(hex.get(2 * place..2 * place + 2)?, 16).ok())
        .collect();
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, place| {
            bits << 8 | u32::from(three.get(place).copied().unwrap_or(0))
        });
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= three.len() {
                letter.into()
            } else {
                '='
            });
        }
    }
    out
}

/// Switches the interface on and leads the other side's network into it.
pub(super) fn route_into_tunnel(
    host: &dyn Host,
    side: Side,
    topology: &Topology,
) -> Result<(), Fault> {
    let network = match side {
        Side::Left => &topology.addresses.right_network,
        Side::Right => &topology.addresses.left_network,
    };
    let mtu = topology.mtu - WIREGUARD_OVERHEAD_BYTES;
    let batch =
        format!("link set {INTERFACE} mtu {mtu} up\nroute replace {network} dev {INTERFACE}\n");
    let command = Command::line("ip -batch -").input(batch);
    host.must(&command, START_TIMEOUT).map(drop)
}

/// A program by one of its names, also where language tools install into the user's home.
fn installed(names: &[&str], home_folder: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let at_home = names.iter().map(|name| home.join(home_folder).join(name));
    let found = names.iter().find_map(|name| crate::host::program(name));
    found.or_else(|| at_home.into_iter().find(|path| path.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let tests = [
            ("66", "Zg=="),
            ("666f", "Zm8="),
            ("666f6f", "Zm9v"),
            ("666f6f62", "Zm9vYg=="),
        ];
        for (hex, expected) in tests {
            assert_eq!(base64(hex), expected);
        }
    }

    #[test]
    fn each_gateway_is_given_its_own_key_and_the_other_end() {
        let left = configuration(Side::Left, &Addresses::default());
        assert!(left.contains(&format!("private_key={}\n", KEYS[0].0)));
        assert!(left.contains(&format!("public_key={}\n", KEYS[1].1)));
        assert!(left.contains("endpoint=192.0.2.2:51820\n"));
        assert!(left.contains("allowed_ip=10.2.0.0/24\n"));
        assert!(left.ends_with("\n\n"), "an empty line ends a request");
        let right = configuration(Side::Right, &Addresses::default());
        assert!(right.contains("endpoint=192.0.2.1:51820\n"));
    }
}
