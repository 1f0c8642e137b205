//! From the data plane's counters to the content of `status`, `drops`, `events` and `explain`.

mod explain;
mod traits;

pub(crate) use explain::{explain, packet_of};
pub(crate) use traits::Directions;

use crate::events::{PolicyName, SaName, What, direction_name, selector_text};
use crate::routes::firewall::REFUSED;
use crate::status::{Drops, LaneStatus, PolicyStatus, SaDrops, SaStatus, Traffic};
use dataplane::counters::PacketCounts;
use dataplane::io::tun::TunOffloads;
use dataplane::pipeline::governor::LaneReport;
use dataplane::train::TrainKinds;
use ipsec::Dropped;
use ipsec::command::PolicyReport;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::policy::{Action, Direction, Level, Policy, Template};
use ipsec::sa::Phase;
use ipsec::sa::{Mode, Sa, SaConfig};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// One association for `status`.
pub(crate) fn association(sa: &Sa, directions: &Directions) -> SaStatus {
    let (config, usage) = (&sa.config, sa.state.usage());
    SaStatus {
        name: SaName::of(config),
        mode: mode_name(config.mode).to_owned(),
        suite: suite_name(config),
        encapsulation: config
            .encapsulation
            .map(|udp| (udp.source_port, udp.destination_port)),
        traits: traits::traits(config, directions),
        moved_to: None,
        carried_by: None,
        stands_by: config.is_standby,
        interface: config.interface.as_ref().map(|name| name.to_string()),
        reqid: config.reqid.0,
        phase: phase_name(usage.phase).to_owned(),
        esn: config.esn,
        replay_window: config.replay_window,
        sequence: usage.sequence,
        packets: usage.packets,
        bytes: usage.bytes,
        created: usage.created,
        last_used: usage.last_used,
        drops: by_name(sa.state.drops().into_iter()),
        mtu: None,
    }
}

/// One policy for `status`.
pub(crate) fn policy(report: &PolicyReport) -> PolicyStatus {
    PolicyStatus {
        id: report.id,
        direction: direction_name(report.policy.direction).to_owned(),
        selector: selector_text(&report.policy.selector),
        action: action_text(&report.policy.action),
        spread: report.policy.spread,
        priority: report.policy.priority,
        created: report.created,
        last_used: report.last_used,
    }
}

/// One direction for `status`.
pub(crate) fn traffic(
    tally: &PacketCounts,
    (packets_per_second, bits_per_second): (u64, u64),
) -> Traffic {
    Traffic {
        packets: tally.packets,
        bytes: tally.bytes,
        batches: tally.batches,
        calls: tally.calls,
        dropped: tally.dropped(),
        packets_per_second,
        bits_per_second,
    }
}

/// How both directions work, for `status`.
pub(crate) fn lanes(reports: [LaneReport; 2]) -> Vec<LaneStatus> {
    let shown = |(direction, report): (&str, LaneReport)| LaneStatus {
        direction: direction.to_owned(),
        mode: match report.workers {
            0 => "inline".to_owned(),
            _ => "workers".to_owned(),
        },
        workers: report.workers,
        busy: report.busy,
        serial_ns: report.costs.serial_ns,
        transform_ns: report.costs.transform_ns,
        call_ns: report.costs.call_ns,
        why: report.why.to_string(),
    };
    ["outbound", "inbound"]
        .into_iter()
        .zip(reports)
        .map(shown)
        .collect()
}

