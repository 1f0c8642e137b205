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

use super::ToKernel;
use crate::run::host::crossing::text;
use ipsec::dropped::Dropped;
use ipsec::policy::Direction;
use ipsec::sa::{Sa, SavedCounters};
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
    pub(super) fn inbound(&mut self) -> Result<(), String> {
        self.host.end_ring_bypass().map_err(text)?;
        let until = Instant::now() + MAX_EXACT_TIME;
        for sa in self.carried(true) {
            match sa.config.encapsulation {
                // None reaches the kernel before the socket is the kernel's.
                Some(_) => {
                    let edge = sa.state.saved().edge;
                    let others = of_the_other_plane(&sa);
                    self.give_opening(&sa, edge)?;
                    self.edges.push((sa, edge, others));
                }
                None if self.hand_over_at_a_quiet_moment(&sa, until)? => {}
                None => self.hand_over_at_a_limit(&sa)?,
            }
        }
        Ok(())
    }

    /// Whether it was possible. Then our threads have delivered all that came before the kernel's first packet.
    fn hand_over_at_a_quiet_moment(
        &mut self,
        sa: &Arc<Sa>,
        until: Instant,
    ) -> Result<bool, String> {
        let mut pause = 1;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(held) = self.host.quiet(Direction::In, left).map_err(text)? else {
                return Ok(false);
            };
            let last = sa.state.share_opening(&sa.config, 0);
            self.give_opening(sa, last)?;
            // Without a window copies cannot be told from what the kernel has opened.
            if sa.config.replay_window == 0
                || !self.host.has_waiting(Direction::In).map_err(text)?
            {
                return Ok(true);
            }
            // What waits came before the kernel was ready, or is a copy: the last window tells.
            let ended = self.databases()?.take_back_opening(sa);
            ended.map_err(text)?;
            drop(held);
            std::thread::sleep(Duration::from_millis(pause));
            pause = (pause * 2).min(MAX_PAUSE_MILLISECONDS);
        }
    }

    /// From a number on that is ahead of what has come.
    fn hand_over_at_a_limit(&mut self, sa: &Arc<Sa>) -> Result<(), String> {
        let held = self
            .host
            .quiet(Direction::In, MAX_DELIVERY_TIME)
            .map_err(text)?;
        let others = of_the_other_plane(sa);
        let more = match sa.config.replay_window {
            // Without a window the kernel cannot leave numbers to us.
            0 => 0,
            _ => self.paces.numbers_to_open(sa),
        };
        let edge = sa.state.share_opening(&sa.config, more);
        self.give_opening(sa, edge)?;
        drop(held);
        self.edges.push((Arc::clone(sa), edge, others));
        Ok(())
    }

    fn give_opening(&mut self, sa: &Arc<Sa>, edge: u64) -> Result<(), String> {
        let start = SavedCounters {
            edge,
            ..sa.state.saved()
        };
        self.databases()?.give_opening(sa, start).map_err(text)
    }

    /// Waits until the sequence numbers that the user plane opens have come. An association for which they have not is
    /// handed over where it is.
    pub(super) fn shared(&mut self) -> Result<(), String> {
        let began = Instant::now();
        let is_over = |(sa, edge, others): &(Arc<Sa>, u64, u64)| {
            let has_come = sa.state.saved().edge >= *edge || of_the_other_plane(sa) > *others;
            has_come || is_in_udp(sa)
        };
        while began.elapsed() < MAX_SHARED_TIME && !self.edges.iter().all(is_over) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for entry in std::mem::take(&mut self.edges) {
            let (sa, edge, _) = &entry;
            if is_over(&entry) || sa.config.replay_window == 0 {
                continue;
            }
            let held = self
                .host
                .quiet(Direction::In, MAX_DELIVERY_TIME)
                .map_err(text)?;
            let last = sa.state.share_opening(&sa.config, 0);
            if last < *edge {
                self.databases()?.set_edge(sa, last).map_err(text)?;
            }
            drop(held);
        }
        self.delivered()
    }

    /// What our thread has read is delivered.
    pub(super) fn delivered(&self) -> Result<(), String> {
        let quiet = self.host.quiet(Direction::In, MAX_DELIVERY_TIME);
        quiet.map(drop).map_err(text)
    }
}

pub(super) fn is_in_udp(sa: &Sa) -> bool {
    sa.config.encapsulation.is_some()
}

fn of_the_other_plane(sa: &Sa) -> u64 {
    let drops = sa.state.drops().into_iter();
    let mut others = drops.filter(|(reason, _)| *reason == Dropped::OtherPlane);
    others.next().map_or(0, |(_, count)| count)
}
