//! Associations that move between our own data plane and the kernel while packets flow: each number is sealed and
//! opened by one of the two.
//!
//! ```text
//!   to the kernel        set_sent, give_opening: user plane up to a number, kernel behind it ──► begin_counting
//!   to the user plane    end_sealing, end_opening: the kernel's last numbers and window ──► user plane behind them
//! ```

use super::super::association;
use super::super::features;
use super::super::last_states::{LastStates, replay_of};
use super::super::zeroizing::ZeroizingMessage;
use super::compare::{is_carried, sa_of};
use super::counters::{self, DropsBefore, REASONS, drops_of};
use super::errors::about_sa;
use super::search_order::last_of_the_search_first;
use super::{HeldSa, KernelDatabases};
use ipsec::database::Snapshot;
use ipsec::policy::{Action, Direction, Level, Policy};
use ipsec::sa::{Sa, SaId, SavedCounters};
use netlink_packet_xfrm::monitor::NewAsyncEventMessage;
use netlink_packet_xfrm::{Replay, XfrmAttrs, XfrmMessage};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

impl KernelDatabases {
    /// Finds what an earlier gateway has left; `local` are this host's addresses.
    pub(crate) fn begin(&mut self, local: &[IpAddr]) -> io::Result<()> {
        local.clone_into(&mut self.local);
        self.read_leftovers()
    }

    /// The associations of a snapshot that both planes are to carry for a moment, and whether each is inbound. Keys of
    /// IKE are never on both.
    pub(crate) fn to_carry(snapshot: &Snapshot, local: &[IpAddr]) -> Vec<(Arc<Sa>, bool)> {
        let carried = snapshot.sas().filter(|sa| is_carried(sa));
        let carried = carried.filter(|sa| !sa.config.is_negotiated);
        carried
            .map(|sa| (Arc::clone(sa), local.contains(&sa.config.id.destination)))
            .collect()
    }

    /// Puts policies of these directions. Optional ones let pass what our own data plane has opened as well.
    pub(crate) fn put_policies(
        &mut self,
        snapshot: &Snapshot,
        directions: &[Direction],
        is_optional: bool,
    ) -> io::Result<()> {
        for direction in directions {
            for policy in self.policies_to_put(snapshot, *direction) {
                if is_optional {
                    self.put_policy(&Arc::new(as_optional(&policy)))?
                } else {
                    self.put_policy(&policy)?
                }
            }
        }
        Ok(())
    }

    /// The policies of a direction that the kernel is to have.
    pub(crate) fn policies_to_put(
        &self,
        snapshot: &Snapshot,
        direction: Direction,
    ) -> Vec<Arc<Policy>> {
        let parted = self.parted(snapshot);
        let policies = snapshot.policies(direction);
        policies
            .filter_map(|(_, policy)| match &parted {
                Some(parted) if direction == Direction::Out => parted.of_the_kernel(policy),
                _ => Some(Arc::clone(policy)),
            })
            .collect()
    }

    /// Removes the policies of these directions.
    pub(crate) fn remove_policies(
        &mut self,
        directions: &[Direction],
        snapshot: &Snapshot,
    ) -> io::Result<()> {
        let names = self.policies.keys();
        let names = names.filter(|name| directions.contains(&name.direction));
        let names = last_of_the_search_first(names.copied().collect(), snapshot);
        names
            .into_iter()
            .try_for_each(|name| self.remove_policy(name))
    }

