//! ESP in UDP while both planes carry pairs of IKE: a third socket has port 4500, and the kernel's IPsec takes what
//! arrives there.
//!
//! ```text
//!   port 4500 ──┬─ IKE ───────────────────────► the socket of key exchange
//!               ├─ SPIs of the user plane ────► the socket of ESP, read by our threads
//!               └─ SPIs of the kernel plane ──► the third socket (UDP_ENCAP)
//! ```
//!
//! A datagram is for one plane alone, so nothing may be coalesced meanwhile: the kernel looks at the first SPI only.

use super::to_kernel::{hand_esp_to_kernel, take_esp_from_kernel};
use super::{SHARED_PORT, Sockets, family};
use crate::handover::Need;
use crate::plane::Parting;
use dataplane::io::udp::{EspOfThird, FirstSocket, divide_esp, open_third, set_coalescing};
use ipsec::database::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;

/// The third sockets, by family (whether IPv6).
pub(in crate::run) struct Divided(BTreeMap<bool, Third>);

struct Third {
    socket: OwnedFd,
    first: FirstSocket,
    /// What it gets, as the kernel was told.
    gets: EspOfThird,
}

impl Divided {
    /// Opens a third socket for each family in which IKE has negotiated ESP in UDP. It gets nothing yet.
    pub(in crate::run) fn open(sockets: &Sockets, snapshot: &Snapshot) -> io::Result<Self> {
        let negotiated = snapshot.sas().map(|sa| &sa.config);
        let negotiated = negotiated.filter(|sa| sa.is_negotiated && sa.encapsulation.is_some());
        let families: BTreeSet<bool> = negotiated.map(|sa| sa.id.destination.is_ipv6()).collect();
        let open = |v6| Ok((v6, Third::open(sockets, v6)?));
        families
            .into_iter()
            .map(open)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Whether the port is divided in no family.
    pub(in crate::run) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether ESP in UDP of either plane has a socket.
    pub(in crate::run) fn serves(&self, v6: bool) -> bool {
        self.0.contains_key(&v6)
    }

    /// Whether a socket is one of those beside which there is a third one.
    pub(in crate::run) fn has(&self, need: &Need) -> bool {
        matches!(need, Need::Udp { v6, port: SHARED_PORT } if self.serves(*v6))
    }

    /// Gives each plane the SPIs that it has. Those of pairs that have gone since stay where they were.
    pub(in crate::run) fn follow(
        &mut self,
        parting: &Parting,
        snapshot: &Snapshot,
        local: &[IpAddr],
    ) -> io::Result<()> {
        for (v6, third) in &mut self.0 {
            let sas = snapshot.sas().map(|sa| &sa.config);
            let behind = sas.filter(|sa| {
                let ends_here = local.contains(&sa.id.destination);
                let is_in_udp = sa.encapsulation.is_some() && sa.id.destination.is_ipv6() == *v6;
                ends_here && is_in_udp && parting.is_behind(&sa.id)
            });
            let behind = behind.map(|sa| sa.id.spi.get()).collect();
            third.give(if parting.to_kernel() {
                EspOfThird::AllBut(behind)
            } else {
                EspOfThird::Only(behind)
            })?;
        }
        Ok(())
    }

    /// All ESP in UDP is the kernel's, or none, in these families.
    pub(in crate::run) fn give_all(&mut self, to_kernel: bool) -> io::Result<()> {
        let gets = if to_kernel {
            EspOfThird::EVERYTHING
        } else {
            EspOfThird::NOTHING
        };
        let mut thirds = self.0.values_mut();
        thirds.try_for_each(|third| third.put(gets.clone()))
    }
}

impl Third {
    fn open(sockets: &Sockets, v6: bool) -> io::Result<Self> {
        let first = sockets.order.get(&v6).copied().ok_or_else(|| {
            io::Error::other(
                "the sockets of port 4500 come from a gateway of an earlier version, which did not say in which order \
                 they were bound: `esplanade down`, then start it again",
            )
        })?;
        let socket = open_third(family(v6), &sockets.options).map_err(io::Error::other)?;
        hand_esp_to_kernel(&socket, SHARED_PORT, v6).map_err(io::Error::other)?;
        Ok(Self {
            socket,
            first,
            gets: EspOfThird::NOTHING,
        })
    }

    fn give(&mut self, gets: EspOfThird) -> io::Result<()> {
        if is_within(&gets, &self.gets) {
            Ok(())
        } else {
            self.put(gets)
        }
    }

    fn put(&mut self, gets: EspOfThird) -> io::Result<()> {
        divide_esp(self.socket.as_fd(), self.first, &gets).map_err(io::Error::other)?;
        self.gets = gets;
        Ok(())
    }
}

/// Whether what is given already is the same, but for SPIs that are used no more.
fn is_within(wanted: &EspOfThird, given: &EspOfThird) -> bool {
    match (wanted, given) {
        (EspOfThird::Only(wanted), EspOfThird::Only(given))
        | (EspOfThird::AllBut(wanted), EspOfThird::AllBut(given)) => {
            wanted.is_subset(given) && wanted.is_empty() == given.is_empty()
        }
        _ => false,
    }
}

impl Sockets {
    /// From now on what arrives at port 4500 for our threads comes as single datagrams, or coalesced again where the
    /// kernel does that.
    pub(in crate::run) fn coalesce_shared(
        &mut self,
        divided: &Divided,
        coalesces: bool,
    ) -> io::Result<()> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for (need, socket) in held.iter().filter(|(need, _)| divided.has(need)) {
            let Need::Udp { v6, .. } = *need else {
                continue;
            };
            let can = self
                .trials
                .get(&v6)
                .is_some_and(|trial| trial.offloads().coalesce);
            set_coalescing(socket.as_fd(), coalesces && can)?;
            if let Some(stats) = self.bound.get(need).and_then(Option::as_ref) {
                stats.note_coalescing(coalesces && can);
            }
        }
        Ok(())
    }

    /// The sockets of port 4500 are read by our threads again, while all goes to the third ones.
    pub(in crate::run) fn take_back_shared(&self, divided: &Divided) -> io::Result<()> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shared = held.iter().filter(|(need, _)| divided.has(need));
        shared.try_for_each(|(_, socket)| take_esp_from_kernel(socket, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_again_if_a_plane_gets_what_it_did_not_get() {
        let only = |spis: &[u32]| EspOfThird::Only(spis.iter().copied().collect());
        let all_but = |spis: &[u32]| EspOfThird::AllBut(spis.iter().copied().collect());
        assert!(is_within(&only(&[1]), &only(&[1, 2])));
        assert!(is_within(&all_but(&[1]), &all_but(&[1, 2])));
        assert!(is_within(&EspOfThird::NOTHING, &only(&[])));
        for (wanted, given) in [
            (only(&[1, 3]), only(&[1, 2])),
            (all_but(&[3]), all_but(&[1])),
            (only(&[1]), all_but(&[1])),
            (only(&[]), only(&[1])),
            (all_but(&[]), all_but(&[1])),
        ] {
            assert!(!is_within(&wanted, &given), "{wanted:?} {given:?}");
        }
    }
}
