//! Addresses, and the settings of the IKE SA.

use super::suite;
use crate::config::findings::Findings;
use crate::config::keys;
use crate::config::profile::Profile;
use crate::config::surroundings::Surroundings;
use crate::config::table::{Table, Text};
use ikev2::connection::{Connection, Encapsulation, Start};
use ikev2::message::payload::Protocol;
use ikev2::window::MAX_WINDOW;
use ipsec::setkey::Problem;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Times that make sense for rekeying: from what a test takes to what key lifetimes of peers are.
pub(super) const REKEY_TIMES: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
const DPD_TIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
const RETRANSMISSION_TIMES: RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(60);
const RETRY_TIMES: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);

/// IPv4 guarantees 576 bytes (RFC 791); a UDP datagram in Ethernet's largest frame has less than 9000.
const FRAGMENT_BYTES: RangeInclusive<u64> = 500..=9000;

/// The addresses of both gateways.
pub(super) struct Addresses {
    /// This one's; empty: any.
    pub(super) local: Vec<IpAddr>,
    /// The peer's, tried in turn; empty: any.
    pub(super) remote: Vec<IpAddr>,
}

/// `local` and `remote`, host names resolved. `None` if one of them is wrong.
pub(super) fn addresses(table: Table<'_>, around: &Surroundings<'_>) -> Option<Addresses> {
    let of = |name: &str| -> Option<Vec<IpAddr>> {
        if !table.has(name) {
            return Some(Vec::new());
        }
        let texts = table.texts(name)?;
        let found = texts
            .iter()
            .map(|text| table.findings().keep(resolved(*text, around)));
        let all: Option<Vec<_>> = found.collect();
        let mut addresses = Vec::new();
        for address in all?.into_iter().flatten() {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Some(addresses)
    };
    let (local, remote) = (of("local"), of("remote"));
    let addresses = Addresses {
        local: local?,
        remote: remote?,
    };
    table.findings().keep(check_families(table, &addresses))?;
    Some(addresses)
}

fn resolved(text: Text<'_>, around: &Surroundings<'_>) -> Result<Vec<IpAddr>, Problem> {
    let word = text.text.trim();
    if let Ok(address) = word.parse::<IpAddr>() {
        return if address.is_unspecified() || address.is_multicast() {
            Err(
                Problem::new(text.at, format!("{address} is no address of a gateway"))
                    .advise("leave the key out for any address"),
            )
        } else {
            Ok(vec![address])
        };
    }
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let looks_like_address = word
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if word.is_empty() || looks_like_address || !word.chars().all(is_name) {
        let problem = Problem::new(
            text.at,
            format!("\"{word}\" is neither an address nor a host name"),
        );
        return Err(problem
            .advise("write one such as \"192.0.2.1\", \"2001:db8::1\" or \"vpn.example.org\""));
    }
    match (around.resolve)(word) {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(lookup(text, "it has no address")),
        Err(why) => Err(lookup(text, &why.to_string())),
    }
}

fn lookup(text: Text<'_>, why: &str) -> Problem {
    let problem = Problem::lookup(
        text.at,
        format!("cannot find the address of {}: {why}", text.text),
    );
    problem.advise("write the address itself: names are looked up at the start and at each reload")
}

/// Packets go from one family to the same.
fn check_families(table: Table<'_>, addresses: &Addresses) -> Result<(), Problem> {
    let Addresses { local, remote } = addresses;
    // Where no name is looked up the address of one is unspecified, and its family unknown.
    let reaches = |remote: &IpAddr| {
        local.iter().any(|local| {
            let is_unknown = local.is_unspecified() || remote.is_unspecified();
            is_unknown || local.is_ipv4() == remote.is_ipv4()
        })
    };
    match remote
        .iter()
        .find(|remote| !local.is_empty() && !reaches(remote))
    {
        None => Ok(()),
        Some(remote) => {
            let family = if remote.is_ipv4() { "IPv4" } else { "IPv6" };
            let problem = table.problem_at(
                "remote",
                format!("no `local` address can reach {remote}: none is {family}"),
            );
            Err(problem.advise(format!(
                "add the local {family} address to `local`, or leave `local` out"
            )))
        }
    }
}

/// Everything else of the IKE SA, on top of the defaults and the profile.
pub(super) fn apply(
    table: Table<'_>,
    profile: Option<&Profile>,
    knows_addresses: bool,
    connection: &mut Connection,
) {
    let findings = table.findings();
    if let Some(profile) = profile {
        profile.apply(connection);
    }
    if let Some(offers) = suite::read(table, "ike", Protocol::IKE) {
        connection.ike = offers;
    } else if let Some((profile, at)) = profile.zip(table.place("profile")) {
        profile.warn(at, findings);
    }
    connection.start = start(table, knows_addresses, connection);
    dpd(table, connection);
    times(table, connection);
    let encapsulations = [
        ("auto", Encapsulation::AsFound),
        ("force", Encapsulation::Forced),
    ];
    set(
        &mut connection.encapsulation,
        table.choice("encapsulation", &encapsulations),
    );
    set(
        &mut connection.remote_port,
        table
            .number("remote_port", 1..=65535)
            .map(|port| port as u16),
    );
    set(
        &mut connection.fragment_bytes,
        table
            .number("fragment_bytes", FRAGMENT_BYTES)
            .map(|bytes| bytes as usize),
    );
    set(&mut connection.childless, table.flag("childless"));
    set(
        &mut connection.initial_contact,
        table.flag("initial_contact"),
    );
    let window = table.number("window", 1..=u64::from(MAX_WINDOW));
    set(&mut connection.window, window.map(|window| window as u32));
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// `start`; left out, at once if there is an address to begin with.
fn start(table: Table<'_>, knows_addresses: bool, connection: &Connection) -> Start {
    let can_begin = !connection.remote.is_empty();
    let words = [
        ("start", Start::AtStart),
        ("demand", Start::OnDemand),
        ("wait", Start::Wait),
    ];
    let default = if can_begin {
        Start::AtStart
    } else {
        Start::Wait
    };
    let start = table.choice("start", &words).unwrap_or(default);
    if knows_addresses && !can_begin && start != Start::Wait {
        let problem = table.problem_at(
            "start",
            "this side cannot begin: the peer has no `remote` address",
        );
        table.findings().problem(
            problem.advise("add `remote = \"198.51.100.7\"`, or write `start = \"wait\"`"),
        );
    }
    start
}

/// Dead peer detection; `"off"` turns it off.
fn dpd(table: Table<'_>, connection: &mut Connection) {
    let is_off = table.is_text("dpd") && table.text("dpd").is_some_and(|text| text.text == "off");
    if is_off {
        connection.dpd = None
    } else {
        connection.dpd = table.duration("dpd", DPD_TIMES).or(connection.dpd)
    }
}

fn times(table: Table<'_>, connection: &mut Connection) {
    if let Some(rekey) = table.table("rekey") {
        rekey.only(&keys::PEER_REKEY, "`rekey` of a peer");
        set(
            &mut connection.ike_lifetime,
            rekey.duration("ike", REKEY_TIMES),
        );
    }
    let jitter = table.number("jitter_percent", 0..=90);
    set(
        &mut connection.jitter_percent,
        jitter.map(|percent| percent as u8),
    );
    if let Some(retransmit) = table.table("retransmit") {
        retransmit.only(&keys::RETRANSMIT, "`retransmit`");
        let schedule = &mut connection.schedule;
        set(
            &mut schedule.first,
            retransmit.duration("first", RETRANSMISSION_TIMES),
        );
        set(
            &mut schedule.longest,
            retransmit.duration("longest", RETRANSMISSION_TIMES),
        );
        let repetitions = retransmit.number("repetitions", 1..=30);
        set(
            &mut schedule.repetitions,
            repetitions.map(|number| number as u32),
        );
        check_order(
            retransmit,
            (schedule.first, schedule.longest),
            table.findings(),
        );
    }
    if let Some(retry) = table.table("retry") {
        retry.only(&keys::RETRY, "`retry`");
        set(
            &mut connection.retry.0,
            retry.duration("first", RETRY_TIMES),
        );
        set(
            &mut connection.retry.1,
            retry.duration("longest", RETRY_TIMES),
        );
        check_order(retry, connection.retry, table.findings());
    }
}

fn check_order(table: Table<'_>, (first, longest): (Duration, Duration), findings: &Findings) {
    if first > longest {
        let problem = table.problem_at("longest", "`longest` is shorter than `first`");
        findings.problem(problem.advise("pauses grow from `first` to `longest`"));
    }
}
