//! Mistakes and what is said about each: `tests/mistakes.txt`. With ESPLANADE_WRITE_MISTAKES set, the answers are
//! written anew, for review.

use super::checked::{Credential, Mode};
use super::*;
use proptest::prelude::*;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A moment at which the certificates of the tests are valid: 1 January 2030.
const NOW: u64 = 1_893_456_000;

const PEER: &str = "\
[peer.office]
local = \"192.0.2.1\"
remote = \"198.51.100.7\"
remote_id = \"b.example.org\"
psk_file = \"good.psk\"
networks = { local = [\"10.1.0.0/16\"], remote = [\"10.2.0.0/16\"] }
";

const CERTIFICATE_PEER: &str = "\
[peer.office]
remote = \"198.51.100.7\"
remote_id = \"b.example.org\"
certificate = \"a.pem\"
key = \"a.key\"
ca = \"ca.pem\"
networks = { local = [\"10.1.0.0/16\"], remote = [\"10.2.0.0/16\"] }
";

/// A folder with keys and certificates.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("esplanade-config-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let folder = Self(path);
        folder.write("good.psk", b"0123456789abcdefghijklmnopqrstuv\n", 0o600);
        folder.write("other.psk", b"vutsrqponmlkjihgfedcba9876543210", 0o600);
        folder.write("short.psk", b"SECRET\r\n", 0o600);
        folder.write("empty.psk", b"\n", 0o600);
        folder.write("open.psk", b"0123456789abcdefghijklmnopqrstuv\n", 0o644);
        folder.write("a.pem", include_bytes!("tests/vectors/a.pem"), 0o644);
        folder.write("ca.pem", include_bytes!("tests/vectors/ca.pem"), 0o644);
        folder.write("a.key", include_bytes!("tests/vectors/a.key"), 0o600);
        folder.write(
            "other.key",
            include_bytes!("tests/vectors/other.key"),
            0o600,
        );
        folder
    }

    fn write(&self, name: &str, content: &[u8], mode: u32) {
        fs::write(self.0.join(name), content).unwrap();
        fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn read(&self, text: &str) -> Result<Config, Vec<String>> {
        self.read_at(text, NOW)
    }

    fn read_at(&self, text: &str, now: u64) -> Result<Config, Vec<String>> {
        let (user, folders) = (User::current(), RefCell::default());
        let resolve = |name: &str| match name {
            "vpn.example.org" => Ok(vec!["198.51.100.7".parse().unwrap()]),
            _ => Err(Failure::new("no such name")),
        };
        let around = Surroundings {
            files: Files {
                folder: &self.0,
                user: &user,
                folders: &folders,
                is_reload: false,
                owner: User::current().uid(),
            },
            resolve: &resolve,
            aes_is_fast: true,
            now,
        };
        read("test.toml", text, &around)
    }

    fn good(&self, text: &str) -> Config {
        self.read(text)
            .unwrap_or_else(|problems| panic!("{}", problems.join("\n")))
    }

    /// What is said about a text, without the folder's name.
    fn said(&self, text: &str) -> String {
        let said = match self.read(text) {
            Ok(config) => config.warnings.join("\n"),
            Err(problems) => problems.join("\n"),
        };
        let user = format!("chown {} ", User::current().uid());
        said.replace(&self.0.display().to_string(), "FOLDER")
            .replace(&user, "chown USER ")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `#### title`, the text, `====`, what is said.
#[test]
fn every_mistake_is_explained_at_its_place() {
    let folder = Folder::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/config/tests/mistakes.txt");
    let table = fs::read_to_string(path).unwrap();
    let mut written = String::new();
    let mut wrong = Vec::new();
    for case in table.split("#### ").skip(1) {
        let (title, rest) = case.split_once('\n').unwrap();
        let (text, expected) = rest.split_once("====\n").unwrap();
        let whole = text
            .replace("<peer>\n", PEER)
            .replace("<certificate peer>\n", CERTIFICATE_PEER);
        let said = folder.said(&whole);
        let _ = write!(written, "#### {title}\n{text}====\n{}\n\n", said.trim_end());
        if said.trim_end() != expected.trim_end() {
            wrong.push(format!("{title}:\n{said}"));
        }
        assert!(!said.contains("SECRET"), "{said}");
    }
    if std::env::var_os("ESPLANADE_WRITE_MISTAKES").is_some() {
        fs::write(path, written).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ten_lines_are_a_tunnel() {
    let folder = Folder::new();
    let config = folder.good(PEER);
    assert!(PEER.lines().count() <= 10 && config.warnings.is_empty());
    let peer = &config.peers[0];
    let connection = &peer.connection;
    assert_eq!(connection.local_id.to_string(), "192.0.2.1");
    assert_eq!(connection.remote_id.to_string(), "b.example.org");
    assert!(
        peer.mode
            == Mode::Route {
                device: "ike-office".to_owned(),
                by_networks: true,
                is_default: true,
            }
    );
    assert!(matches!(&peer.credential, Credential::SharedSecret(key) if key.expose().len() == 32));
    assert_eq!(connection.children.len(), 1);
    assert_eq!(connection.children[0].name, "office");
}

#[test]
fn a_fingerprint_differs_with_all_that_is_configured_about_a_peer_but_hooks_and_other_peers() {
    let folder = Folder::new();
    let of = |text: &str, place: usize| {
        let peer = &folder.good(text).peers[place];
        let [user, kernel] = [false, true].map(|by_kernel| peer.fingerprint(by_kernel).unwrap());
        assert_ne!(user, kernel, "what one plane carries is not the other's");
        user
    };
    let base = of(PEER, 0);
    let another = PEER.replace("office", "other").replace("10.2.", "10.3.");
    let another = another.replace("b.example.org", "c.example.org");
    assert_eq!(
        of(&format!("{another}{PEER}"), 1),
        base,
        "its number is another one"
    );
    for (what, with) in [
        ("b.example.org", "d.example.org"),
        ("10.2.", "10.4."),
        ("office", "house"),
        ("good.psk", "other.psk"),
        ("remote = \"", "mode = \"policy\"\nremote = \""),
        ("remote = \"", "dpd = \"77s\"\nremote = \""),
        ("remote = \"", "start = \"wait\"\nremote = \""),
    ] {
        assert_ne!(of(&PEER.replace(what, with), 0), base, "{what}, {with}");
    }
    let (certified, hash) = (CERTIFICATE_PEER, of(CERTIFICATE_PEER, 0));
    assert_eq!(of(&format!("{another}{certified}"), 1), hash);
    assert_ne!(
        of(&certified.replace("ca.pem", "a.pem"), 0),
        hash,
        "trusted roots"
    );
}

#[test]
fn on_the_kernels_plane_a_peer_has_policies_unless_it_asks_for_a_device() {
    let folder = Folder::new();
    let by_kernel = |more: &str| {
        let config = folder.good(&format!("{PEER}{more}\n"));
        config.peers[0].clone().by_policies().mode
    };
    assert_eq!(by_kernel(""), Mode::Policy);
    for asked in [
        "mode = \"route\"",
        "interface = \"vpn0\"",
        "routes = \"networks\"",
    ] {
        assert!(matches!(by_kernel(asked), Mode::Route { .. }), "{asked}");
    }
}

#[test]
fn what_is_left_out_is_as_connections_have_it() {
    let folder = Folder::new();
    let config = folder.good(PEER);
    let peer = &config.peers[0];
    let own = &peer.connection;
    let standard = ikev2::connection::Connection::new(
        "office",
        (own.local_id.clone(), own.local_proof.clone()),
        (own.remote_id.clone(), own.remote_proof.clone()),
        true,
    );
    let expected = ikev2::connection::Connection {
        local: own.local.clone(),
        remote: own.remote.clone(),
        children: own.children.clone(),
        ..standard
    };
    assert!(*own == expected);
    let child = &own.children[0];
    let standard =
        ikev2::connection::Child::new("office", child.local.clone(), child.remote.clone(), true);
    assert!(*child == standard);
}

#[test]
fn every_key_of_a_peer_reaches_its_connection() {
    let folder = Folder::new();
    let text = format!(
        "{PEER}mode = \"policy\"\nike = \"aes128gcm16-prfsha256-x25519\"\nstart = \"demand\"\ndpd = \"off\"\n\
         rekey = {{ ike = \"2h\", child = \"30m\", bytes = \"5GB\", packets = 1000 }}\nhard_lifetime = \"50m\"\n\
         jitter_percent = 5\nreplay_window = 64\nretransmit = {{ first = \"1s\", longest = \"4s\", repetitions = 3 }}\n\
         retry = {{ first = \"2s\", longest = \"9s\" }}\nencapsulation = \"force\"\nfragment_bytes = 1000\n\
         childless = true\nwindow = 4\ninitial_contact = false\nremote_port = 4500\nprotocol = \"tcp\"\n\
         ports = {{ remote = 443 }}\nesp = [\"aes128gcm16-x25519\", \"aes256-sha256\"]\nlocal_id = \"a.example.org\"\n"
    );
    let shown = summary(&folder.good(&text));
    for part in [
        "192.0.2.1 <-> 198.51.100.7 port 4500",
        "a.example.org <-> b.example.org",
        "one pre-shared key of 32 characters",
        "when a packet needs it, again after 2 s up to 9 s",
        "by policies",
        "aes128gcm16-prfsha256-x25519",
        "after 2 h, less up to 5 %",
        "peer is checked   never",
        "3 times, after 1 s at first and 4 s at last",
        "ESP always in UDP, IKE messages of at most 1000 bytes, an IKE SA without child first",
        "4 requests of the peer at a time, no INITIAL_CONTACT",
        "10.1.0.0/16 tcp <-> 10.2.0.0/16 tcp port 443",
        "aes128gcm16-x25519-esn-noesn",
        "aes256-sha256-esn-noesn",
        "after 30 m or 5 GB or 1000 packets; carries nothing after 50 m",
        "64 packets",
    ] {
        assert!(shown.contains(part), "{part} in:\n{shown}");
    }
}

#[test]
fn children_take_from_their_peer_what_they_do_not_have() {
    let folder = Folder::new();
    let text = format!(
        "{PEER}rekey = {{ child = \"30m\" }}\nah = \"sha256\"\n[peer.office.child.voice]\n\
         networks = {{ local = [\"10.1.1.0/24\"], remote = [\"10.2.1.0/24\"] }}\nesp = \"aes128gcm16\"\n\
         start = \"demand\"\n[peer.office.child.data]\nrekey = {{ child = \"10m\" }}\n"
    );
    let children = folder.good(&text).peers[0].connection.children.clone();
    assert_eq!([&*children[0].name, &*children[1].name], ["voice", "data"]);
    assert_eq!(
        [children[0].on_demand, children[1].on_demand],
        [true, false]
    );
    assert_eq!(children[0].offers[0].to_string(), "aes128gcm16-esn-noesn");
    assert_eq!(children[1].offers[0].to_string(), "sha256-esn-noesn");
    assert_eq!(
        children
            .iter()
            .map(|child| child.lifetime.soft.as_secs())
            .collect::<Vec<_>>(),
        [1800, 600]
    );
    assert_eq!(
        children[1].local[0].addresses.bounds().0.to_string(),
        "10.1.0.0"
    );
}

#[test]
fn certificates_are_checked_and_name_this_side() {
    let folder = Folder::new();
    let config = folder.good(CERTIFICATE_PEER);
    let peer = &config.peers[0];
    assert_eq!(peer.connection.local_id.to_string(), "a.example.org");
    assert!(
        matches!(&peer.credential, Credential::PrivateKey(pem) if pem.starts_with(b"-----BEGIN"))
    );
    assert_eq!(peer.trust.as_ref().unwrap().roots.len(), 1);
    assert!(
        summary(&config).contains("certificate of CN=a,O=Example, signed by CN=Test CA,O=Example")
    );
    let late = folder
        .read_at(CERTIFICATE_PEER, 8_000_000_000)
        .ok()
        .unwrap();
    assert!(
        late.warnings[0].contains("has expired on"),
        "{:?}",
        late.warnings
    );
    let early = folder
        .read_at(CERTIFICATE_PEER, 1_000_000_000)
        .ok()
        .unwrap();
    assert!(
        early.warnings[0].contains("is not valid before"),
        "{:?}",
        early.warnings
    );
}

#[test]
fn profiles_carry_what_their_peers_propose_and_keys_of_the_file_count_more() {
    let folder = Folder::new();
    for profile in [
        "aws",
        "azure",
        "gcp",
        "cloudflare",
        "windows",
        "apple",
        "fortinet",
        "cisco-asa",
    ] {
        let config = folder.good(&format!("{PEER}profile = \"{profile}\"\n"));
        let standard = folder.good(PEER);
        assert!(
            config.peers[0].connection.ike != standard.peers[0].connection.ike,
            "{profile}"
        );
        let is_weak = ["azure", "windows"].contains(&profile);
        assert_eq!(
            config.warnings.len(),
            usize::from(is_weak),
            "{profile}: {:?}",
            config.warnings
        );
    }
    let text = format!(
        "{PEER}profile = \"azure\"\nike = [\"aes256gcm16-prfsha384-ecp384\"]\ndpd = \"7s\"\n"
    );
    let config = folder.good(&text);
    assert!(config.warnings.is_empty());
    assert_eq!(config.peers[0].connection.dpd.unwrap().as_secs(), 7);
    assert_eq!(
        config.peers[0].connection.children[0]
            .lifetime
            .soft
            .as_secs(),
        24_000
    );
}

#[test]
fn the_options_of_run_are_words_of_its_command_line() {
    let folder = Folder::new();
    let text = format!(
        "[gateway]\nworkers = 2\nfail_open = true\nno_state = false\ncpus = \"0-3\"\nsetkey = [\"hand.conf\"]\n\
         control = \"/run/x.sock\"\n{PEER}"
    );
    let config = folder.good(&text);
    assert_eq!(
        config.gateway.arguments,
        [
            "--control=/run/x.sock",
            "--workers=2",
            "--cpus=0-3",
            "--fail-open"
        ]
    );
    assert_eq!(config.gateway.setkey, [folder.0.join("hand.conf")]);
}

#[test]
fn a_reload_leaves_what_is_the_same_and_numbers_secrets_once() {
    let folder = Folder::new();
    let peer = |name: &str, net: u8, key: &str| {
        format!(
            "[peer.{name}]\nlocal_id = \"a.example.org\"\nremote_id = \"{name}.example.org\"\npsk_file = \"{key}.psk\"\n\
             networks = {{ local = [\"10.1.0.0/16\"], remote = [\"10.{net}.0.0/16\"] }}\n"
        )
    };
    let mut old =
        folder.good(&(peer("a", 2, "good") + &peer("b", 3, "good") + &peer("c", 4, "good")));
    numbers::keep(&mut old.peers, &[]);
    let mut new = folder.good(
        &(peer("d", 6, "good")
            + &peer("c", 4, "other")
            + &peer("b", 5, "good")
            + &peer("a", 2, "good")),
    );
    numbers::keep(&mut new.peers, &old.peers);
    assert_eq!(
        new.peers
            .iter()
            .map(ConfiguredPeer::number)
            .collect::<Vec<_>>(),
        [4, 5, 2, 1]
    );
    let found = difference(&old.peers, &new.peers);
    assert_eq!(found.new, ["d"]);
    assert_eq!(found.changed, ["c", "b"]);
    assert_eq!(found.same, ["a"]);
    assert!(found.gone.is_empty());
    assert_eq!(difference(&new.peers, &old.peers).gone, ["d"]);
    assert!(found.to_string().contains("changed      c, b\n"));
}

#[test]
fn hooks_are_the_gateways_or_a_peers_own_and_no_other_user_may_change_them() {
    let folder = Folder::new();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    folder.write("hook", b"#!/bin/sh\n", 0o755);
    let hook = folder.0.join("hook").display().to_string();
    let gateway = format!("[gateway]\non_up = \"{hook}\"\n");
    let config = folder.good(&format!("{gateway}{PEER}on_down = [\"{hook}\", \"x y\"]\n"));
    let hooks = &config.peers[0].hooks;
    assert!(hooks.up.as_ref().unwrap().arguments.is_empty());
    assert_eq!(hooks.down.as_ref().unwrap().arguments, ["x y"]);
    let shown = summary(&config);
    assert!(
        shown.contains(&format!("on down           {hook} x y")),
        "{shown}"
    );
    let none = folder.good(&format!("{gateway}{PEER}on_up = \"off\"\n"));
    assert!(none.peers[0].hooks == ConfiguredHooks::default());
    let text = format!("{gateway}{PEER}");
    for (mode, words) in [
        (0o775, "others may write FOLDER/hook (mode 0775)"),
        (0o644, "is no program"),
    ] {
        folder.write("hook", b"#!/bin/sh\n", mode);
        let said = folder.said(&text);
        assert!(said.contains(words), "{said}");
    }
    folder.write("hook", b"#!/bin/sh\n", 0o755);
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let said = folder.said(&text);
    assert!(said.contains("chmod go-w FOLDER"), "{said}");
}

#[test]
fn every_key_is_documented() {
    let text = include_str!("../../../docs/ikev2-configuration.md");
    let tables = [
        ("## The gateway", &keys::GATEWAY[..]),
        ("## A peer", &keys::PEER[..]),
        ("## A child", &keys::CHILD[..]),
        ("## A peer", &keys::PEER_REKEY[..]),
        ("## A child", &keys::CHILD_REKEY[..]),
        ("## A peer", &keys::RETRANSMIT[..]),
        ("## A peer", &keys::RETRY[..]),
        ("## A peer", &keys::SIDES[..]),
    ];
    for (heading, known) in tables {
        let section = text
            .split("\n## ")
            .find(|part| part.starts_with(&heading[3..]))
            .unwrap();
        for key in known {
            assert!(
                section.contains(&format!("`{key}`")) || section.contains(&format!("{key} =")),
                "{heading}: {key}"
            );
        }
    }
}

#[test]
fn the_examples_of_the_reference_are_right() {
    let folder = Folder::new();
    for name in [
        "office.psk",
        "branch.psk",
        "core-1.psk",
        "partner.psk",
        "aws-1.psk",
        "aws-2.psk",
    ] {
        folder.write(name, b"0123456789abcdefghijklmnopqrstuv\n", 0o600);
    }
    let text = include_str!("../../../docs/ikev2-configuration.md");
    let examples: Vec<_> = text.split("```toml\n").skip(1).collect();
    assert!(examples.len() >= 3);
    let file = folder.good(include_str!("../../../docs/esplanade.toml"));
    assert!(file.warnings.is_empty() && file.peers.len() == 3);
    for example in examples {
        let (example, _) = example.split_once("```").unwrap();
        folder.good(example);
    }
}

/// Text that has every table and a little of everything.
fn sample() -> String {
    format!(
        "[gateway]\nworkers = 2\nsetkey = [\"hand.conf\"]\n{PEER}rekey = {{ ike = \"2h\" }}\n\
         [peer.office.child.voice]\nesp = [\"aes128gcm16\"]\n{}",
        CERTIFICATE_PEER.replace("office", "branch")
    )
}

/// Reads any text: it is either without a problem and complete, or has at least one.
fn is_read(folder: &Folder, text: &str) {
    match folder.read(text) {
        Ok(config) => {
            assert!(!summary(&config).is_empty());
            assert!(
                config
                    .peers
                    .iter()
                    .all(|peer| !peer.connection.children.is_empty())
            );
        }
        Err(problems) => assert!(!problems.is_empty()),
    }
}

#[test]
fn any_bytes_are_read_without_panic() {
    let folder = Folder::new();
    proptest!(|(bytes in prop::collection::vec(any::<u8>(), 0..200))| {
        is_read(&folder, &String::from_utf8_lossy(&bytes));
    });
}

/// Changes some bytes of a text at these places.
fn changed(text: &str, changes: &[(prop::sample::Index, u8, u8)]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (index, byte, way) in changes {
        let at = index.index(bytes.len());
        match way {
            0 => bytes[at] = byte & 0x7f,
            1 => {
                bytes.remove(at);
            }
            _ => bytes.insert(at, b"\"'[]{}=.,#\n-_09"[usize::from(*byte) % 15]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_good_file_with_changed_bytes_is_read_without_panic() {
    let folder = Folder::new();
    let changes =
        || prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6);
    proptest!(|(changes in changes())| is_read(&folder, &changed(&sample(), &changes)));
}

#[test]
fn a_good_file_whose_lines_are_moved_is_read_without_panic() {
    let (folder, sample) = (Folder::new(), sample());
    let lines: Vec<_> = sample.lines().collect();
    proptest!(|(order in prop::collection::vec(any::<prop::sample::Index>(), 1..30))| {
        let text: Vec<_> = order.iter().map(|index| lines[index.index(lines.len())]).collect();
        is_read(&folder, &text.join("\n"));
    });
}

#[test]
fn no_message_shows_a_pre_shared_key_whatever_is_wrong_around_it() {
    let folder = Folder::new();
    let changes =
        || prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 0..4);
    let before = PEER.replace("psk_file = \"good.psk\"\n", "");
    proptest!(|(first in changes(), second in changes())| {
        let (before, behind) = (changed(&before, &first), changed("\nstart = \"wait\"\n", &second));
        let said = folder.said(&format!("{before}psk = \"SECRET\"{behind}"));
        prop_assert!(!said.contains("SECRET"), "{said}");
    });
}
