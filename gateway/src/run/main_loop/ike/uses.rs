//! What the plane reports to IKE: packets that found no association, limits that were reached, packets that arrived.

use super::Gateway;
use crate::ike::message::ToIke;
use dataplane::clock::now;
use ikev2::connection::Traffic;
use ikev2::endpoint::{ChildId, ChildUse, Use};
use ikev2::message::payload::{AddressRange, Ports};
use ipsec::packet::Outline;
use ipsec::policy::{Action, Direction, Level};
use ipsec::sa::{LifetimeEvent, SaId};
use std::net::IpAddr;

/// By how much the time of a packet may lie behind that of the main thread.
const CLOCK_SLACK_SECONDS: u64 = 2;

impl Gateway {
    /// A packet needs protection: its peer is brought up, if it waits for that.
    /// `interface`: the device of a peer into which it was routed without a policy.
    pub(in crate::run::main_loop) fn acquire_peer(
        &mut self,
        policy: u32,
        interface: Option<&str>,
        outline: &Outline,
    ) {
        let Some(ike) = &mut self.ike else { return };
        if let Some(connection) = interface.and_then(|device| ike.peers.with_device(device)) {
            let (source, destination) = (outline.source, outline.destination);
            let child = ike.peers.child_for(connection, source, destination);
            if let Some(child) = child {
                let message = ToIke::Acquire {
                    connection: connection.to_owned(),
                    child: child.to_owned(),
                    packet: packet(outline),
                };
                ike.send(message);
            }
            return;
        }
        let snapshot = self.plane.published().load_full();
        let mut policies = snapshot.policies(Direction::Out);
        let Some((_, policy)) = policies.find(|(id, _)| *id == policy) else {
            return;
        };
        let Action::Protect(templates) = &policy.action else {
            return;
        };
        let reqid = templates.iter().find_map(|template| match template.level {
            Level::Unique(Some(reqid)) => Some(reqid),
            _ => None,
        });
        let named = reqid.and_then(|reqid| ike.peers.named(reqid));
        if let Some((connection, child)) = named {
            let message = ToIke::Acquire {
                connection: connection.to_owned(),
                child: child.to_owned(),
                packet: packet(outline),
            };
            ike.send(message);
        }
    }

    /// Limits that associations have reached.
    pub(in crate::run::main_loop) fn report_limits(&mut self, events: &[(SaId, LifetimeEvent)]) {
        let Some(ike) = &mut self.ike else { return };
        let (mut uses, mut over) = (Vec::new(), Vec::new());
        for (id, event) in events {
            let Some(child) = ike.peers.child_of(id) else {
                continue;
            };
            let what = match event {
                LifetimeEvent::Soft => Use::SoftLimit,
                LifetimeEvent::Hard | LifetimeEvent::SequenceOver => Use::HardLimit,
            };
            if what == Use::HardLimit && !over.contains(&child) {
                over.push(child);
            }
            uses.push(ChildUse { child, what });
        }
        if !uses.is_empty() {
            ike.send(ToIke::ChildUse(uses));
        }
        // One direction without the other is of no use: both go, and the networks are closed again.
        if !over.is_empty() {
            self.give_reason_of_limits(&over);
            self.remove_children(&over);
        }
    }

    /// From when on a packet may be one that was not reported yet, in seconds.
    pub(in crate::run::main_loop) fn received_since(&mut self) -> u64 {
        let by_kernel = self.chosen_plane.by_kernel || self.plane_move.is_some();
        let Some(ike) = &mut self.ike else {
            return u64::MAX;
        };
        let looked_at = std::mem::replace(&mut ike.looked_at, now());
        // The kernel does not tell when it used an association last.
        if by_kernel {
            0
        } else {
            looked_at.saturating_sub(CLOCK_SLACK_SECONDS)
        }
    }

    /// Once a second: which pairs have received since the last time, among these associations.
    pub(in crate::run::main_loop) fn report_received(&mut self, used: &[SaId]) {
        let Some(ike) = &self.ike else { return };
        let ids = used.iter().filter_map(|id| ike.peers.received_by(id));
        let ids = ids.collect();
        self.report_packets(ids);
    }

    /// More often: whether pairs that wait for their first packet have received it.
    pub(in crate::run::main_loop) fn report_first_packets(&mut self) {
        let Some(ike) = &self.ike else { return };
        let ids: Vec<_> = ike.peers.on_standby().copied().collect();
        if !ids.is_empty() {
            self.read_kernel_counters();
            self.report_packets(ids);
        }
    }

    fn report_packets(&mut self, ids: Vec<ChildId>) {
        let Some(ike) = self.ike.as_mut().filter(|ike| ike.runs()) else {
            return;
        };
        let snapshot = self.plane.published().load_full();
        let mut uses = Vec::new();
        for id in ids {
            let Some(child) = ike.peers.child(id) else {
                continue;
            };
            let place = snapshot.find(&child.associations.inbound.id);
            let packets = place.map_or(0, |place| snapshot.sa(place).state.usage().packets);
            let before = ike.received.get(&id).copied().unwrap_or(0);
            if packets == before {
                continue;
            }
            let what = if before == 0 {
                Use::FirstReceived
            } else {
                Use::Received
            };
            uses.push((ChildUse { child: id, what }, packets));
        }
        for (told, packets) in &uses {
            ike.received.insert(told.child, *packets);
        }
        if !uses.is_empty() {
            ike.send(ToIke::ChildUse(
                uses.into_iter().map(|(told, _)| told).collect(),
            ));
        }
    }
}

/// RFC 7296 2.9: the packet that asked for a child SA, as the first of the selectors.
fn packet(outline: &Outline) -> Option<(Traffic, Traffic)> {
    let (here, there) = match (outline.protocol, outline.ports) {
        // RFC 7296 3.13.1: type and code of ICMP in one number.
        (1 | 58, Some((kind, code))) => {
            let number = kind << 8 | (code & 0xff);
            (number, number)
        }
        (_, Some(ports)) => ports,
        (_, None) => return hosts(outline, Ports::ANY, Ports::ANY),
    };
    hosts(outline, Ports::new(here, here)?, Ports::new(there, there)?)
}

fn hosts(outline: &Outline, here: Ports, there: Ports) -> Option<(Traffic, Traffic)> {
    let traffic = |address: IpAddr, ports| {
        Some(Traffic {
            protocol: outline.protocol,
            ports,
            addresses: AddressRange::new(address, address)?,
        })
    };
    Some((
        traffic(outline.source, here)?,
        traffic(outline.destination, there)?,
    ))
}
