//! OpenVPN with its data channel in user space: one packet at a time through TUN and UDP. Each run creates a key and a
//! self-signed certificate for each gateway; each verifies the other by its fingerprint.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::daemons::{Daemon, Daemons};
use super::{Contender, Protection, Tunnel, tun_device, version_of};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::gateway::Side;
use crate::host::{Command, Host};
use crate::ideal::OPENVPN_OVERHEAD_BYTES;
use crate::suite::Suite;
use crate::testbed::{Addresses, Family, Topology};

/// OpenVPN with one suite.
pub struct OpenVpn {
    suite: &'static Suite,
    cipher: &'static str,
    id: String,
    label: String,
}

/// OpenVPN's names of the suites that it shares with the others.
const CIPHERS: [(&str, &str); 3] = [
    ("aes-128-gcm", "AES-128-GCM"),
    ("aes-256-gcm", "AES-256-GCM"),
    ("chacha20-poly1305", "CHACHA20-POLY1305"),
];
/// A TLS handshake takes a fraction of a second; the other side may start later, and retries after two seconds.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// For `openssl` and `ip`.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
const INTERFACE: &str = "ovpn0";
const READY_MESSAGE: &str = "Initialization Sequence Completed";

impl OpenVpn {
    /// `None` where OpenVPN does not know the suite.
    pub fn new(suite: &'static Suite) -> Option<OpenVpn> {
        let (_, cipher) = CIPHERS.iter().find(|(name, _)| *name == suite.name)?;
        Some(OpenVpn {
            suite,
            cipher,
            id: OpenVpn::name(suite),
            label: format!("OpenVPN, {}", suite.label),
        })
    }

    /// The id of such a contender.
    pub fn name(suite: &Suite) -> String {
        format!("openvpn-{}", suite.name)
    }

    /// The suites it can do, by the names they have here.
    pub fn suites() -> [&'static str; CIPHERS.len()] {
        CIPHERS.map(|(name, _)| name)
    }
}

impl Contender for OpenVpn {
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
        Protection::Secret
    }

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        for program in ["openvpn", "openssl"] {
            if !topology.left.has(program).unwrap_or(false) {
                return Err(Absence::new(
                    format!("{program} is not installed"),
                    format!("apt-get install {program}"),
                ));
            }
        }
        tun_device(topology)
    }

    fn version(&self, topology: &Topology) -> Option<(String, String)> {
        version_of(&*topology.left, Command::line("openvpn --version"))
    }

    fn up(&self, topology: &Topology) -> Result<Box<dyn Tunnel>, Fault> {
        let left = Identity::fresh("left", &*topology.left)?;
        let right = Identity::fresh("right", &*topology.right)?;
        let mut daemons = [
            self.start(Side::Left, topology, &left, &right)?,
            self.start(Side::Right, topology, &right, &left)?,
        ];
        for daemon in &mut daemons {
            ready(daemon)?;
            route_into_tunnel(daemon.side, topology)?;
        }
        Ok(Box::new(Daemons(daemons)))
    }
}

impl OpenVpn {
    fn start(
        &self,
        side: Side,
        topology: &Topology,
        own: &Identity,
        other: &Identity,
    ) -> Result<Daemon, Fault> {
        let text = self.configuration(side, &topology.addresses, topology.mtu, own, other);
        let host = topology.gateway(side);
        let file = host.write_file(&format!("config/{}/{}.ovpn", self.id, side.name()), &text)?;
        let process = host.start(&Command::line("openvpn --config").arg(&file))?;
        Ok(Daemon { side, process })
    }

    /// The whole configuration of one gateway in one file, with the socket buffers that tuning guides recommend.
    /// Without `mssfix` every packet up to the tunnel's MTU fits the wire after encapsulation.
    fn configuration(
        &self,
        side: Side,
        map: &Addresses,
        mtu: u32,
        own: &Identity,
        other: &Identity,
    ) -> String {
        let (role, near, far, inside) = match side {
            Side::Left => (
                "tls-client",
                map.left,
                map.right,
                "10.255.255.1 10.255.255.2",
            ),
            Side::Right => (
                "tls-server\ndh none",
                map.right,
                map.left,
                "10.255.255.2 10.255.255.1",
            ),
        };
        let outer = Family::of(near);
        let protocol = match outer {
            Family::V4 => "udp4",
            Family::V6 => "udp6",
        };
        let (cipher, tunnel) = (self.cipher, mtu - outer.header() - OPENVPN_OVERHEAD_BYTES);
        format!(
            "# The {} gateway. Start it with: openvpn --config THIS_FILE\n\
             dev {INTERFACE}\ndev-type tun\ndisable-dco\nproto {protocol}\nlocal {near}\nremote {far}\nport 1194\n\
             {role}\nifconfig {inside}\ntun-mtu {tunnel}\nmssfix 0\n\
             sndbuf 4194304\nrcvbuf 4194304\n\
             data-ciphers {cipher}\ndata-ciphers-fallback {cipher}\nauth-nocache\nverb 3\n\
             <peer-fingerprint>\n{}\n</peer-fingerprint>\n<key>\n{}\n</key>\n<cert>\n{}\n</cert>\n",
            side.name(),
            other.fingerprint,
            own.key.trim(),
            own.certificate.trim(),
        )
    }
}

