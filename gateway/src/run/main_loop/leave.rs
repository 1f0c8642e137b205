//! Another process replaces a gateway (`esplanade restart`): what prevents it, and what that process takes over of key
//! exchange.

use super::Gateway;
use crate::failure::Failure;
use crate::handover::{PassedCounters, PassedKeyExchange};
use crate::memory;
use ipsec::sa::SaId;
use std::os::fd::OwnedFd;

impl Gateway {
    /// From now on this gateway ends for another one, or says why it does not. `peers`: those of the other one, with
    /// the fingerprints of what is configured about them; none if it takes over no key exchange.
    pub(super) fn leave(&mut self, peers: Option<Vec<(String, [u8; 32])>>) -> Result<(), Failure> {
        if let Some(why) = self.why_not_leave() {
            return Err(Failure::new(why));
        }
        println!("esplanade: replaced by another process, stopping");
        self.is_replaced = true;
        let by_kernel = self.chosen_plane.by_kernel;
        let ike = self.ike.as_ref();
        self.carried = ike
            .zip(peers)
            .map(|(ike, peers)| memory::with_keys(|| ike.alike(peers, by_kernel)));
        Ok(())
    }

    /// What the next gateway takes over of key exchange, and its sockets.
    pub(super) fn pass_key_exchange(&self) -> Option<(PassedKeyExchange, Vec<OwnedFd>)> {
        let (ike, carried) = self.ike.as_ref().zip(self.carried.as_ref())?;
        let snapshot = self.snapshot();
        let counters = |id: &SaId| {
            let place = snapshot.find(id)?;
            Some(PassedCounters::of(&snapshot.sa(place).state))
        };
        ike.pass(|name| carried.contains(name), counters).ok()
    }

    /// Why another process cannot continue where this one stops; none where it can.
    fn why_not_leave(&mut self) -> Option<String> {
        if std::env::var_os("NOTIFY_SOCKET").is_some() {
            return Some(
                "it was started by a service manager: restart it there (systemctl restart esplanade@NAME)"
                    .to_owned(),
            );
        }
        if self.rekey.is_some() {
            return Some(
                "a rekey is in progress, which a new process could not continue: wait for its end (`esplanade \
                 status`), or abort it with `esplanade rekey --abort`"
                    .to_owned(),
            );
        }
        let numbers = self.plane.numbers();
        (!numbers.are_kept()).then(|| {
            format!(
                "its sequence numbers are {}. A new process would start at 1, and the peers would drop its packets \
                 as replayed: stop this one, and start again with new keys on both sides",
                numbers.describe()
            )
        })
    }
}
