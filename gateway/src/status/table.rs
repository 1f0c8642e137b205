//! The status as a table for people.

use super::peers;
use super::units::{duration, scaled};
use super::{
    BarrierStatus, IkeStatus, InterfaceStatus, LaneStatus, PeerStatus, PolicyStatus, Restorations,
    SaStatus, Status, Traffic,
};
use std::fmt::Write as _;

/// What a status can have thousands of: each is made when its lines are written, so that they never exist all at once.
pub(crate) struct Parts<'a> {
    /// The peers of IKE.
    pub peers: &'a mut dyn Iterator<Item = PeerStatus>,
    /// How many associations there are, and each.
    pub associations: (usize, &'a mut dyn Iterator<Item = SaStatus>),
    /// The same of policies.
    pub policies: (usize, &'a mut dyn Iterator<Item = PolicyStatus>),
}

impl Status {
    /// For people.
    pub(crate) fn table(&self) -> String {
        let (associations, policies) = (&self.associations, &self.policies);
        self.table_with(Parts {
            peers: &mut self.peers.iter().cloned(),
            associations: (associations.len(), &mut associations.iter().cloned()),
            policies: (policies.len(), &mut policies.iter().cloned()),
        })
    }

    /// The same with parts that are not in it.
    pub(crate) fn table_with(&self, parts: Parts<'_>) -> String {
        status(self, parts)
    }
}

/// Where keys are written, and what is wrong with key exchange.
fn key_exchange(ike: &IkeStatus) -> String {
    let folder = ike
        .key_log
        .iter()
        .map(|folder| format!("keys are written to {folder}\n"));
    let trouble = ike
        .trouble
        .iter()
        .map(|trouble| format!("IKE: {trouble}\n"));
    let hooks = ike
        .hook_trouble
        .iter()
        .map(|trouble| format!("hooks: {trouble}\n"));
    folder.chain(trouble).chain(hooks).collect()
}

/// What seals and opens packets.
fn carrier(status: &Status) -> String {
    if status.plane == "kernel" {
        return "plane kernel".to_owned();
    }
    let device = status.forward.as_ref().unwrap_or(&status.tun);
    format!("device {device} · {}", hands(status.workers))
}

/// Why this plane was chosen, where it is not the default.
fn reason_of_plane(status: &Status) -> String {
    let (plane, reason) = (&status.plane, &status.plane_reason);
    if plane == "kernel" || reason.starts_with("the kernel cannot") {
        format!("plane {plane}: {reason}\n")
    } else {
        String::new()
    }
}

fn status(status: &Status, parts: Parts<'_>) -> String {
    let mut devices = String::new();
    lines(&mut devices, &status.interfaces, usize::MAX, device_line);
    let mut text = opening(status);
    text += &peers::table(parts.peers);
    text += &machinery(status, devices, usize::MAX);
    associations(&mut text, parts.associations);
    let (count, policies) = parts.policies;
    let _ = writeln!(text, "\npolicies: {count}");
    for policy in policies {
        let _ = writeln!(
            text,
            "  {:>4}  {:<3}  {}  {}",
            policy.id, policy.direction, policy.selector, policy.action
        );
    }
    for warning in &status.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// These peers with these associations, and nothing else.
pub(crate) fn peers_table(
    of_peers: &mut dyn Iterator<Item = PeerStatus>,
    of_associations: (usize, &mut dyn Iterator<Item = SaStatus>),
) -> String {
    let mut text = peers::table(of_peers);
    associations(&mut text, of_associations);
    text
}

/// What comes before the peers.
pub(super) fn opening(status: &Status) -> String {
    let mut text = barriers(&status.barriers);
    text += &restorations(&status.restorations);
    let _ = writeln!(
        text,
        "esplanade {} · process {} · up {} · {}",
        status.version,
        status.pid,
        duration(status.uptime_seconds),
        carrier(status),
    );
    text += &reason_of_plane(status);
    if !status.user.is_empty() {
        let _ = writeln!(
            text,
            "user {} · {}",
            status.user,
            status.capabilities.join(" ")
        );
    }
    let _ = writeln!(
        text,
        "peak memory {:.1} MB · packets dropped: {} · unencrypted packets blocked: {}",
        status.peak_memory_bytes as f64 / 1e6,
        status.dropped,
        status.clear_dropped
    );
    text
}

/// What comes between the peers and the associations. Lists have at most `max_listed` lines each.
pub(super) fn machinery(status: &Status, devices: String, max_listed: usize) -> String {
    let mut text = status.ike.as_ref().map_or_else(String::new, key_exchange);
    text += &devices;
    if let Some(rekey) = &status.rekey {
        let (file, time) = (&rekey.file, duration(rekey.seconds));
        let _ = writeln!(text, "rekey from {file}, started {time} ago");
        lines(&mut text, &rekey.peers, max_listed, |peer| {
            format!("  {}: {}", peer.peer, peer.state)
        });
    }
    lines(&mut text, &status.paths, max_listed, |path| {
        format!("path MTU to {}: {}", path.peer, path.mtu)
    });
    if !status.numbers.is_empty() {
        let _ = writeln!(text, "sequence numbers {}", status.numbers);
    }
    let _ = writeln!(text, "{}", status.polling);
    for line in status.sockets.iter().chain(&status.offloads) {
        let _ = writeln!(text, "{line}");
    }
    for (name, traffic) in [("outbound", &status.outbound), ("inbound", &status.inbound)] {
        let _ = writeln!(text, "{}", direction(name, traffic));
    }
    for lane in &status.lanes {
        let _ = writeln!(text, "{}", self::lane(lane));
    }
    text
}

/// A line for each, at most so many, and how many more there are.
pub(super) fn lines<T>(
    text: &mut String,
    all: &[T],
    max_lines: usize,
    line: impl Fn(&T) -> String,
) {
    for one in all.iter().take(max_lines) {
        let _ = writeln!(text, "{}", line(one));
    }
    let more = all.len().saturating_sub(max_lines);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more");
    }
}

/// A device of associations.
pub(super) fn device_line(device: &InterfaceStatus) -> String {
    let state = if device.leads_out {
        "has an outbound association"
    } else {
        "no outbound association: packets routed there are dropped"
    };
    format!("device {} · MTU {} · {state}", device.name, device.mtu)
}

fn direction(name: &str, traffic: &Traffic) -> String {
    let per_batch = match traffic.packets.checked_div(traffic.batches).unwrap_or(0) {
        1 => "1 packet".to_owned(),
        count => format!("{count} packets"),
    };
    format!(
        "{name:<8}  {:>12} packets  {:>10}  now {:>9}bit/s {:>9} packets/s  {per_batch} per batch",
        traffic.packets,
        scaled(traffic.bytes, "B"),
        scaled(traffic.bits_per_second, ""),
        traffic.packets_per_second,
    )
}

/// A single barrier gets a warning: if it is removed, traffic passes unencrypted until it is restored.
fn barriers(barriers: &[BarrierStatus]) -> String {
    let state = |barrier: &BarrierStatus| match (barrier.holds, &barrier.gaps) {
        (true, None) => barrier.name.clone(),
        (true, Some(gaps)) => format!("{} partial ({gaps})", barrier.name),
        (false, _) => format!(
            "{} NOT IN FORCE ({})",
            barrier.name,
            barrier.faults.join(", ")
        ),
    };
    let states: Vec<_> = barriers.iter().map(state).collect();
    let mut there: Vec<_> = barriers.iter().filter(|barrier| barrier.holds).collect();
    let in_part = there.len();
    there.retain(|barrier| barrier.gaps.is_none());
    let verdict = match (there.len(), in_part) {
        (0, _) => ": protected traffic may pass UNENCRYPTED",
        (1, 1) => ": no second barrier",
        (1, _) => ": the second barrier is partial",
        _ => "",
    };
    if states.is_empty() {
        String::new()
    } else {
        format!("barriers: {}{verdict}\n", states.join(", "))
    }
}

fn restorations(told: &Restorations) -> String {
    let mut text = String::new();
    if let (Some(seconds), Some(what)) = (told.seconds_ago, &told.last) {
        let ago = duration(seconds);
        let _ = writeln!(
            text,
            "restored {} times, last {ago} ago: {what}",
            told.times
        );
    }
    if told.held_back {
        text += "removed by another program too often: restored once per second\n";
    }
    if let Some(what) = &told.missing {
        let _ = writeln!(text, "MISSING: {what}");
    }
    text
}

fn hands(workers: usize) -> String {
    match workers {
        0 => "inline".to_owned(),
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    }
}

fn lane(lane: &LaneStatus) -> String {
    let costs = match lane.transform_ns {
        0.0 => String::new(),
        transform => format!(
            " · per packet: {transform:.0} ns crypto, {:.0} ns serial work",
            lane.serial_ns
        ),
    };
    let (direction, hands) = (&lane.direction, hands(lane.workers));
    format!("{direction:<8}  {hands}: {}{costs}", lane.why)
}

fn associations(
    text: &mut String,
    (count, associations): (usize, &mut dyn Iterator<Item = SaStatus>),
) {
    let _ = writeln!(text, "\nassociations: {count}");
    for sa in associations {
        let encapsulation = match sa.encapsulation {
            None => String::new(),
            Some((source, destination)) => format!(" in UDP {source}-{destination}"),
        };
        let _ = writeln!(
            text,
            "  {}  {}  {}{encapsulation}  {}  {} packets  {}",
            sa.name,
            sa.mode,
            sa.suite,
            sa.phase,
            sa.packets,
            scaled(sa.bytes, "B")
        );
        let traits = sa.traits.words();
        if !traits.is_empty() {
            let _ = writeln!(text, "      {traits}");
        }
        if let Some(from) = sa.moved_to {
            let _ = writeln!(text, "      peer address now {from}");
        }
        if sa.stands_by {
            let _ = writeln!(text, "      standby: not used for sending");
        }
        if let Some(younger) = &sa.carried_by {
            let _ = writeln!(text, "      unused: the newer {younger} matches too");
        }
        for (reason, count) in &sa.drops {
            let _ = writeln!(text, "      dropped {count}: {reason}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_is_shown_with_its_mode_its_reason_and_its_cost() {
        let mut told = LaneStatus {
            direction: "inbound".to_owned(),
            why: "one thread keeps up, busy 3 % of the time".to_owned(),
            ..LaneStatus::default()
        };
        assert_eq!(
            lane(&told),
            "inbound   inline: one thread keeps up, busy 3 % of the time"
        );
        (told.workers, told.transform_ns, told.serial_ns) = (2, 9500.4, 512.0);
        told.why = "workers bring 1.43 x".to_owned();
        assert_eq!(
            lane(&told),
            "inbound   2 workers: workers bring 1.43 x · per packet: 9500 ns crypto, 512 ns serial work"
        );
    }

    #[test]
    fn barriers_come_first_and_what_was_put_back_behind_them() {
        let barrier = |name: &str, faults: &[&str]| BarrierStatus {
            name: name.to_owned(),
            holds: faults.is_empty(),
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
            gaps: None,
        };
        let mut told = Status {
            barriers: vec![barrier("nftables", &[]), barrier("device filters", &[])],
            ..Status::default()
        };
        assert!(
            told.table()
                .starts_with("barriers: nftables, device filters\nesplanade")
        );
        told.barriers[1] = barrier("device filters", &["not on this host: no"]);
        told.restorations = Restorations {
            times: 6,
            seconds_ago: Some(3),
            last: Some("nftables table deleted".to_owned()),
            ..Restorations::default()
        };
        assert!(told.table().starts_with(
            "barriers: nftables, device filters NOT IN FORCE (not on this host: no): no second barrier\n\
             restored 6 times, last 3 s ago: nftables table deleted\nesplanade"
        ));
        told.barriers.push(BarrierStatus {
            gaps: Some("not for packet sockets".to_owned()),
            ..barrier("XFRM policies", &[])
        });
        assert!(told.table().contains(
            "), XFRM policies partial (not for packet sockets): the second barrier is partial\n"
        ));
        told.barriers.truncate(1);
        told.barriers[0] = barrier("nftables", &["table deleted"]);
        assert!(told.table().contains("UNENCRYPTED"));
    }
}
