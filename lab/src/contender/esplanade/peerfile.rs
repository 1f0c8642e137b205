//! The two files of peers that negotiate their keys, in ten lines each. They are results like the table: readable, and
//! enough to repeat the tunnel by hand.

use super::keyfile::random_hex;
use crate::contender::{Encapsulation, IpsecConfig, Mode};
use crate::fault::Fault;
use crate::gateway::Side;
use crate::suite::Suite;
use crate::testbed::Addresses;

/// The name of the other gateway in both files.
pub(super) const PEER: &str = "lab";

const SHARED_KEY_BYTES: usize = 32;

/// A pre-shared key for one tunnel.
pub(super) struct SharedKey(String);

impl SharedKey {
    /// Drawn from the system.
    pub(super) fn fresh() -> Result<SharedKey, Fault> {
        random_hex(SHARED_KEY_BYTES).map(SharedKey)
    }

    /// The file of one gateway. The left one begins.
    pub(super) fn text(
        &self,
        ipsec: &IpsecConfig,
        side: Side,
        map: &Addresses,
    ) -> Result<String, Fault> {
        let (left, right) = (
            (map.left, &map.left_network),
            (map.right, &map.right_network),
        );
        let ((local, near), (remote, far), start) = match side {
            Side::Left => (left, right, "start"),
            Side::Right => (right, left, "wait"),
        };
        let (kind, suite) = proposal(ipsec.suite).ok_or_else(|| {
            Fault::failed("IKEv2 has no name for the suite; this is a bug of the lab")
        })?;
        let esn = if ipsec.esn { "esn" } else { "noesn" };
        let mode = match ipsec.mode {
            Mode::Tunnel => format!(
                "mode = \"policy\"\nnetworks = {{ local = [\"{near}\"], remote = [\"{far}\"] }}\n"
            ),
            Mode::Transport => "mode = \"transport\"\n".into(),
        };
        let encapsulation = match ipsec.encapsulation {
            Encapsulation::Udp => "force",
            Encapsulation::Native => "auto",
        };
        Ok(format!(
            "# The {} gateway: {near} and {far} are connected through {}, with keys from IKEv2.\n\
             # Start it with: esplanade run --config THIS_FILE\n\
             [peer.{PEER}]\n\
             local = \"{local}\"\n\
             remote = \"{remote}\"\n\
             local_id = \"{local}\"\n\
             remote_id = \"{remote}\"\n\
             psk = \"{}\"\n\
             {mode}{kind} = [\"{suite}-x25519-{esn}\"]\n\
             encapsulation = \"{encapsulation}\"\n\
             replay_window = {}\n\
             start = \"{start}\"\n",
            side.name(),
            ipsec.suite.label,
            self.0,
            ipsec.window,
        ))
    }
}

/// The key of a peer that names the suite, and its name in IKEv2; `None` where IKEv2, or Esplanade's, lacks it.
fn proposal(suite: &Suite) -> Option<(&'static str, &'static str)> {
    match (suite.is_ah(), suite.hash) {
        (false, _) => suite.strongswan.map(|name| ("esp", name)),
        (true, "hmac-md5") => Some(("ah", "md5")),
        (true, "hmac-sha1") => Some(("ah", "sha1")),
        (true, "hmac-sha2-256") => Some(("ah", "sha256")),
        (true, _) => None,
    }
}

/// The factor that does not go with keys from IKEv2, and why.
pub fn cannot_negotiate(ipsec: &IpsecConfig) -> Option<(&'static str, String)> {
    if proposal(ipsec.suite).is_none() {
        let name = ipsec.suite.name;
        Some(("suite", format!("IKEv2 does not negotiate `{name}`")))
    } else if ipsec.is_bundle() {
        Some((
            "combine",
            "IKEv2 does not negotiate ESP and AH together".into(),
        ))
    } else if ipsec.compression {
        Some(("compression", "IKEv2 does not negotiate IPComp here".into()))
    } else if ipsec.associations > 1 {
        Some((
            "sas",
            "the idle associations of `sas` have no peers to negotiate with".into(),
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Combine;
    use crate::suite;

    fn ipsec(name: &str) -> IpsecConfig {
        IpsecConfig {
            suite: suite::find(name).unwrap(),
            mode: Mode::Tunnel,
            encapsulation: Encapsulation::Udp,
            combine: Combine::EspAuth,
            compression: false,
            window: 64,
            esn: true,
            associations: 1,
        }
    }

    #[test]
    fn the_right_file_reads_as_a_person_would_write_it() {
        let key = SharedKey("5a".repeat(32));
        let text = key
            .text(&ipsec("aes-128-gcm"), Side::Right, &Addresses::default())
            .unwrap();
        let expected = "# The right gateway: 10.2.0.0/24 and 10.1.0.0/24 are connected through AES-128-GCM, with keys from IKEv2.
# Start it with: esplanade run --config THIS_FILE
[peer.lab]
local = \"192.0.2.2\"
remote = \"192.0.2.1\"
local_id = \"192.0.2.2\"
remote_id = \"192.0.2.1\"
psk = \"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\"
mode = \"policy\"
networks = { local = [\"10.2.0.0/24\"], remote = [\"10.1.0.0/24\"] }
esp = [\"aes128gcm16-x25519-esn\"]
encapsulation = \"force\"
replay_window = 64
start = \"wait\"
";
        assert_eq!(text, expected);
    }

    #[test]
    fn two_hosts_alone_negotiate_transport_mode_and_ah_by_itself() {
        let native = IpsecConfig {
            mode: Mode::Transport,
            encapsulation: Encapsulation::Native,
            ..ipsec("ah-sha256")
        };
        let key = SharedKey::fresh().unwrap();
        let text = key
            .text(&native, Side::Left, &Addresses::default())
            .unwrap();
        for line in [
            "mode = \"transport\"",
            "ah = [\"sha256-x25519-esn\"]",
            "encapsulation = \"auto\"",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("networks"));
    }

    #[test]
    fn what_ikev2_cannot_negotiate_is_named_by_its_factor() {
        let factor = |ipsec: &IpsecConfig| cannot_negotiate(ipsec).map(|(factor, _)| factor);
        assert_eq!(factor(&ipsec("aes-128-cbc-sha1")), None);
        assert_eq!(factor(&ipsec("des-md5")), Some("suite"));
        let bundle = IpsecConfig {
            combine: Combine::EspAndAh,
            ..ipsec("aes-128-cbc-sha1")
        };
        assert_eq!(factor(&bundle), Some("combine"));
        let many = IpsecConfig {
            associations: 9,
            ..ipsec("aes-128-gcm")
        };
        assert_eq!(factor(&many), Some("sas"));
    }
}
