//! The peers of IKE: which are up, which are down and why.

use super::units::{duration, scaled};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::net::SocketAddr;

/// One configured peer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PeerStatus {
    /// Its name.
    pub name: String,
    /// `up`, `connecting`, `down`, or `orphaned`: child SAs without an IKE SA still carry its traffic.
    pub state: String,
    /// Why it is not up.
    #[serde(default)]
    pub why: Option<String>,
    /// Its device, in `mode = "route"`.
    #[serde(default)]
    pub device: Option<String>,
    /// Its hooks, if it has one.
    #[serde(default)]
    pub hooks: Option<HookStatus>,
    /// Seconds until the next attempt.
    #[serde(default)]
    pub next_attempt_seconds: Option<u64>,
    /// Its IKE SAs.
    pub ike: Vec<IkeSaStatus>,
    /// Its installed child SAs.
    pub children: Vec<ChildStatus>,
}

/// The hooks of a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct HookStatus {
    /// What they were told last: `up` or `down`.
    pub told: String,
    /// The hook that runs.
    #[serde(default)]
    pub running: Option<String>,
    /// For how long.
    #[serde(default)]
    pub running_seconds: Option<u64>,
    /// How the last one ended.
    #[serde(default)]
    pub last: Option<String>,
    /// Whether that was a failure.
    #[serde(default)]
    pub failed: bool,
}

/// One IKE SA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct IkeSaStatus {
    /// The initiator's and the responder's SPI in hexadecimal.
    pub spis: (String, String),
    /// Whether this side began it.
    pub is_initiator: bool,
    /// The identity that the peer has proven.
    pub identity: String,
    /// How.
    pub proof: String,
    /// The local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// The algorithms.
    pub suite: String,
    /// Whether this side is behind a NAT.
    pub nat_here: bool,
    /// Whether the peer is behind a NAT.
    pub nat_there: bool,
    /// Seconds since it is up.
    pub age_seconds: u64,
    /// Seconds until it is rekeyed.
    pub rekey_seconds: Option<u64>,
}

/// One pair of child SAs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ChildStatus {
    /// Its name.
    pub name: String,
    /// `active`; `standby`: the peer is not known to have its keys yet; `replaced`: it still receives; `orphaned`: its
    /// IKE SA has gone with its process.
    pub state: String,
    /// `esp` or `ah`.
    pub protocol: String,
    /// `tunnel` or `transport`.
    pub mode: String,
    /// The SPI of packets that arrive, in hexadecimal.
    pub inbound_spi: String,
    /// The SPI of packets that leave, in hexadecimal.
    pub outbound_spi: String,
    /// Algorithms, as setkey names them.
    pub suite: String,
    /// Pairs of networks, this side's first.
    pub networks: Vec<(String, String)>,
    /// Seconds since it was installed.
    pub age_seconds: u64,
    /// Seconds until it is rekeyed.
    pub rekey_seconds: Option<u64>,
    /// Seconds until it carries nothing any more, unless it is rekeyed.
    pub expires_seconds: Option<u64>,
    /// Packets and bytes that have arrived.
    pub received: (u64, u64),
    /// Packets and bytes that have left.
    pub sent: (u64, u64),
}

/// Every peer, for people.
pub(super) fn table(peers: impl Iterator<Item = PeerStatus>) -> String {
    let mut text = String::new();
    for peer in peers {
        let (device, why) = (peer.device.as_deref(), peer.why.as_deref());
        let next = peer.next_attempt_seconds;
        text += "peer ";
        text += &headline(&peer.name, &peer.state, device, why, next);
        text.push('\n');
        for ike in &peer.ike {
            ike_sa(&mut text, ike);
        }
        for child in &peer.children {
            child_sa(&mut text, child);
        }
        hook_lines(&mut text, peer.hooks.as_ref());
        if peer.children.is_empty() {
            text += "  networks closed: no child SA\n";
        }
    }
    text
}

/// How a peer is.
pub(super) fn headline(
    name: &str,
    state: &str,
    device: Option<&str>,
    why: Option<&str>,
    next_attempt_seconds: Option<u64>,
) -> String {
    let mut text = format!("{name} · {}", state.to_uppercase());
    if let Some(device) = device {
        let _ = write!(text, " · device {device}");
    }
    if let Some(why) = why {
        let _ = write!(text, " · {why}");
    }
    if let Some(seconds) = next_attempt_seconds {
        let _ = write!(text, " · next attempt in {}", duration(seconds));
    }
    text
}

fn hook_lines(text: &mut String, hooks: Option<&HookStatus>) {
    let Some(hooks) = hooks else { return };
    if let Some(running) = &hooks.running {
        let seconds = hooks.running_seconds.unwrap_or(0);
        let _ = writeln!(text, "  hook {running}: runs for {}", duration(seconds));
    }
    if let Some(last) = &hooks.last {
        let mark = if hooks.failed { " · FAILED" } else { "" };
        let _ = writeln!(text, "  hook {last}{mark}");
    }
}

