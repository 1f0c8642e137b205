//! ESP in UDP, on its way from our own data plane to the kernel's IPsec.
//!
//! ```text
//!   keys by hand alone   the socket of our threads becomes the kernel's, from one moment on
//!   keys of IKE too      the kernel has a socket beside it ──► rekeys ──► that of our threads becomes the kernel's
//! ```

use super::super::quiet::IDLE_TIME;
use super::super::shared_bundle::{SharedBundle, SharedSa};
use super::ToKernel;
use super::arriving::{MAX_EXACT_TIME, MAX_SHARED_TIME};
use crate::failure::Failure;
use crate::run::sockets::{self, Divided, Sockets};
use dataplane::pipeline::hold::Held;
use ipsec::policy::Direction;
use ipsec::sa::Sa;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl ToKernel<'_> {
    /// From one moment on the kernel opens ESP in UDP, but that of pairs that stay behind. The user plane opens what
    /// waits in the sockets from before.
    pub(super) fn sockets(&mut self) -> Result<(), Failure> {
        let mut sockets = self.host.fresh_sockets(&self.context)?;
        sockets.leave_to_the_kernel();
        sockets.share_udp(&self.host.sockets)?;
        let divided = Divided::open(&self.host.sockets, &self.context.snapshot);
        self.divided = Some(divided?);
        let in_udp = self.shared.iter().filter(|bundle| bundle.is_in_udp);
        let in_udp = in_udp.flat_map(SharedBundle::numbered);
        let mut in_udp: Vec<_> = in_udp.cloned().collect();
        let held = self.none_waiting(&mut in_udp)?;
        if self.divided.as_ref().is_some_and(Divided::is_empty) && !in_udp.is_empty() {
            // The fewer calls there are between the last look into the sockets and this one, the better.
            self.host.sockets.give_esp(true)?;
        }
        self.give_to_kernel(sockets)?;
        drop(held);
        let (began, mut idle_since) = (Instant::now(), Instant::now());
        while began.elapsed() < MAX_SHARED_TIME && idle_since.elapsed() < IDLE_TIME {
            if self.host.sockets.has_udp_waiting()? {
                idle_since = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        if let Some(sockets) = &self.sockets {
            sockets.leave_gro_to_the_kernel();
        }
        self.delivered()?;
        for SharedSa { sa, edge, .. } in &in_udp {
            sa.state.share_opening(&sa.config, 0);
            self.mark_as_opened(sa, *edge)?;
            // `mark_as_opened` may have given the association back to the user plane; it goes to the kernel again.
            sa.state.share_opening(&sa.config, 0);
        }
        Ok(())
    }

    /// The inbound thread is held at a moment at which nothing waits in the sockets, if there is one, and what it has
    /// opened by these associations is marked in the kernel.
    fn none_waiting(&mut self, in_udp: &mut [SharedSa]) -> Result<Option<Held>, Failure> {
        let until = Instant::now() + MAX_EXACT_TIME;
        loop {
            let held = self.single_datagrams(!in_udp.is_empty(), until)?;
            for SharedSa { sa, edge, .. } in &mut *in_udp {
                *edge = self.mark_as_opened(sa, *edge)?;
            }
            if held.is_none() || in_udp.is_empty() || !self.host.sockets.has_udp_waiting()? {
                return Ok(held);
            }
        }
    }

    /// What arrives where the port is to be divided comes as single datagrams, from a moment on at which nothing waits;
    /// the inbound thread is held since. Where packets follow each other too closely for such a moment they stay
    /// coalesced, and those of both planes in one are lost. `holds`: whether the thread is held anyway.
    fn single_datagrams(&mut self, holds: bool, until: Instant) -> Result<Option<Held>, Failure> {
        let divided = self.divided.as_ref().filter(|divided| !divided.is_empty());
        if divided.is_none() && !holds {
            return Ok(None);
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let held = self.host.quiet(Direction::In, left)?;
            let Some(divided) = divided.filter(|_| held.is_some()) else {
                return Ok(held);
            };
            let sockets = &mut self.host.sockets;
            sockets.coalesce_shared(divided, false)?;
            if !self.host.has_waiting(Direction::In)? {
                return Ok(held);
            }
            // It may have come coalesced.
            let sockets = &mut self.host.sockets;
            sockets.coalesce_shared(divided, true)?;
        }
    }

    fn give_to_kernel(&mut self, mut sockets: Sockets) -> Result<(), Failure> {
        let (snapshot, local) = (&self.context.snapshot, &self.host.local);
        let mut needs = sockets::needs(snapshot, local);
        if let (Some(divided), Some(parting)) = (&mut self.divided, &self.host.parting) {
            needs.retain(|need| !divided.has(need));
            divided.follow(parting, snapshot, local)?;
        }
        let bound = sockets.bind(&needs).map_err(Failure::new);
        self.sockets = Some(sockets);
        bound
    }

    /// The kernel opens nothing that we have opened above `edge`; the last of it is returned. Its association is
    /// deleted and added again: by then it may open packets itself, and forgets none of them that way.
    fn mark_as_opened(&mut self, sa: &Arc<Sa>, edge: u64) -> Result<u64, Failure> {
        if sa.state.saved().edge <= edge || sa.config.replay_window == 0 {
            return Ok(edge);
        }
        self.databases()?.take_back_opening(sa)?;
        let last = sa.state.saved().edge;
        self.give_opening(sa, last)?;
        Ok(last)
    }

    /// The user plane opens all ESP in UDP again, and it may come coalesced.
    pub(super) fn take_back_sockets(&mut self) -> Result<(), Failure> {
        self.sockets = None;
        let divided = self.divided.take();
        let sockets = &mut self.host.sockets;
        let Some(mut divided) = divided else {
            return sockets.give_esp(false).map_err(Failure::new);
        };
        let given = divided.give_all(false);
        let taken = sockets.give_esp(false);
        let coalesced = sockets.coalesce_shared(&divided, true);
        given.and(taken).and(coalesced).map_err(Failure::new)
    }

    /// Once no association in UDP is left behind the sockets of our threads become the kernel's. Until then all goes to
    /// those that it has beside them.
    pub(super) fn join_sockets(&mut self) -> Result<(), Failure> {
        let (Some(divided), Some(sockets)) = (&mut self.divided, &mut self.sockets) else {
            return Ok(());
        };
        if divided.is_empty() {
            return Ok(());
        }
        divided.give_all(true)?;
        let needs = sockets::needs(&self.context.snapshot, &self.host.local);
        sockets.bind(&needs)?;
        sockets.leave_gro_to_the_kernel();
        divided.give_all(false).map_err(Failure::new)
    }

    /// Undoes that.
    pub(super) fn part_sockets(&mut self) -> Result<(), Failure> {
        let Some(divided) = self.divided.as_mut().filter(|divided| !divided.is_empty()) else {
            return Ok(());
        };
        divided.give_all(true)?;
        self.host
            .sockets
            .take_back_shared(divided)
            .map_err(Failure::new)
    }
}
