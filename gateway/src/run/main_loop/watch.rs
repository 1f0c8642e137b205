//! What a running gateway checks by itself: notices of the data plane, and once a second everything that depends on
//! time.

use super::{Gateway, MIN_CHECK_INTERVAL};
use crate::events::{SaName, What, direction_name};
use crate::failure::Failure;
use crate::run::host::is_silent;
use dataplane::Notice;
use dataplane::clock::now;
use ipsec::packet::Outline;
use ipsec::sa::{LifetimeEvent, Phase, Sa, SaId};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The least time between two acquire events of one policy.
const ACQUIRE_INTERVAL: Duration = Duration::from_secs(1);

/// The interval between two checks of addresses and paths, in durations of one check: with thousands of networks one
/// takes a tenth of a second.
const CHECK_INTERVAL_PER_CHECK: u32 = 300;

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
        self.forget_last_move();
        self.look_at_nonces();
        self.read_kernel_counters_older_than(Duration::ZERO);
        self.age_and_look();
        self.check_rekey();
        let totals = self.plane.kernel().totals();
        let at = Instant::now();
        self.outbound
            .read(totals.outbound.packets, totals.outbound.bytes, at);
        self.inbound
            .read(totals.inbound.packets, totals.inbound.bytes, at);
        self.check_paths();
        if let Some(ike) = &mut self.ike {
            ike.reports.forget_unused(at);
            ike.probe(at);
        }
    }

    /// Ages associations, and reports those whose limits were passed.
    pub(super) fn age(&mut self) {
        let aged = self.plane.tick(|_, _| ());
        self.report_aged(aged);
    }

    fn report_aged(&mut self, (events, followed): (Vec<(SaId, LifetimeEvent)>, io::Result<()>)) {
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

    /// The same, with what has happened to each association since the last second.
    fn age_and_look(&mut self) {
        let (since, now) = (self.received_since(), now());
        let (mut used, mut silent, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        let aged = self.plane.tick(|sa, usage| {
            if usage.phase == Phase::Dead {
                return;
            }
            if usage.packets > 0 && usage.last_used >= since {
                used.push(sa.config.id);
            }
            if is_silent(sa, usage, now) {
                silent.push(Arc::clone(sa));
            }
            if let Some(from) = sa.state.observed_peer_endpoint() {
                moved.push((Arc::clone(sa), from));
            }
        });
        self.report_aged(aged);
        self.report_moved_peers(&moved);
        self.report_received(&used);
        self.plane.kernel().send_beside_traffic(&silent, now);
    }

    /// As the kernel with its mapping events: each new address is reported once, and the key manager should then issue
    /// `update`.
    fn report_moved_peers(&mut self, moved: &[(Arc<Sa>, SocketAddr)]) {
        let now_moved = moved.iter().map(|(sa, from)| (sa.config.id, *from));
        let before = std::mem::replace(&mut self.moved, now_moved.collect());
        for (sa, from) in moved {
            if before.get(&sa.config.id) != Some(from) {
                let association = SaName::of(&sa.config);
                let from = *from;
                self.report_event(What::Mapping { association, from });
            }
        }
    }

    /// Updates the kernel's side when a counter shows a learnt path MTU, and otherwise now and then in case addresses
    /// or routes have changed.
    fn check_paths(&mut self) {
        self.plane.kernel().paths().forget_old(Instant::now());
        let changes = self.plane.kernel().paths().changes();
        if changes != self.path_changes {
            self.path_changes = changes;
            for (peer, mtu) in self.plane.kernel().paths().all() {
                self.report_event(What::PathMtu { peer, mtu });
            }
        } else if Instant::now() < self.next_check {
            return;
        }
        let began = Instant::now();
        self.refresh();
        let pause = MIN_CHECK_INTERVAL.max(began.elapsed() * CHECK_INTERVAL_PER_CHECK);
        self.next_check = began + pause;
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
