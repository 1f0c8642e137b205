//! Children: the traffic that is protected, and how. A peer without `[peer.NAME.child.…]` has one child, which has its
//! name.

use super::settings::{Addresses, REKEY_TIMES};
use super::{name, suite};
use crate::argument;
use crate::config::keys;
use crate::config::network::{host, network};
use crate::config::profile::Profile;
use crate::config::table::{Table, Text};
use crate::config::units;
use ikev2::connection::{Child, ChildMode, Traffic};
use ikev2::message::payload::{AddressRange, Ports, Protocol};
use ipsec::setkey::{Problem, Span};
use std::time::Duration;

/// What a peer's children have in common.
pub(super) struct Settings<'a> {
    /// Its table, whose keys hold for every child that does not have them.
    pub(super) peer: Table<'a>,
    /// Its profile.
    pub(super) profile: Option<&'static Profile>,
    /// Whether the traffic is that of the two gateways themselves.
    pub(super) is_transport: bool,
    /// Their addresses.
    pub(super) addresses: Option<&'a Addresses>,
    /// Whether the processor has instructions for AES.
    pub(super) aes_is_fast: bool,
}

/// Packets of the largest replay window.
const MAX_REPLAY_WINDOW_PACKETS: u64 = 8192;

/// Every child; `None` if one of them is wrong.
pub(super) fn read_all(peer_name: Text<'_>, settings: &Settings<'_>) -> Option<Vec<Child>> {
    let own = settings.peer.tables("child");
    let findings = settings.peer.findings();
    if own.is_empty() {
        return Some(vec![read(peer_name, settings.peer, settings)?]);
    }
    let children: Vec<_> = own
        .into_iter()
        .map(|(title, table)| {
            table.only(&keys::CHILD, "a child");
            findings.keep(name::check(title, "child"));
            read(title, table, settings)
        })
        .collect();
    children.into_iter().collect()
}

fn read(title: Text<'_>, table: Table<'_>, settings: &Settings<'_>) -> Option<Child> {
    // The child's own table if it has the key, else the peer's.
    let with = |key: &str| if table.has(key) { table } else { settings.peer };
    let traffic = traffic(table, settings);
    let offers = offers(with("esp"), with("ah"), settings);
    let (local, remote) = traffic?;
    let mut child = Child::new(title.text, local, remote, settings.aes_is_fast);
    if settings.is_transport {
        child.mode = ChildMode::Transport;
    }
    if let Some(profile) = settings.profile {
        profile.apply_to_child(&mut child);
        warn_of_pairs(title.at, profile, &child, settings);
    }
    match offers {
        Offers::Named(offers) => child.offers = offers,
        Offers::Wrong => return None,
        Offers::Default => {}
    }
    let window = with("replay_window").number("replay_window", 0..=MAX_REPLAY_WINDOW_PACKETS);
    if let Some(packets) = window {
        child.replay_window = packets as u32;
    }
    if window == Some(0) {
        let at = with("replay_window").problem_at("replay_window", "").span;
        settings
            .peer
            .findings()
            .warn(at, "replay_window 0: recorded packets are accepted again");
    }
    lifetime(table, settings.peer, &mut child);
    if settings.peer.at != table.at {
        child.on_demand =
            table.choice("start", &[("start", false), ("demand", true)]) == Some(true);
    }
    Some(child)
}

enum Offers {
    Default,
    Named(Vec<ikev2::negotiation::Offer>),
    Wrong,
}

/// `esp` or `ah`, of which the child's own counts more than the peer's.
fn offers(esp: Table<'_>, ah: Table<'_>, settings: &Settings<'_>) -> Offers {
    let (has_esp, has_ah) = (esp.has("esp"), ah.has("ah"));
    let (table, key, protocol) = match (has_esp, has_ah) {
        (false, false) => return Offers::Default,
        (true, true) if esp.at == ah.at => {
            let problem = ah.problem_at("ah", "a child has either `esp` or `ah`");
            settings
                .peer
                .findings()
                .problem(problem.advise("remove one; ESP authenticates too"));
            return Offers::Wrong;
        }
        // Of both, that which is the child's own.
        (true, true) if esp.at == settings.peer.at => (ah, "ah", Protocol::AH),
        (true, _) => (esp, "esp", Protocol::ESP),
        (false, true) => (ah, "ah", Protocol::AH),
    };
    suite::read(table, key, protocol).map_or(Offers::Wrong, Offers::Named)
}

