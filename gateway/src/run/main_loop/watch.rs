//! What a running gateway checks by itself: notices of the data plane, and once a second everything that depends on
//! time.

use super::Gateway;
use crate::events::{SaName, What, direction_name};
use crate::failure::Failure;
use dataplane::Notice;
use dataplane::clock::now;
use ipsec::database::Snapshot;
use ipsec::packet::Outline;
use ipsec::sa::LifetimeEvent;
use std::io;
use std::time::{Duration, Instant};

/// The least time between two acquire events of one policy.
const ACQUIRE_INTERVAL: Duration = Duration::from_secs(1);

/// Ticks between two looks at addresses and paths.
const CHECK_INTERVAL_SECONDS: u64 = 10;

impl Gateway {
    pub(super) fn handle_notices(&mut self) -> Result<(), Failure> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.bell, &mut count);
        while let Ok(notice) = self.notices.try_recv() {
            match notice {
                Notice::Acquire {
                    policy,
                    interface,
                    outline,
                } => self.acquire(policy, interface, outline),
                Notice::Failed { direction, error } => {
                    return Err(Failure::new(format!(
                        "the {} side has stopped: {error}; the drop rules stay in place",
                        direction_name(direction)
                    )));
                }
            }
        }
        Ok(())
    }

    /// A packet needs an association that does not exist.
    pub(super) fn acquire(&mut self, policy: u32, interface: u32, outline: Outline) {
        let wanted = (policy, interface);
        let interface = self.plane.kernel().device_name(interface);
        self.acquire_peer(policy, interface.as_deref(), &outline);
        let last = self.acquired.get(&wanted);
        if last.is_none_or(|last| last.elapsed() >= ACQUIRE_INTERVAL) {
            self.acquired.insert(wanted, Instant::now());
            self.report_event(What::Acquire {
                policy,
                interface,
                source: Some(outline.source),
                destination: Some(outline.destination),
            });
        }
    }

    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        self.end_move();
        self.read_kernel_counters_older_than(Duration::ZERO);
        self.age();
        self.report_received();
        let snapshot = self.snapshot();
        self.plane.kernel().send_nat_keepalives(&snapshot, now());
        self.plane.kernel().send_dummies(&snapshot, now());
        self.report_moved_peers(&snapshot);
        drop(snapshot);
        self.check_rekey();
        let totals = self.plane.kernel().totals();
        let at = Instant::now();
        self.outbound
            .read(totals.outbound.packets, totals.outbound.bytes, at);
        self.inbound
            .read(totals.inbound.packets, totals.inbound.bytes, at);
        self.check_paths();
    }

    /// Ages associations, and reports those whose limits were passed.
    pub(super) fn age(&mut self) {
        let (events, followed) = self.plane.tick();
        self.report_limits(&events);
        for (id, event) in events {
            let name = SaName::from(id);
            self.report_event(match event {
                LifetimeEvent::Soft => What::SaDying(name),
                LifetimeEvent::Hard => What::SaExpired(name),
                LifetimeEvent::SequenceOver => What::SaExhausted(name),
            });
        }
        self.warn_if_failed(followed);
    }

    /// As the kernel with its mapping events: each new address is reported once, and the key manager should then issue
    /// `update`.
    fn report_moved_peers(&mut self, snapshot: &Snapshot) {
        for sa in snapshot.sas() {
            let (id, now) = (sa.config.id, sa.state.observed_peer_endpoint());
            if self.moved.get(&id).copied() == now {
                continue;
            }
            match now {
                Some(from) => {
                    self.moved.insert(id, from);
                    let association = SaName::of(&sa.config);
                    self.report_event(What::Mapping { association, from });
                }
                None => drop(self.moved.remove(&id)),
            }
        }
        self.moved.retain(|id, _| snapshot.find(id).is_some());
    }

    /// Updates the kernel's side when a counter shows a learnt path MTU, and otherwise every `CHECK_INTERVAL_SECONDS`
    /// in case addresses or routes have changed.
    fn check_paths(&mut self) {
        self.plane.kernel().paths().forget_old(Instant::now());
        let changes = self.plane.kernel().paths().changes();
        if changes != self.path_changes {
            self.path_changes = changes;
            for (peer, mtu) in self.plane.kernel().paths().all() {
                self.report_event(What::PathMtu { peer, mtu });
            }
        } else if !self.ticks.is_multiple_of(CHECK_INTERVAL_SECONDS) {
            return;
        }
        self.refresh();
    }

    /// Updates the kernel's rules and routes to the current addresses and paths.
    pub(super) fn refresh(&mut self) {
        let followed = self.plane.refresh();
        self.warn_if_failed(followed);
    }

    fn warn_if_failed(&self, followed: io::Result<()>) {
        if let Err(error) = followed {
            (self.warnings.warn())(&format!(
                "cannot update the kernel's rules and routes: {error}"
            ));
        }
    }
}