fn ike_sa(text: &mut String, ike: &IkeSaStatus) {
    let role = if ike.is_initiator {
        "initiator"
    } else {
        "responder"
    };
    let nat = match (ike.nat_here, ike.nat_there) {
        (false, false) => "",
        (true, false) => " · NAT on this side",
        (false, true) => " · NAT on the peer's side",
        (true, true) => " · NAT on both sides",
    };
    let _ = writeln!(
        text,
        "  IKE SA {}_i {}_r · {role} · {} → {}{nat}",
        ike.spis.0, ike.spis.1, ike.local, ike.remote
    );
    let _ = writeln!(text, "    {} · {}", ike.identity, ike.proof);
    let _ = writeln!(
        text,
        "    {} · up {}{}",
        ike.suite,
        duration(ike.age_seconds),
        rekey(ike.rekey_seconds)
    );
}

fn child_sa(text: &mut String, child: &ChildStatus) {
    let _ = writeln!(
        text,
        "  child SA {} · {} · {} {} · in {} out {} · {}",
        child.name,
        child.state,
        child.protocol,
        child.mode,
        child.inbound_spi,
        child.outbound_spi,
        child.suite
    );
    for (local, remote) in &child.networks {
        let _ = writeln!(text, "    {local} ↔ {remote}");
    }
    let expires = child.expires_seconds.map_or_else(String::new, |seconds| {
        format!(" · ends in {}", duration(seconds))
    });
    let _ = writeln!(
        text,
        "    up {}{}{expires} · received {} packets, {} · sent {} packets, {}",
        duration(child.age_seconds),
        rekey(child.rekey_seconds),
        child.received.0,
        scaled(child.received.1, "B"),
        child.sent.0,
        scaled(child.sent.1, "B"),
    );
}

fn rekey(seconds: Option<u64>) -> String {
    seconds.map_or_else(String::new, |seconds| {
        format!(" · rekey in {}", duration(seconds))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_down_is_shown_with_its_reason_and_its_networks_as_closed() {
        let peer = PeerStatus {
            name: "office".to_owned(),
            state: "down".to_owned(),
            why: Some("the peer answered AUTHENTICATION_FAILED".to_owned()),
            next_attempt_seconds: Some(70),
            hooks: Some(HookStatus {
                told: "down".to_owned(),
                running: None,
                running_seconds: None,
                last: Some("on_down /bin/x: exit status 3 after 0.01 s: no route".to_owned()),
                failed: true,
            }),
            ..PeerStatus::default()
        };
        assert_eq!(
            table([peer].into_iter()),
            "peer office · DOWN · the peer answered AUTHENTICATION_FAILED · next attempt in 1 min 10 s\n  \
             hook on_down /bin/x: exit status 3 after 0.01 s: no route · FAILED\n  networks closed: no child SA\n"
        );
    }

    #[test]
    fn a_peer_that_is_up_lists_its_associations() {
        let peer = PeerStatus {
            name: "office".to_owned(),
            state: "up".to_owned(),
            ike: vec![IkeSaStatus {
                spis: ("0011223344556677".to_owned(), "8899aabbccddeeff".to_owned()),
                is_initiator: true,
                identity: "b.example.org".to_owned(),
                proof: "pre-shared key".to_owned(),
                local: "192.0.2.1:4500".parse().unwrap(),
                remote: "198.51.100.7:4500".parse().unwrap(),
                suite: "aes256gcm16-prfsha384-ecp384".to_owned(),
                nat_here: true,
                nat_there: false,
                age_seconds: 5,
                rekey_seconds: Some(14_000),
            }],
            children: vec![ChildStatus {
                name: "office".to_owned(),
                state: "active".to_owned(),
                protocol: "esp".to_owned(),
                mode: "tunnel".to_owned(),
                inbound_spi: "0x00001001".to_owned(),
                outbound_spi: "0x00001002".to_owned(),
                suite: "aes-gcm-16".to_owned(),
                networks: vec![("10.1.0.0/16".to_owned(), "10.2.0.0/16".to_owned())],
                age_seconds: 5,
                rekey_seconds: Some(3000),
                expires_seconds: Some(4195),
                received: (3, 252),
                sent: (3, 252),
            }],
            ..PeerStatus::default()
        };
        let text = table([peer].into_iter());
        for part in [
            "peer office · UP\n  IKE SA 0011223344556677_i 8899aabbccddeeff_r · initiator · 192.0.2.1:4500 → \
             198.51.100.7:4500 · NAT on this side\n",
            "    aes256gcm16-prfsha384-ecp384 · up 5 s · rekey in 3 h 53 min\n",
            "    10.1.0.0/16 ↔ 10.2.0.0/16\n    up 5 s · rekey in 50 min 0 s · ends in 1 h 9 min · received 3 \
             packets, 252 B · sent 3 packets, 252 B\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("closed"), "{text}");
    }
}