    /// The kernel's next number is the one after `sent`.
    pub(crate) fn set_sent(&mut self, sa: &Arc<Sa>, sent: u64) -> io::Result<()> {
        let numbers = SavedCounters {
            sent,
            ..SavedCounters::default()
        };
        let owner = self.owner.mark(self.is_inbound(sa));
        let mut whole = counters::emit_from(&sa.config, &numbers, owner);
        // The kernel takes numbers in the form in which it has them: an outbound association has no window.
        features::put_direction(&sa.config, self.direction(sa), &mut whole)?;
        let whole = ZeroizingMessage::new(XfrmMessage::AddSa(whole));
        let Some((_, whole)) = sa_of(&whole) else {
            return Ok(());
        };
        let mut message = NewAsyncEventMessage::default();
        message.id.sa_id = association::named(&sa.config.id).user_sa_id;
        message.id.saddr = whole.user_sa_info.saddr;
        message.id.reqid = whole.user_sa_info.reqid;
        let without = XfrmAttrs::ReplayState(Replay::default());
        let numbers = replay_of(&whole.nlas).cloned().unwrap_or(without);
        message.nlas = vec![numbers];
        let message = ZeroizingMessage::new(XfrmMessage::NewAsyncEvent(message));
        self.kernel
            .replace(&message)
            .map_err(|refusal| about_sa(&sa.config.id, &refusal))
    }

    /// Checks that the kernel has stored these sequence numbers: it acknowledges the request even where it ignores
    /// them.
    pub(crate) fn check_sent(&mut self, wanted: &HashMap<SaId, u64>) -> io::Result<()> {
        let listed = self.list_sas()?;
        let listed = listed.iter().filter_map(sa_of);
        let there: HashMap<_, _> = listed
            .map(|(id, message)| (id, counters::read(message).sent))
            .collect();
        for (id, wanted) in wanted {
            let sent = there.get(id).copied().unwrap_or_default();
            if sent < *wanted {
                return Err(io::Error::other(format!(
                    "the kernel would send by SPI {} from {} on, where {wanted} numbers are used",
                    id.spi,
                    sent + 1
                )));
            }
        }
        Ok(())
    }

    /// From now on the kernel alone counts associations that both planes have carried: what was counted of them before
    /// is the beginning.
    pub(crate) fn begin_counting(&mut self) -> io::Result<()> {
        for answer in self.list_sas()? {
            let Some((id, message)) = sa_of(&answer) else {
                continue;
            };
            let held = self.sas.get_mut(&id);
            // Those of IKE were the kernel's from the beginning.
            let Some(held) = held.filter(|held| !held.sa.config.is_negotiated) else {
                continue;
            };
            held.before = before_now(held);
            held.drops = drops_before(&held.sa, drops_of(message));
        }
        Ok(())
    }

    /// Adds an inbound association, of which our own data plane has opened what `start` says.
    pub(crate) fn give_opening(&mut self, sa: &Arc<Sa>, start: SavedCounters) -> io::Result<()> {
        self.add_from(sa, start)?;
        if let Some(held) = self.sas.get_mut(&sa.config.id) {
            held.drops = drops_before(sa, Default::default());
        }
        Ok(())
    }

    /// Ends one inbound association, as [`Self::end_opening`] does.
    pub(crate) fn take_back_opening(&mut self, sa: &Arc<Sa>) -> io::Result<()> {
        self.end_opening(&sa.config.id, &mut LastStates::listen()?)
    }

    /// Removes the associations that were added for a move, inbound or outbound ones. What the kernel has used of them
    /// is used for ever. One that it refuses to delete keeps the numbers that it has; the first refusal is returned.
    pub(crate) fn withdraw(&mut self, is_inbound: bool, snapshot: &Snapshot) -> io::Result<()> {
        let mut last = LastStates::listen()?;
        let mut outcome = Ok(());
        for id in outermost_first(self.ids(is_inbound), snapshot) {
            let Some(held) = self.sas.get_mut(&id) else {
                continue;
            };
            held.before = before_now(held);
            let sa = Arc::clone(&held.sa);
            let removed = if is_inbound {
                self.end_opening(&id, &mut last)
            } else {
                self.remove_sa_heard(&id, &mut last)
            };
            if removed.is_ok() {
                sa.state.own_all_numbers();
            }
            outcome = outcome.and(removed);
        }
        outcome
    }