/// Who a gateway is.
struct Identity {
    key: String,
    certificate: String,
    fingerprint: String,
}

impl Identity {
    fn fresh(name: &str, host: &dyn Host) -> Result<Identity, Fault> {
        let make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 30 -keyout - -out -";
        let made = Command::line(make).arg("-subj").arg(format!("/CN={name}"));
        let (key, certificate) = split(&host.must(&made, COMMAND_TIMEOUT)?)
            .ok_or_else(|| Fault::failed("openssl did not answer with a key and a certificate"))?;
        let ask = Command::line("openssl x509 -noout -fingerprint -sha256").input(&certificate);
        let said = host.must(&ask, COMMAND_TIMEOUT)?;
        let fingerprint = said.trim().rsplit('=').next().unwrap_or_default();
        Ok(Identity {
            key,
            certificate,
            fingerprint: fingerprint.to_owned(),
        })
    }
}

/// Key and certificate, which come one after the other.
fn split(pem: &str) -> Option<(String, String)> {
    let certificate = pem.find("-----BEGIN CERTIFICATE-----")?;
    let (key, certificate) = pem.split_at(certificate);
    key.contains("PRIVATE KEY-----")
        .then(|| (key.to_owned(), certificate.to_owned()))
}

fn ready(daemon: &mut Daemon) -> Result<(), Fault> {
    let started = Instant::now();
    loop {
        let said = daemon.process.output();
        if said.contains(READY_MESSAGE) {
            return Ok(());
        }
        let last = said.lines().last().unwrap_or_default().trim().to_owned();
        let side = daemon.side.name();
        if let Some(code) = daemon.process.ended() {
            return Err(Fault::failed(format!(
                "openvpn on the {side} ended with {code}: {last}"
            )));
        }
        if started.elapsed() > HANDSHAKE_TIMEOUT {
            return Err(Fault::TimedOut {
                what: format!("openvpn on the {side}, whose last output was `{last}`"),
                after: HANDSHAKE_TIMEOUT,
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Routes the other side's network into the tunnel.
fn route_into_tunnel(side: Side, topology: &Topology) -> Result<(), Fault> {
    let network = match side {
        Side::Left => &topology.addresses.right_network,
        Side::Right => &topology.addresses.left_network,
    };
    let route = Command::line(&format!("ip route replace {network} dev {INTERFACE}"));
    topology
        .gateway(side)
        .must(&route, COMMAND_TIMEOUT)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    fn identity(name: &str) -> Identity {
        Identity {
            key: format!("-----BEGIN PRIVATE KEY-----\n{name}\n"),
            certificate: format!("-----BEGIN CERTIFICATE-----\n{name}\n"),
            fingerprint: format!("AB:{name}"),
        }
    }

    #[test]
    fn each_gateway_checks_the_others_fingerprint_and_leaves_room_on_the_wire() {
        let openvpn = OpenVpn::new(suite::find("aes-128-gcm").unwrap()).unwrap();
        let (left, right) = (identity("left"), identity("right"));
        let text = openvpn.configuration(Side::Left, &Addresses::default(), 1500, &left, &right);
        for line in [
            "local 192.0.2.1\nremote 192.0.2.2\n",
            "tls-client\nifconfig 10.255.255.1 10.255.255.2\ntun-mtu 1448\n",
            "disable-dco\n",
            "data-ciphers AES-128-GCM\n",
            "<peer-fingerprint>\nAB:right\n</peer-fingerprint>",
            "<key>\n-----BEGIN PRIVATE KEY-----\nleft\n</key>",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        let text = openvpn.configuration(Side::Right, &Addresses::default(), 1500, &right, &left);
        assert!(text.contains("tls-server\ndh none\n"), "{text}");
        assert!(text.contains("AB:left"), "{text}");
    }

    #[test]
    fn key_and_certificate_are_distinguished() {
        let both = "-----BEGIN PRIVATE KEY-----\nk\n-----BEGIN CERTIFICATE-----\nc\n";
        let (key, certificate) = split(both).unwrap();
        assert!(key.ends_with("k\n") && certificate.ends_with("c\n"));
        assert_eq!(split("-----BEGIN CERTIFICATE-----\n"), None);
        assert_eq!(split("nothing"), None);
    }

    #[test]
    fn a_suite_that_it_lacks_makes_no_contender() {
        assert!(OpenVpn::new(suite::find("aes-128-cbc-sha1").unwrap()).is_none());
    }
}