/// What the child protects: networks, or in transport mode the two gateways, both with protocol and ports.
fn traffic(table: Table<'_>, settings: &Settings<'_>) -> Option<(Vec<Traffic>, Vec<Traffic>)> {
    let with = |key: &str| if table.has(key) { table } else { settings.peer };
    let protocol = protocol(with("protocol"));
    let ports = ports(with("ports"), protocol);
    let (local, remote) = if settings.is_transport {
        hosts(table, settings)?
    } else {
        networks(table, with("networks"))?
    };
    let (local_port, remote_port) = ports?;
    let of = |ranges: Vec<AddressRange>, ports: Ports| -> Vec<Traffic> {
        let traffic = |addresses| Traffic {
            protocol: protocol.unwrap_or(0),
            ports,
            addresses,
        };
        ranges.into_iter().map(traffic).collect()
    };
    Some((of(local, local_port), of(remote, remote_port)))
}

fn networks(child: Table<'_>, table: Table<'_>) -> Option<(Vec<AddressRange>, Vec<AddressRange>)> {
    let findings = table.findings();
    if !table.has("networks") {
        let problem = Problem::new(
            child.at,
            "no `networks`: nothing says which traffic is protected",
        );
        findings.problem(
            problem.advise(
                "add `networks = { local = [\"10.1.0.0/16\"], remote = [\"10.2.0.0/16\"] }`",
            ),
        );
        return None;
    }
    let networks = table.table("networks")?;
    networks.only(&keys::SIDES, "`networks`");
    let side = |name: &str| -> Option<Vec<AddressRange>> {
        if !networks.has(name) {
            let problem = Problem::new(networks.at, format!("`networks` has no `{name}`"));
            findings.problem(problem.advise(format!(
                "add `{name} = [\"10.0.0.0/8\"]` with the {name} networks"
            )));
            return None;
        }
        let texts = networks.texts(name)?;
        let ranges: Vec<_> = texts
            .iter()
            .map(|text| findings.keep(one_network(*text)))
            .collect();
        ranges.into_iter().collect()
    };
    let (local, remote) = (side("local"), side("remote"));
    let (local, remote) = (local?, remote?);
    let is_ipv4 = |range: &AddressRange| range.bounds().0.is_ipv4();
    let meets = |range: &AddressRange| local.iter().any(|local| is_ipv4(local) == is_ipv4(range));
    if !remote.iter().any(meets) {
        let problem = networks.problem_at(
            "remote",
            "local and remote networks have no address family in common",
        );
        findings.problem(problem.advise("IPv4 networks talk to IPv4 networks, and IPv6 to IPv6"));
        return None;
    }
    Some((local, remote))
}

fn one_network(text: Text<'_>) -> Result<AddressRange, Problem> {
    network(text.text).map_err(|wrong| Problem::new(text.at, wrong.message).advise(wrong.advice))
}

fn hosts(
    table: Table<'_>,
    settings: &Settings<'_>,
) -> Option<(Vec<AddressRange>, Vec<AddressRange>)> {
    let findings = table.findings();
    let with = if table.has("networks") {
        table
    } else {
        settings.peer
    };
    if with.has("networks") {
        let problem = with.problem_at(
            "networks",
            "transport mode protects the two gateways themselves, no networks",
        );
        findings.problem(problem.advise("remove `networks`, or `mode = \"transport\"`"));
        return None;
    }
    let addresses = settings.addresses?;
    if addresses.local.is_empty() || addresses.remote.is_empty() {
        let problem = settings
            .peer
            .problem_at("mode", "transport mode needs `local` and `remote`");
        findings.problem(
            problem.advise("write both addresses: they are the traffic that is protected"),
        );
        return None;
    }
    let ranges =
        |addresses: &[std::net::IpAddr]| addresses.iter().copied().filter_map(host).collect();
    Some((ranges(&addresses.local), ranges(&addresses.remote)))
}

