//! Each peer for `status`: what IKE reports, and what the plane has installed.

use super::networks::Child;
use super::peers::Peers;
use super::reports::{Report, Reports};
use super::states::States;
use crate::events::protocol_name;
use crate::report::suite_name;
use crate::status::{BriefPeer, BriefState, ChildStatus, IkeSaStatus, PeerStatus};
use ikev2::child_sa::Stage;
use ikev2::endpoint::{ChildId, ChildReport, IkeReport, PeerState};
use ipsec::database::Snapshot;
use ipsec::policy::Prefix;
use ipsec::sa::{Mode, SaConfig, SaUsage};
use std::collections::HashSet;
use std::time::Duration;

/// Why a peer of whose state nothing has come is not up.
const NOT_TOLD: &str = "the key exchange process has not reported its state";

/// Every configured peer, and those that are not configured any more but still have child SAs. Without reports, IKE
/// does not run.
pub(crate) fn peers<'a>(
    configured: &[&'a str],
    reports: Option<&'a Reports>,
    peers: &'a Peers,
    snapshot: &'a Snapshot,
    now: u64,
) -> impl Iterator<Item = PeerStatus> + use<'a> {
    names(configured, peers).map(move |name| peer(name, reports, peers, snapshot, now))
}

/// One of them.
pub(crate) fn peer(
    name: &str,
    reports: Option<&Reports>,
    peers: &Peers,
    snapshot: &Snapshot,
    now: u64,
) -> PeerStatus {
    let report = reports.and_then(|reports| reports.get(name));
    let children = peers.children_of(name);
    let children: Vec<_> = children
        .map(|(id, known)| child(id, known, report, snapshot, now))
        .collect();
    PeerStatus {
        device: peers.device(name).map(str::to_owned),
        ..told_peer(name, report, children)
    }
}

/// Those that are configured, and those that still have child SAs.
fn names<'a>(configured: &[&'a str], peers: &'a Peers) -> impl Iterator<Item = &'a str> + use<'a> {
    let mut names: Vec<&'a str> = configured.to_vec();
    names.extend(peers.children().map(|(name, _, _)| name));
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(*name));
    names.into_iter()
}

/// How each of them is, by what the ike process has told without being asked.
pub(crate) fn brief_peers<'a>(
    configured: &[&'a str],
    states: &'a States,
    peers: &'a Peers,
) -> impl Iterator<Item = BriefPeer<'a>> + use<'a> {
    names(configured, peers).map(move |name| {
        let told = states.get(name);
        let told_state = told.map(|told| &told.now);
        let is_orphan = |(_, child): (ChildId, &Child)| child.is_orphaned;
        let has_child = peers.children_of(name).next().is_some();
        let is_orphaned = has_child && peers.children_of(name).all(is_orphan);
        let state = match told_state {
            Some(PeerState::Up) if has_child => BriefState::Up,
            Some(PeerState::Up) => BriefState::UpWithoutChild,
            _ if is_orphaned => BriefState::Orphaned,
            Some(PeerState::Connecting { .. }) => BriefState::Connecting,
            Some(PeerState::Down { .. }) | None => BriefState::Down,
        };
        let since = told.map(|told| told.age()).unwrap_or_default();
        BriefPeer {
            name,
            state,
            why: told_state.map_or_else(|| Some(NOT_TOLD.to_owned()), why),
            next_attempt_seconds: told_state.and_then(|told| next_attempt(told, since)),
            hook_failure: None,
        }
    })
}

/// Why a peer is not up.
fn why(state: &PeerState) -> Option<String> {
    match state {
        PeerState::Up => None,
        PeerState::Connecting {
            remote,
            step,
            last_failure,
        } => {
            let last = last_failure
                .iter()
                .map(|why| format!("; the last attempt: {why}"));
            Some(format!("{step}, {remote}{}", last.collect::<String>()))
        }
        PeerState::Down { why, .. } => Some(why.clone()),
    }
}

/// Seconds until a peer is tried again, so long after that was told.
fn next_attempt(state: &PeerState, since: Duration) -> Option<u64> {
    match state {
        PeerState::Down { next_in, .. } => left(*next_in, since),
        _ => None,
    }
}

