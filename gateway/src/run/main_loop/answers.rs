//! Answers of a running gateway about itself.

use super::Gateway;
use crate::control::Explain;
use crate::events::SaName;
use crate::plane::Plane;
use crate::privileges;
use crate::report::{self, Directions};
use crate::routes::firewall;
use crate::status::{Drops, Explained, InterfaceStatus, PathStatus, SaStatus, Status};
use dataplane::Totals;
use ipsec::command::{Answer, Command, PolicyReport};
use ipsec::database::Snapshot;
use ipsec::sa::Sa;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl Gateway {
    pub(super) fn explain(&mut self, question: &Explain) -> Explained {
        let snapshot = self.snapshot();
        let around = snapshot.addresses_around(&report::packet_of(question));
        let host = self.plane.kernel().surroundings(&around);
        let directions = self.plane.kernel().kept_directions();
        report::explain(&snapshot, question, &host, &directions)
    }

    pub(super) fn status(&mut self) -> Status {
        let mut status = self.bare_status();
        let directions = self.plane.kernel().kept_directions();
        status.associations = associations(&self.snapshot(), directions, |_| true).collect();
        status.policies = self.policies().iter().map(report::policy).collect();
        status
    }

    /// The same without associations, policies and peers.
    pub(super) fn bare_status(&mut self) -> Status {
        let uptime = self.started.elapsed().as_secs();
        let dropped = self.drops();
        let totals = self.plane.kernel().totals();
        let host = self.plane.kernel();
        let lanes = host.lanes().map(report::lanes).unwrap_or_default();
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            user: self.file.user().to_string(),
            capabilities: privileges::held(),
            uptime_seconds: uptime,
            plane: plane_name(self.chosen_plane.by_kernel).to_owned(),
            plane_reason: self.chosen_plane.reason.clone(),
            tun: host.tun().to_owned(),
            forward: host.forward().map(str::to_owned),
            control: self.server.folder().socket().display().to_string(),
            table: self.record.table,
            mark: self.record.mark,
            workers: lanes.iter().map(|lane| lane.workers).max().unwrap_or(0),
            workers_asked: self.options.workers.to_string(),
            lanes,
            batch: self.options.batch,
            poll_budget: self.options.poll_budget,
            wake: self.options.wake.to_string(),
            priority: self.options.priority.to_string(),
            native_io: self.options.native_io.to_string(),
            polling: host.polling(),
            fail_open: self.options.fail_open,
            sockets: host.sockets(),
            offloads: host.plaintext(),
            outbound: report::traffic(&totals.outbound, self.outbound.packets_and_bits()),
            inbound: report::traffic(&totals.inbound, self.inbound.packets_and_bits()),
            dropped: dropped.total,
            clear_dropped: dropped.clear.values().sum(),
            peak_memory_bytes: report::peak_memory(),
            warnings: self.warnings.list(),
            ..Status::default()
        };
        let paths = self.plane.kernel().paths().all();
        let path = |(peer, mtu)| PathStatus { peer, mtu };
        status.paths = paths.into_iter().map(path).collect();
        status.rekey = self.rekey_status();
        status.interfaces = self.interfaces();
        status.numbers = self.plane.numbers().describe();
        status.barriers = self.barriers();
        status.restorations = self.restorations();
        status
    }

    fn interfaces(&mut self) -> Vec<InterfaceStatus> {
        let snapshot = self.snapshot();
        let leading = snapshot.interfaces().iter();
        let leading = leading.filter(|interface| interface.outbound_sa.is_some());
        let leading: HashSet<&str> = leading.map(|interface| &*interface.name).collect();
        let devices = self.plane.kernel().devices();
        devices
            .into_iter()
            .map(|(name, mtu)| InterfaceStatus {
                leads_out: leading.contains(&*name),
                name,
                mtu,
            })
            .collect()
    }

    pub(super) fn drops(&mut self) -> Drops {
        let snapshot = self.snapshot();
        let host = self.plane.kernel();
        let Totals { outbound, inbound } = host.totals();
        let mut clear = firewall::counters(host.installed().site());
        let at_barriers = host.installed().dropped().into_iter();
        clear.extend(at_barriers.map(|(name, packets)| (name, packets, 0)));
        report::drops(&[outbound, inbound], snapshot.sas(), &clear)
    }

    pub(super) fn policies(&mut self) -> Vec<PolicyReport> {
        let answers = self.plane.apply(&[Command::DumpPolicies]);
        match answers.unwrap_or_default().pop() {
            Some(Answer::Policies(list)) => list,
            _ => Vec::new(),
        }
    }
}

/// Every association that is wanted.
pub(super) fn associations<'a>(
    snapshot: &'a Snapshot,
    directions: Directions,
    is_wanted: impl Fn(&Sa) -> bool + 'a,
) -> impl Iterator<Item = SaStatus> + 'a {
    let rivals = snapshot.shadowed().into_iter();
    let rivals: HashMap<_, _> = rivals.map(|rival| (rival.idle, rival.carrier)).collect();
    let carrier = move |sa: &Arc<Sa>| {
        let place = snapshot
            .find(&sa.config.id)
            .filter(|_| !rivals.is_empty())?;
        rivals.get(&place).copied()
    };
    let wanted = snapshot.sas().filter(move |sa| is_wanted(sa));
    wanted.map(move |sa| SaStatus {
        moved_to: sa.state.observed_peer_endpoint(),
        carried_by: carrier(sa).map(|sa| SaName::of(&snapshot.sa(sa).config)),
        ..report::association(sa, &directions)
    })
}

pub(super) fn plane_name(by_kernel: bool) -> &'static str {
    if by_kernel { "kernel" } else { "user" }
}
