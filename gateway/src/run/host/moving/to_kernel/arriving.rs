//! What arrives, on its way from our own data plane to the kernel's IPsec.
//!
//! ```text
//!   quiet moment, our thread is held ─► the kernel opens what is above our last number ─► nothing has come meanwhile?
//!        ▲                                                              yes: it is the kernel's │ no: packets wait
//!        └── the user plane opens what waits and is not opened yet ◄── the kernel's SA is deleted ◄┘
//! ```
//!
//! Where packets follow each other too closely for that, a number ahead is the limit, and the move waits until it has
//! come.

use super::super::shared_bundle::{SharedBundle, SharedSa, all_have_windows, has_numbers};
use super::ToKernel;
use crate::failure::Failure;
use ipsec::policy::Direction;
use ipsec::sa::{Sa, SavedCounters};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long associations may take to be handed over at moments at which nothing arrives, all together.
pub(super) const MAX_EXACT_TIME: Duration = Duration::from_secs(2);

/// The longest pause between two tries of that.
const MAX_PAUSE_MILLISECONDS: u64 = 20;

/// How long the sequence numbers that the user plane opens may take to arrive. An association that is slower than that
/// is handed over at the number where it is.
pub(super) const MAX_SHARED_TIME: Duration = Duration::from_millis(300);

/// How long what our thread has read may take to be delivered.
const MAX_DELIVERY_TIME: Duration = Duration::from_millis(100);

impl ToKernel<'_> {
    /// The kernel gets a copy of each packet, and opens those that are its own.
    pub(super) fn inbound(&mut self) -> Result<(), Failure> {
        self.host.end_ring_bypass()?;
        let until = Instant::now() + MAX_EXACT_TIME;
        let held_until = until + MAX_DELIVERY_TIME;
        for bundle in self.arriving_bundles() {
            if bundle.iter().any(|sa| sa.config.encapsulation.is_some()) {
                // None reaches the kernel before the socket is the kernel's.
                self.share_opening(&bundle, true, |sa| sa.state.saved().edge)?;
            } else if !self.hand_over_at_a_quiet_moment(&bundle, until)? {
                self.hand_over_at_a_limit(&bundle, held_until)?;
            }
        }
        Ok(())
    }

    /// The inbound associations that the kernel is to carry, those of a bundle together and the outermost first.
    fn arriving_bundles(&self) -> Vec<Vec<Arc<Sa>>> {
        let inbound = self.sas.iter().filter(|(_, is_inbound)| *is_inbound);
        let inbound: HashSet<_> = inbound.map(|(sa, _)| sa.config.id).collect();
        let snapshot = &self.context.snapshot;
        snapshot.bundles_of(|id| inbound.contains(id))
    }

    /// The kernel opens what is above `edge`. The outermost association comes last: before it nothing of a packet is
    /// opened.
    fn share_opening(
        &mut self,
        bundle: &[Arc<Sa>],
        is_in_udp: bool,
        edge: impl Fn(&Sa) -> u64,
    ) -> Result<(), Failure> {
        let edge = |sa: &Arc<Sa>| if has_numbers(sa) { edge(sa) } else { 0 };
        let shared: Vec<_> = bundle.iter().map(|sa| SharedSa::of(sa, edge(sa))).collect();
        for SharedSa { sa, edge, .. } in shared.iter().rev() {
            self.give_opening(sa, *edge)?;
        }
        self.shared.push(SharedBundle::of(shared, is_in_udp));
        Ok(())
    }

    /// Whether it was possible. Then our threads have delivered all that came before the kernel's first packet.
    fn hand_over_at_a_quiet_moment(
        &mut self,
        bundle: &[Arc<Sa>],
        until: Instant,
    ) -> Result<bool, Failure> {
        let mut pause = 1;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(held) = self.host.quiet(Direction::In, left)? else {
                return Ok(false);
            };
            for sa in bundle.iter().rev() {
                let last = sa.state.share_opening(&sa.config, 0);
                self.give_opening(sa, last)?;
            }
            // Without a window copies cannot be told from what the kernel has opened.
            if !all_have_windows(bundle) || !self.host.has_waiting(Direction::In)? {
                return Ok(true);
            }
            // What waits came before the kernel was ready, or is a copy: the last windows tell.
            self.take_back(bundle)?;
            drop(held);
            std::thread::sleep(Duration::from_millis(pause));
            pause = (pause * 2).min(MAX_PAUSE_MILLISECONDS);
        }
    }

    /// The kernel opens packets from a sequence number on that is ahead of the last one received. In a bundle all
    /// associations are ahead by the same amount, so that all numbers of a packet belong to the same plane.
    fn hand_over_at_a_limit(
        &mut self,
        bundle: &[Arc<Sa>],
        held_until: Instant,
    ) -> Result<(), Failure> {
        let left = held_until.saturating_duration_since(Instant::now());
        let held = self.host.quiet(Direction::In, left)?;
        // Without a window the kernel cannot leave numbers to us.
        let more = if all_have_windows(bundle) {
            bundle.iter().map(|sa| self.paces.numbers_to_open(sa)).max()
        } else {
            None
        };
        let edge = |sa: &Sa| sa.state.share_opening(&sa.config, more.unwrap_or(0));
        self.share_opening(bundle, false, edge)?;
        drop(held);
        Ok(())
    }

    pub(super) fn give_opening(&mut self, sa: &Arc<Sa>, edge: u64) -> Result<(), Failure> {
        let start = SavedCounters {
            edge,
            ..sa.state.saved()
        };
        self.databases()?
            .give_opening(sa, start)
            .map_err(Failure::new)
    }

    /// Waits until the sequence numbers that the user plane opens have come. Associations for which they have not are
    /// taken back and handed over again where they are, so that the kernel forgets nothing that it has opened.
    pub(super) fn shared(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let shared = std::mem::take(&mut self.shared);
        while began.elapsed() < MAX_SHARED_TIME && !shared.iter().all(SharedBundle::is_over) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let until = Instant::now() + MAX_DELIVERY_TIME;
        for bundle in shared.iter().filter(|bundle| !bundle.is_over()) {
            let bundle: Vec<_> = bundle.sas().cloned().collect();
            self.take_back(&bundle)?;
            if !self.hand_over_at_a_quiet_moment(&bundle, until)? {
                // What comes between these two calls is lost.
                for sa in bundle.iter().rev() {
                    let last = sa.state.share_opening(&sa.config, 0);
                    self.give_opening(sa, last)?;
                }
            }
        }
        self.delivered()
    }

    /// The kernel opens nothing by these any more, and the user plane what the kernel has not opened.
    fn take_back(&mut self, bundle: &[Arc<Sa>]) -> Result<(), Failure> {
        bundle.iter().try_for_each(|sa| {
            let ended = self.databases()?.take_back_opening(sa);
            ended.map_err(Failure::new)
        })
    }

    /// What our thread has read is delivered.
    pub(super) fn delivered(&self) -> Result<(), Failure> {
        let quiet = self.host.quiet(Direction::In, MAX_DELIVERY_TIME);
        quiet.map(drop).map_err(Failure::new)
    }
}
