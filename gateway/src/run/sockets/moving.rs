//! UDP sockets that stay bound while a gateway moves to the other plane: the port, and what waits in the socket, go on.

use super::Sockets;
use super::to_kernel::{hand_esp_to_kernel, take_esp_from_kernel, take_esp_in_gro};
use crate::handover::Need;
use dataplane::io::udp::set_coalescing;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::PoisonError;

impl Sockets {
    /// Takes over the UDP sockets of the same gateway's other plane, which keeps them too.
    pub(in crate::run) fn share_udp(&mut self, other: &Self) -> io::Result<()> {
        let held = other.held.lock().unwrap_or_else(PoisonError::into_inner);
        for (need, socket) in held.iter() {
            if matches!(need, Need::Udp { .. }) {
                self.inherited.insert(*need, socket.try_clone()?);
            }
        }
        Ok(())
    }

    /// Finds out what the kernel can do, so that nothing waits for that later.
    pub(in crate::run) fn probe(&mut self, needs: &BTreeSet<Need>) {
        for need in needs {
            match *need {
                Need::Udp { v6, .. } => drop(self.trial(v6)),
                Need::Esp { .. } => self.native.probe_early(),
                Need::Ah { .. } | Need::Whole { .. } => {}
            }
        }
    }

    /// From now on ESP in UDP is read from these sockets, or is the kernel's.
    pub(in crate::run) fn give_esp(&self, to_kernel: bool) -> io::Result<()> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for (need, socket) in held.iter() {
            let Need::Udp { v6, port } = *need else {
                continue;
            };
            if to_kernel {
                hand_esp_to_kernel(socket, port, v6).map_err(io::Error::other)?
            } else {
                let stats = self.bound.get(need).and_then(Option::as_ref);
                let coalesces = stats.is_some_and(|stats| stats.coalesces());
                take_esp_from_kernel(socket, coalesces)?;
            }
        }
        Ok(())
    }

    /// Whether something waits to be read from a socket or ring.
    pub(in crate::run) fn has_waiting(&self) -> io::Result<bool> {
        let is_read = |need: &Need| !matches!(need, Need::Whole { .. });
        Ok(self.has_waiting_in(is_read)? || self.native.has_waiting()?)
    }

    /// Whether a datagram waits at a port of ESP in UDP.
    pub(in crate::run) fn has_udp_waiting(&self) -> io::Result<bool> {
        self.has_waiting_in(|need| matches!(need, Need::Udp { .. }))
    }

    fn has_waiting_in(&self, is_meant: impl Fn(&Need) -> bool) -> io::Result<bool> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let meant = held.iter().filter(|(need, _)| is_meant(need));
        let watched =
            meant.map(|(_, socket)| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        let mut watched: Vec<_> = watched.collect();
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        Ok(poll(&mut watched, Some(&none))? > 0)
    }

    /// Once nothing coalesced waits any more: GRO passes ESP in UDP to the kernel's IPsec as it does after a start on
    /// that plane, or not at all.
    pub(in crate::run) fn leave_gro_to_the_kernel(&self) {
        self.end_coalescing();
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for (need, socket) in held.iter() {
            if matches!(need, Need::Udp { port, .. } if self.kernel_takes_in_gro(*port)) {
                take_esp_in_gro(socket);
            }
        }
    }

    /// Ends GRO, once nothing coalesced waits any more: without it the lengths of its datagrams would not be told.
    pub(in crate::run) fn end_coalescing(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in held.values() {
            // Raw sockets, which have no such option, coalesce nothing.
            let _ = set_coalescing(socket.as_fd(), false);
        }
    }
}
