//! What a file means, for people: each peer with its networks, suites and times.

use super::checked::{Config, ConfiguredPeer, Credential, Mode};
use super::units;
use ikev2::certificate::{Certificate, Revocation};
use ikev2::connection::{Child, ChildMode, Connection, Encapsulation, LocalProof, Start, Traffic};
use ikev2::message::payload::{AddressRange, Ports, Protocol};
use ikev2::negotiation::Offer;
use std::fmt::{Display, Write};
use std::net::IpAddr;

/// The columns of a row's name.
const NAME_COLUMNS: usize = 17;
/// The width of a line of suites.
const MAX_LINE_COLUMNS: usize = 100;

/// The whole file.
pub(crate) fn summary(config: &Config) -> String {
    let mut out = String::new();
    if !config.gateway.arguments.is_empty() {
        let _ = writeln!(
            out,
            "gateway: esplanade run {}",
            config.gateway.arguments.join(" ")
        );
    }
    for file in &config.gateway.setkey {
        let _ = writeln!(out, "includes: {}", file.display());
    }
    for peer in &config.peers {
        if !out.is_empty() {
            out.push('\n');
        }
        describe(&mut out, peer);
    }
    out
}

fn describe(out: &mut String, peer: &ConfiguredPeer) {
    let connection = &peer.connection;
    let _ = writeln!(out, "peer {}", connection.name);
    row(out, "addresses", addresses(connection));
    row(
        out,
        "identities",
        format!("{} <-> {}", connection.local_id, connection.remote_id),
    );
    row(out, "proof", proof(peer));
    row(out, "starts", starts(connection));
    row(
        out,
        "traffic enters",
        match &peer.mode {
            Mode::Route {
                device,
                by_networks: true,
                ..
            } => format!("by the device {device}, to which routes of its networks lead"),
            Mode::Route { device, .. } => {
                format!("by the device {device}, to which this gateway adds no route")
            }
            Mode::Policy => "by policies".to_owned(),
            Mode::Transport => "by policies, between the two gateways themselves".to_owned(),
        },
    );
    suites(out, "IKE", &connection.ike);
    row(
        out,
        "IKE rekey",
        format!(
            "after {}{}",
            units::shown(connection.ike_lifetime),
            jitter(connection)
        ),
    );
    row(
        out,
        "peer is checked",
        connection.dpd.map_or("never".to_owned(), |idle| {
            format!("after {} without a packet from it", units::shown(idle))
        }),
    );
    row(out, "sent again", resending(connection));
    for (name, hook) in [("on up", &peer.hooks.up), ("on down", &peer.hooks.down)] {
        if let Some(hook) = hook {
            row(out, name, hook);
        }
    }
    if let Some(other) = others(connection) {
        row(out, "and", other);
    }
    for child in &connection.children {
        describe_child(out, child);
    }
}

fn describe_child(out: &mut String, child: &Child) {
    let mode = match child.mode {
        ChildMode::Tunnel => "tunnel",
        ChildMode::Transport => "transport",
    };
    let waits = if child.on_demand {
        ", when a packet needs it"
    } else {
        ""
    };
    let _ = writeln!(out, "  child {} ({mode} mode{waits})", child.name);
    row(
        out,
        "  networks",
        format!("{} <-> {}", traffic(&child.local), traffic(&child.remote)),
    );
    let is_ah = child
        .offers
        .first()
        .is_some_and(|offer| offer.protocol() == Protocol::AH);
    suites(out, if is_ah { "  AH" } else { "  ESP" }, &child.offers);
    let lifetime = &child.lifetime;
    let mut when = format!("after {}", units::shown(lifetime.soft));
    if let Some(bytes) = lifetime.soft_bytes {
        let _ = write!(when, " or {}", units::bytes_shown(bytes));
    }
    if let Some(packets) = lifetime.soft_packets {
        let _ = write!(when, " or {packets} packets");
    }
    row(
        out,
        "  rekey",
        format!(
            "{when}; carries nothing after {}",
            units::shown(lifetime.hard)
        ),
    );
    row(
        out,
        "  replay window",
        match child.replay_window {
            0 => "none: recorded packets are accepted again".to_owned(),
            packets => format!("{packets} packets"),
        },
    );
}

fn row(out: &mut String, name: &str, value: impl Display) {
    let _ = writeln!(out, "  {name:<NAME_COLUMNS$} {value}");
}

fn addresses(connection: &Connection) -> String {
    let list = |addresses: &[IpAddr], any: &str| match addresses {
        [] => any.to_owned(),
        some => some
            .iter()
            .map(IpAddr::to_string)
            .collect::<Vec<_>>()
            .join(", then "),
    };
    let port = match connection.remote_port {
        ikev2::connection::IKE_PORT => String::new(),
        port => format!(" port {port}"),
    };
    format!(
        "{} <-> {}{port}",
        list(&connection.local, "any local address"),
        list(&connection.remote, "any address")
    )
}