fn protocol(table: Table<'_>) -> Option<u8> {
    let (at, words) = table.has("protocol").then(|| table.words("protocol"))??;
    let word = words.first()?;
    let number = argument::protocol(word).map_err(|why| {
        Problem::new(at, format!("`{word}` is no protocol")).advise(why.to_string())
    });
    table.findings().keep(number)
}

/// `ports = { local = 443, remote = … }`, all where nothing is written.
fn ports(table: Table<'_>, protocol: Option<u8>) -> Option<(Ports, Ports)> {
    let Some(ports) = table.has("ports").then(|| table.table("ports")).flatten() else {
        return Some((Ports::ANY, Ports::ANY));
    };
    ports.only(&keys::SIDES, "`ports`");
    if protocol.is_none_or(|number| number == 0) {
        let problem = Problem::new(ports.at, "ports without a protocol");
        table
            .findings()
            .problem(problem.advise("add `protocol = \"tcp\"` or `protocol = \"udp\"`"));
    }
    let side = |name: &str| match ports.number(name, 0..=65535) {
        Some(port) => Ports::new(port as u16, port as u16),
        None => Some(Ports::ANY),
    };
    Some((side("local")?, side("remote")?))
}

fn lifetime(table: Table<'_>, peer: Table<'_>, child: &mut Child) {
    // In the order in which later ones count more.
    let tables = if table.at == peer.at {
        vec![peer]
    } else {
        vec![peer, table]
    };
    let mut hard = None;
    for table in tables {
        if let Some(rekey) = table.table("rekey") {
            if table.at != peer.at {
                rekey.only(&keys::CHILD_REKEY, "`rekey` of a child");
            }
            rekey_limits(rekey, child);
        }
        hard = table.duration("hard_lifetime", REKEY_TIMES).or(hard);
    }
    let soft = child.lifetime.soft;
    if child.lifetime.hard <= soft || hard.is_none() {
        child.lifetime.hard = soft + margin(soft);
    }
    match hard {
        Some(hard) if hard > soft => child.lifetime.hard = hard,
        Some(_) => {
            let table = if table.has("hard_lifetime") {
                table
            } else {
                peer
            };
            let problem = table.problem_at(
                "hard_lifetime",
                "the hard lifetime ends before the child is rekeyed",
            );
            let advice = format!("more than {}, which is `rekey.child`", units::shown(soft));
            peer.findings().problem(problem.advise(advice));
        }
        None => {}
    }
}

/// A sixth of the lifetime, and enough for a rekey whose messages are lost.
fn margin(soft: Duration) -> Duration {
    (soft / 6).max(Duration::from_secs(60))
}

fn rekey_limits(rekey: Table<'_>, child: &mut Child) {
    if let Some(soft) = rekey.duration("child", REKEY_TIMES) {
        child.lifetime.soft = soft;
    }
    if rekey.has("bytes") {
        let bytes = rekey.text("bytes").and_then(|text| {
            let bytes = units::bytes(text.text);
            rekey.findings().keep(bytes.map_err(|advice| {
                Problem::new(text.at, format!("\"{}\" is no number of bytes", text.text))
                    .advise(advice.to_string())
            }))
        });
        child.lifetime.soft_bytes = bytes.or(child.lifetime.soft_bytes);
    }
    let packets = rekey.number("packets", 1..=u64::from(u32::MAX));
    child.lifetime.soft_packets = packets.or(child.lifetime.soft_packets);
}

/// Peers that take one network of each side in a child do not narrow several to one as RFC 7296 2.9 has it.
fn warn_of_pairs(at: Span, profile: &Profile, child: &Child, settings: &Settings<'_>) {
    if profile.takes_one_pair && (child.local.len() > 1 || child.remote.len() > 1) {
        settings.peer.findings().warn(
            at,
            format!(
                "{} takes one pair of networks in a child: write a [peer.….child.…] for each pair",
                profile.title
            ),
        );
    }
}