fn told_peer(name: &str, told: Option<&Report>, children: Vec<ChildStatus>) -> PeerStatus {
    let (report, since) = (told.map(|told| &told.peer), told.map(Report::age));
    let since = since.unwrap_or_default();
    let mut status = PeerStatus {
        name: name.to_owned(),
        state: "down".to_owned(),
        children,
        ..PeerStatus::default()
    };
    match report.map(|report| &report.state) {
        None => status.why = Some("the key exchange process does not answer".to_owned()),
        Some(state) => {
            status.why = why(state);
            status.next_attempt_seconds = next_attempt(state, since);
            match state {
                PeerState::Up => status.state = "up".to_owned(),
                PeerState::Connecting { .. } => status.state = "connecting".to_owned(),
                PeerState::Down { .. } => {}
            }
        }
    }
    let is_orphaned = !status.children.is_empty()
        && status
            .children
            .iter()
            .all(|child| child.state == "orphaned");
    if is_orphaned && status.state != "up" {
        status.state = "orphaned".to_owned();
    }
    status.ike = report
        .iter()
        .flat_map(|report| &report.ike)
        .map(|report| ike_sa(report, since))
        .collect();
    status
}

/// `since`: how long ago it was reported.
fn ike_sa(report: &IkeReport, since: Duration) -> IkeSaStatus {
    let hex = |octets: [u8; 8]| format!("{:016x}", u64::from_be_bytes(octets));
    IkeSaStatus {
        spis: (hex(report.spis.0), hex(report.spis.1)),
        is_initiator: report.is_initiator,
        identity: report.identity.clone(),
        proof: report.proof.clone(),
        local: report.local,
        remote: report.remote,
        suite: report.suite.clone(),
        nat_here: report.nat.0,
        nat_there: report.nat.1,
        age_seconds: (report.age + since).as_secs(),
        rekey_seconds: left(report.rekey_in, since),
    }
}

/// What is left of a time, in seconds, so long after it was reported.
fn left(time: Option<Duration>, since: Duration) -> Option<u64> {
    time.map(|time| time.saturating_sub(since).as_secs())
}

fn child(
    id: ChildId,
    child: &Child,
    report: Option<&Report>,
    snapshot: &Snapshot,
    now: u64,
) -> ChildStatus {
    let [inbound, outbound] = child.associations.both();
    let mut reports = report
        .iter()
        .flat_map(|report| &report.peer.ike)
        .flat_map(|ike| &ike.children);
    let told: Option<&ChildReport> = reports.find(|told| told.id == id);
    let usage = |config: &SaConfig| -> Option<SaUsage> {
        let place = snapshot.find(&config.id)?;
        Some(snapshot.sa(place).state.usage())
    };
    let (received, sent) = (usage(inbound), usage(outbound));
    let age = received
        .as_ref()
        .map_or(0, |usage| now.saturating_sub(usage.created));
    let count = |usage: &Option<SaUsage>| {
        let usage = usage.as_ref();
        usage.map_or((0, 0), |usage| (usage.packets, usage.bytes))
    };
    ChildStatus {
        name: child.name.clone(),
        state: match () {
            () if child.is_orphaned => "orphaned",
            () if told.is_some_and(|told| is_replaced(told.stage)) => "replaced",
            () if outbound.is_standby => "standby",
            () => "active",
        }
        .to_owned(),
        protocol: protocol_name(inbound.id.protocol).to_owned(),
        mode: match inbound.mode {
            Mode::Transport => "transport",
            Mode::Tunnel | Mode::Any => "tunnel",
        }
        .to_owned(),
        inbound_spi: inbound.id.spi.to_string(),
        outbound_spi: outbound.id.spi.to_string(),
        suite: suite_name(inbound),
        networks: child.networks(prefix_text),
        age_seconds: age,
        rekey_seconds: left(
            told.and_then(|told| told.rekey_in),
            report.map(Report::age).unwrap_or_default(),
        ),
        expires_seconds: Some(inbound.lifetimes.hard.age.saturating_sub(age)),
        received: count(&received),
        sent: count(&sent),
    }
}

fn is_replaced(stage: Stage) -> bool {
    matches!(stage, Stage::Replaced | Stage::Deleting | Stage::Draining)
}

fn prefix_text(prefix: Prefix) -> String {
    format!("{}/{}", prefix.address, prefix.len)
}