fn proof(peer: &ConfiguredPeer) -> String {
    match (&peer.credential, &peer.connection.local_proof, &peer.trust) {
        (Credential::SharedSecret(secret), ..) => {
            let characters = String::from_utf8_lossy(secret.expose()).chars().count();
            format!("one pre-shared key of {characters} characters for both sides")
        }
        (_, LocalProof::Certificate { chain, .. }, Some(trust)) => {
            let own = chain
                .first()
                .and_then(|der| Certificate::from_der(der).ok());
            let own = own.map_or_else(String::new, |own| {
                format!(" of {}, signed by {}", own.subject(), own.issuer())
            });
            let lists = match (trust.lists.len(), trust.revocation) {
                (0, _) => "no revocation list".to_owned(),
                (count, Revocation::WhereKnown) => format!("{count} files of revocation lists"),
                (count, Revocation::Required) => format!(
                    "{count} files of revocation lists, which have to cover each certificate"
                ),
            };
            let roots = trust.roots.len();
            format!("certificate{own}; the peer's by {roots} files of CAs, {lists}")
        }
        _ => "certificates".to_owned(),
    }
}

fn starts(connection: &Connection) -> String {
    let retry = format!(
        "again after {} up to {} for ever",
        units::shown(connection.retry.0),
        units::shown(connection.retry.1)
    );
    match connection.start {
        Start::AtStart => format!("at once, {retry}"),
        Start::OnDemand => format!("when a packet needs it, {retry}"),
        Start::Wait => "when the peer does, or by `esplanade up`".to_owned(),
    }
}

fn jitter(connection: &Connection) -> String {
    match connection.jitter_percent {
        0 => String::new(),
        percent => format!(", less up to {percent} % at random, as for its children"),
    }
}

fn resending(connection: &Connection) -> String {
    let schedule = &connection.schedule;
    format!(
        "{} times, after {} at first and {} at last; then the peer is dead",
        schedule.repetitions,
        units::shown(schedule.first),
        units::shown(schedule.longest)
    )
}

/// Settings that are rarely changed, where they were.
fn others(connection: &Connection) -> Option<String> {
    let standard = Connection::new(
        &connection.name,
        (connection.local_id.clone(), connection.local_proof.clone()),
        (
            connection.remote_id.clone(),
            connection.remote_proof.clone(),
        ),
        true,
    );
    let mut others = Vec::new();
    if connection.encapsulation == Encapsulation::Forced {
        others.push("ESP always in UDP".to_owned());
    }
    if connection.fragment_bytes != standard.fragment_bytes {
        others.push(format!(
            "IKE messages of at most {} bytes",
            connection.fragment_bytes
        ));
    }
    if connection.childless {
        others.push("an IKE SA without child first".to_owned());
    }
    if connection.window != standard.window {
        others.push(format!(
            "{} requests of the peer at a time",
            connection.window
        ));
    }
    if !connection.initial_contact {
        others.push("no INITIAL_CONTACT".to_owned());
    }
    (!others.is_empty()).then(|| others.join(", "))
}

fn suites(out: &mut String, name: &str, offers: &[Offer]) {
    for (index, offer) in offers.iter().enumerate() {
        let mut line = String::new();
        let mut name = if index == 0 { name } else { "" };
        for part in offer.to_string().split_inclusive('-') {
            if line.len() + part.len() + NAME_COLUMNS > MAX_LINE_COLUMNS {
                row(out, name, &line);
                (name, line) = ("", "  ".to_owned());
            }
            line.push_str(part);
        }
        row(out, name, line);
    }
}

fn traffic(all: &[Traffic]) -> String {
    let one = |traffic: &Traffic| {
        let protocol = match traffic.protocol {
            0 => String::new(),
            6 => " tcp".to_owned(),
            17 => " udp".to_owned(),
            other => format!(" protocol {other}"),
        };
        let port = match traffic.ports {
            Ports::ANY => String::new(),
            Ports::Range { first, .. } => format!(" port {first}"),
            Ports::Opaque => " without ports".to_owned(),
        };
        format!("{}{protocol}{port}", network(traffic.addresses))
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The network of one selector, without protocol and ports.
pub(crate) fn network_text(traffic: &Traffic) -> String {
    network(traffic.addresses)
}

/// As it was written: every range of a file is a prefix.
fn network(range: AddressRange) -> String {
    let (first, last) = range.bounds();
    let free = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (first.to_bits() ^ last.to_bits()).count_ones(),
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits() ^ last.to_bits()).count_ones(),
        _ => 0,
    };
    let bits = if first.is_ipv4() { 32 } else { 128 };
    match free {
        0 => first.to_string(),
        free => format!("{first}/{}", bits - free),
    }
}
