//! What is armed of a file and of a configuration.

use super::*;
use crate::routes::plan::Disposition;
use std::os::unix::fs::PermissionsExt as _;

const TUNNEL: &str = "\
    add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 4 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
    spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/use;
    spdadd 10.2.0.0/24 10.1.0.0/24 any -P in ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;";

fn request(text: &[u8]) -> SetkeyText {
    SetkeyText {
        name: "boot.setkey".to_owned(),
        text: Zeroizing::new(text.to_vec()),
        ..SetkeyText::default()
    }
}

fn armed(text: &[u8], optional: Optional) -> Armed {
    Armed::of(&request(text), 4500, optional).ok().unwrap()
}

#[test]
fn what_is_kept_holds_every_policy_and_no_key() {
    let whole = armed(TUNNEL.as_bytes(), Optional::AsWritten);
    let kept = armed(&whole.text, Optional::Closed);
    assert_eq!(kept.policies, whole.policies);
    assert_eq!(kept.plan.leaving, whole.plan.leaving);
    let text = String::from_utf8(whole.text.to_vec()).unwrap();
    assert!(
        !text.contains("0001020304") && !text.contains("add 192"),
        "{text}"
    );
}

#[test]
fn an_optional_policy_is_closed_by_its_association_or_where_that_is_not_known() {
    let policies = armed(TUNNEL.as_bytes(), Optional::AsWritten).text;
    let verdict = |armed: Armed| armed.plan.leaving[0].verdict;
    assert_eq!(
        verdict(armed(TUNNEL.as_bytes(), Optional::AsWritten)),
        Disposition::Protect
    );
    assert_eq!(
        verdict(armed(&policies, Optional::AsWritten)),
        Disposition::Bypass
    );
    assert_eq!(
        verdict(armed(&policies, Optional::Closed)),
        Disposition::Protect
    );
}

#[test]
fn a_mistake_is_named_with_its_place() {
    let request = request(b"spdadd 10.1.0.0/24;");
    let failure = Armed::of(&request, 4500, Optional::AsWritten).err();
    let why = failure.unwrap().to_string();
    assert!(why.contains("boot.setkey:1:"), "{why}");
}

/// What is armed of a configuration, and what is left out.
fn armed_of_peers(name: &str, peers: &str) -> (usize, String) {
    let path =
        std::env::temp_dir().join(format!("esplanade-arm-{name}-{}.toml", std::process::id()));
    fs::write(&path, peers).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let armed = Armed::of_config(&path, 4500).map_err(|failure| failure.to_string());
    fs::remove_file(&path).unwrap();
    let armed = armed.unwrap_or_else(|why| panic!("{why}"));
    (armed.policies, armed.left_out.join("\n"))
}

fn peer(name: &str, more: &str) -> String {
    format!(
        "[peer.{name}]\nremote_id = \"{name}.example.org\"\npsk = \"0123456789abcdefghijklmnopqrstuvwxyz\"\n{more}\n"
    )
}

const NETWORKS: &str = "networks = { local = [\"10.1.0.0/24\"], remote = [\"10.2.0.0/24\"] }";
const EVERYTHING: &str =
    "routes = \"none\"\nnetworks = { local = [\"0.0.0.0/0\"], remote = [\"0.0.0.0/0\"] }";

#[test]
fn peers_by_routes_alone_are_not_armed_and_keep_no_other_from_it() {
    let addresses = "local = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n";
    let peers = ["one", "two"].map(|name| peer(name, &format!("{addresses}{EVERYTHING}")));
    let office = peer(
        "office",
        &format!("{addresses}mode = \"policy\"\n{NETWORKS}"),
    );
    let armed = armed_of_peers("routes", &format!("{}{office}", peers.concat()));
    assert_eq!(armed, (3, String::new()));
}

#[test]
fn a_name_that_is_not_looked_up_has_any_family() {
    let addresses = "local = \"2001:db8::1\"\nremote = \"vpn.example.org\"\n";
    let armed = armed_of_peers("family", &peer("office", &format!("{addresses}{NETWORKS}")));
    assert_eq!(armed, (3, String::new()));
}

#[test]
fn a_peer_whose_addresses_are_not_known_is_named_and_the_others_are_armed() {
    let unknown = "local = \"192.0.2.1\"\nremote = \"vpn.example.org\"\nmode = \"transport\"\n";
    let known = format!("local = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n{NETWORKS}");
    let (policies, left_out) = armed_of_peers(
        "unknown",
        &(peer("host", unknown) + &peer("office", &known)),
    );
    assert_eq!(policies, 3);
    assert!(
        left_out.contains("peer host") && left_out.contains("write addresses"),
        "{left_out}"
    );
}