/// Everything for `drops`; `counters` are those of the drop rules, by name with packets and bytes.
pub(crate) fn drops<'a>(
    tallies: &[PacketCounts],
    sas: impl Iterator<Item = &'a Arc<Sa>>,
    counters: &[(&'static str, u64, u64)],
) -> Drops {
    let counted = Dropped::ALL.iter().map(|reason| {
        let count = tallies
            .iter()
            .map(|tally| tally.drops[reason.index()])
            .sum();
        (*reason, count)
    });
    let mut reasons = by_name(counted);
    let (refused, clear): (Vec<_>, Vec<_>) = counters
        .iter()
        .partition(|(name, ..)| REFUSED.contains(name));
    let refused = refused.iter().filter(|(_, packets, _)| *packets > 0);
    // Counted with the engine's drops: these are decrypted packets that the kernel dropped behind the device.
    reasons.extend(refused.map(|(name, packets, _)| (name.replace('_', "-"), *packets)));
    Drops {
        total: reasons.values().sum(),
        reasons,
        associations: sas
            .map(|sa| SaDrops {
                name: SaName::of(&sa.config),
                reasons: by_name(sa.state.drops().into_iter()),
            })
            .filter(|sa| !sa.reasons.is_empty())
            .collect(),
        clear: clear
            .iter()
            .map(|(name, packets, _)| ((*name).to_owned(), *packets))
            .collect(),
    }
}

fn by_name(counts: impl Iterator<Item = (Dropped, u64)>) -> BTreeMap<String, u64> {
    counts
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| (reason.name().to_owned(), count))
        .collect()
}

/// What start-up probes of the TUN device found.
pub(crate) fn offloads(abilities: TunOffloads) -> Vec<String> {
    let trains = |takes: TrainKinds| {
        let kinds = [
            ("TCP/IPv4", takes.tcp_v4),
            ("TCP/IPv6", takes.tcp_v6),
            ("UDP", takes.udp),
        ];
        let works: Vec<_> = kinds
            .into_iter()
            .filter(|(_, yes)| *yes)
            .map(|(name, _)| name)
            .collect();
        if works.is_empty() {
            "none".to_owned()
        } else {
            works.join(", ")
        }
    };
    vec![format!(
        "TUN offloads: segmentation (GSO) from the kernel: {}; to the kernel: {}; partial checksums: {}",
        trains(abilities.read),
        trains(abilities.write),
        if abilities.checksum { "yes" } else { "no" }
    )]
}

/// The most memory this process has held, in bytes, as the kernel counts it.
pub(crate) fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The differences between two snapshots, as events.
pub(crate) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<What> {
    let mut changes = Vec::new();
    for sa in after.sas() {
        let name = || SaName::of(&sa.config);
        let old = before.find(&sa.config.id).map(|old| before.sa(old));
        match old.filter(|old| Arc::ptr_eq(&old.state, &sa.state)) {
            Some(old) if std::ptr::eq(old, &**sa) => {}
            Some(_) => changes.push(What::SaUpdated(name())),
            None => changes.push(What::SaAdded(name())),
        }
    }
    let is_kept = |sa: &Arc<Sa>| {
        let new = after.find(&sa.config.id).map(|new| after.sa(new));
        new.is_some_and(|new| Arc::ptr_eq(&new.state, &sa.state))
    };
    let gone = before.sas().filter(|sa| !is_kept(sa));
    // Deletions first, then additions: an association deleted and added again is reported in that order.
    let mut all: Vec<_> = gone
        .map(|sa| What::SaDeleted(SaName::of(&sa.config)))
        .collect();
    all.append(&mut changes);
    for direction in [Direction::Out, Direction::In, Direction::Fwd] {
        let (old, new) = differing(before.policies(direction), after.policies(direction));
        let gone = old.iter().filter(|(id, _)| !new.contains_key(*id));
        all.extend(gone.map(|(_, policy)| What::PolicyDeleted(PolicyName::of(policy))));
        let came = new
            .iter()
            .filter(|(id, policy)| !old.get(*id).is_some_and(|known| Arc::ptr_eq(known, policy)));
        all.extend(came.map(|(_, policy)| What::PolicyAdded(PolicyName::of(policy))));
    }
    all
}

/// A policy with its number.
type Numbered<'a> = (u32, &'a Arc<Policy>);
type ByNumber<'a> = HashMap<u32, &'a Arc<Policy>>;