    /// Those of one direction.
    pub(super) fn ids(&self, is_inbound: bool) -> Vec<SaId> {
        let held = self.sas.iter();
        held.filter(|(_, held)| held.is_inbound == is_inbound)
            .map(|(id, _)| *id)
            .collect()
    }
}

/// What an association that both planes have carried had carried without the kernel.
fn before_now(held: &HeldSa) -> SavedCounters {
    let saved = held.sa.state.saved();
    SavedCounters {
        bytes: saved.bytes.saturating_sub(held.seen.bytes),
        packets: saved.packets.saturating_sub(held.seen.packets),
        ..saved
    }
}

/// So that the kernel opens packets whole or not at all.
fn outermost_first(mut ids: Vec<SaId>, snapshot: &Snapshot) -> Vec<SaId> {
    let ordered = snapshot.bundles().into_iter().flatten();
    let places = ordered.enumerate().map(|(place, sa)| (sa.config.id, place));
    let places: HashMap<_, _> = places.collect();
    ids.sort_by_key(|id| places.get(id).copied());
    ids
}

/// What our own data plane has dropped of an association counts on.
fn drops_before(sa: &Sa, by_kernel: [u64; REASONS.len()]) -> DropsBefore {
    let counted = sa.state.drops();
    let by_user_plane = |reason| counted.iter().find(|(known, _)| *known == reason);
    DropsBefore {
        by_user_plane: REASONS.map(|reason| by_user_plane(reason).map_or(0, |(_, count)| *count)),
        by_kernel,
    }
}

/// The policy with templates that need not have been applied.
pub(super) fn as_optional(policy: &Policy) -> Policy {
    let mut optional = policy.clone();
    if let Action::Protect(templates) = &mut optional.action {
        for template in templates {
            template.level = Level::Use;
        }
    }
    optional
}

/// Whether the kernel's window has a number marked, `edge` being the highest one.
pub(super) fn is_seen(window: &XfrmAttrs, edge: u64, number: u64) -> bool {
    let Some(behind) = edge.checked_sub(number) else {
        return false;
    };
    match window {
        XfrmAttrs::ReplayState(state) => behind >= 32 || state.bitmap >> behind & 1 == 1,
        XfrmAttrs::ReplayStateEsn(state) => {
            let size = u64::from(state.replay_window);
            // The ring is continuous across 2^32 only where its size divides that.
            let is_broken = edge >> 32 != number >> 32 && !size.is_power_of_two();
            if behind >= size || is_broken || number == 0 {
                return true;
            }
            let place = (u64::from(number as u32).wrapping_sub(1) % (1 << 32) % size) as usize;
            let word = state.bmp.get(place / 32);
            word.is_none_or(|word| word >> (place % 32) & 1 == 1)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_xfrm::ReplayEsn;

    #[test]
    fn the_small_window_counts_from_its_highest_number_backwards() {
        let window = XfrmAttrs::ReplayState(Replay {
            oseq: 0,
            seq: 100,
            bitmap: 0b101,
        });
        let seen: Vec<_> = (97..=101).map(|n| is_seen(&window, 100, n)).collect();
        assert_eq!(seen, [false, true, false, true, false]);
        assert!(is_seen(&window, 100, 60), "older than the window");
    }

    #[test]
    fn the_large_window_is_a_ring_by_number() {
        let mut bmp = vec![0; 4];
        for number in [200_u32, 197, 128] {
            let place = (number - 1) % 128;
            bmp[place as usize / 32] |= 1 << (place % 32);
        }
        let window = XfrmAttrs::ReplayStateEsn(ReplayEsn {
            bmp_len: 4,
            replay_window: 128,
            seq: 200,
            bmp,
            ..ReplayEsn::default()
        });
        for number in 73..=201 {
            let expected = [200, 197, 128].contains(&number);
            assert_eq!(is_seen(&window, 200, number), expected, "{number}");
        }
        assert!(is_seen(&window, 200, 72), "older than the window");
    }
}