/// The policies of both lists, by number, but for those that begin and end both.
fn differing<'a>(
    before: impl Iterator<Item = Numbered<'a>>,
    after: impl Iterator<Item = Numbered<'a>>,
) -> (ByNumber<'a>, ByNumber<'a>) {
    let (before, after): (Vec<_>, Vec<_>) = (before.collect(), after.collect());
    let same = |(one, other): &(&Numbered<'_>, &Numbered<'_>)| {
        one.0 == other.0 && Arc::ptr_eq(one.1, other.1)
    };
    let first = before.iter().zip(&after).take_while(same).count();
    let (before, after) = (&before[first..], &after[first..]);
    let both = before.iter().rev().zip(after.iter().rev());
    let last = both.take_while(same).count();
    let rest = |list: &[Numbered<'a>]| list[..list.len() - last].iter().copied().collect();
    (rest(before), rest(after))
}

/// Where a change has made one association carry traffic that another of a different kind could carry too: a sentence
/// for each such pair.
pub(crate) fn rivals(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let ids = |snapshot: &Snapshot, index: SaIndex| snapshot.sa(index).config.id;
    let known: HashSet<_> = before
        .shadowed()
        .into_iter()
        .map(|rival| (ids(before, rival.idle), ids(before, rival.carrier)))
        .collect();
    let news = after
        .shadowed()
        .into_iter()
        .filter(|rival| !known.contains(&(ids(after, rival.idle), ids(after, rival.carrier))));
    let sentence = |rival: ipsec::database::Shadowed| {
        format!(
            "{} carries all traffic that {} matches too: of several matching associations the newest is used. Delete \
             the unwanted one, or separate them with `-u N` and `unique:N`",
            kind_of(&after.sa(rival.carrier).config),
            kind_of(&after.sa(rival.idle).config)
        )
    };
    news.map(sentence).collect()
}

/// An association with what distinguishes it from another between the same ends.
fn kind_of(config: &SaConfig) -> String {
    let encapsulation = config.encapsulation.map_or_else(
        || "native".to_owned(),
        |udp| format!("in UDP {}-{}", udp.source_port, udp.destination_port),
    );
    format!(
        "{} ({}, {encapsulation})",
        SaName::of(config),
        suite_name(config)
    )
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Any => "any",
        Mode::Transport => "transport",
        Mode::Tunnel => "tunnel",
    }
}

/// A phase of an association's life.
pub(crate) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Larval => "larval",
        Phase::Mature => "mature",
        Phase::Dying => "dying",
        Phase::Dead => "dead",
    }
}

/// Its algorithms, as setkey names them.
pub(crate) fn suite_name(config: &SaConfig) -> String {
    let encryption = config.suite.encryption().map(|(row, _)| row.name);
    let integrity = config.suite.integrity().map(|(row, _)| row.name);
    let compression = config.suite.compression().map(|algorithm| algorithm.name());
    let names = encryption.into_iter().chain(integrity).chain(compression);
    let names: Vec<_> = names.collect();
    names.join(" + ")
}

fn action_text(action: &Action) -> String {
    match action {
        Action::Discard => "discard".to_owned(),
        Action::Bypass => "none".to_owned(),
        Action::Entrust => "entrust".to_owned(),
        Action::Protect(templates) => {
            let texts: Vec<_> = templates.iter().map(template_text).collect();
            format!("ipsec {}", texts.join(" "))
        }
    }
}

fn template_text(template: &Template) -> String {
    let ends = template
        .endpoints
        .map_or_else(String::new, |(near, far)| format!("{near}-{far}"));
    let level = match template.level {
        Level::Default => "default".to_owned(),
        Level::Use => "use".to_owned(),
        Level::Require => "require".to_owned(),
        Level::Unique(None) => "unique".to_owned(),
        Level::Unique(Some(reqid)) => format!("unique:{}", reqid.0),
    };
    format!(
        "{}/{}/{ends}/{level}",
        crate::events::protocol_name(template.protocol),
        mode_name(template.mode)
    )
}

#[cfg(test)]
mod tests;
