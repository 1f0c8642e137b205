//! `esplanade plane`: which plane carries the packets, and the move to the other one.

mod rekeys;
mod waiting;

pub(super) use waiting::PlaneMove;

use super::Gateway;
use super::answers::plane_name;
use crate::config::{ConfiguredPeer, Mode};
use crate::control::{Answer, ClientId, PlaneQuestion};
use crate::events::What;
use crate::failure::Failure;
use crate::plane::{KernelNotices, MoveWish, refusal, stays};
use crate::run::host::MoveContext;
use crate::run::native::Native;
use crate::run::plane_choice::{ChosenPlane, what_needs_our_own};
use crate::status::PlaneStatus;
use ipsec::database::Snapshot;
use std::sync::Arc;
use std::time::Duration;

impl Gateway {
    /// Answers, and moves first if that is asked for. Where rekeys are waited for the answer comes later.
    pub(super) fn plane(&mut self, client: ClientId, question: &PlaneQuestion) -> Option<Answer> {
        let Some(to_kernel) = question.to_kernel else {
            return Some(self.plane_status(false));
        };
        if let Err(why) = self.check_no_move() {
            return Some(Answer::Refused(why.to_string()));
        }
        if to_kernel == self.chosen_plane.by_kernel {
            return Some(self.plane_status(false));
        }
        self.look_at_nonces();
        let wish = MoveWish {
            to_kernel,
            same_keys: question.same_keys,
        };
        match self.move_plane(wish) {
            Err(why) => Some(Answer::Refused(why.to_string())),
            Ok(()) if self.has_left_behind() => {
                self.wait_for_rekeys(client, to_kernel);
                None
            }
            Ok(()) => {
                self.has_arrived(to_kernel);
                Some(self.plane_status(true))
            }
        }
    }

    pub(super) fn plane_status(&mut self, moved: bool) -> Answer {
        let moving = self.moving_text();
        let chosen = &self.chosen_plane;
        Answer::Plane(PlaneStatus {
            plane: plane_name(chosen.by_kernel).to_owned(),
            reason: moving.unwrap_or_else(|| chosen.reason.clone()),
            moved,
            associations: self.snapshot().sas().count() as u64,
            longest_wait_us: self.longest_wait_us().filter(|_| moved),
        })
    }

    fn longest_wait_us(&mut self) -> Option<u64> {
        let waited = self.plane.kernel().longest_wait()?;
        Some(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX))
    }

    fn move_plane(&mut self, wish: MoveWish) -> Result<(), Failure> {
        let snapshot = self.snapshot();
        let to = plane_name(wish.to_kernel);
        if let Some(why) = self.why_not_move(&snapshot, wish) {
            return Err(Failure::new(format!(
                "not moved to the {to} plane, and nothing was changed: {why}"
            )));
        }
        let notices = if wish.to_kernel {
            Some(KernelNotices::open().map_err(|error| {
                Failure::new(format!(
                    "cannot listen to the kernel's IPsec, which needs CAP_NET_ADMIN: {error}"
                ))
            })?)
        } else {
            None
        };
        // What is left of the move before must not end the shares of this one.
        self.forget_last_move();
        let context = MoveContext {
            options: &self.options,
            snapshot,
            hook: self.hook(),
        };
        self.coalesce_ike(false);
        if let Err(why) = self.plane.kernel().move_plane(wish.to_kernel, context) {
            self.coalesce_ike(true);
            // What the undo could not take away is tried again.
            self.refresh();
            return Err(Failure::new(format!(
                "not moved to the {to} plane; the plane is the one that it was: {why}"
            )));
        }
        // On the way to the other plane the kernel's are needed until its end.
        self.kernel_notices = notices.or(self.kernel_notices.take());
        Ok(())
    }

    /// While both planes carry nothing that arrives is coalesced.
    pub(super) fn coalesce_ike(&self, coalesces: bool) {
        if let Some(ike) = &self.ike {
            ike.coalesce(coalesces);
        }
    }

    /// The other plane carries alone.
    pub(super) fn has_arrived(&mut self, to_kernel: bool) {
        let (from, to) = (plane_name(!to_kernel), plane_name(to_kernel));
        self.coalesce_ike(true);
        if !to_kernel {
            self.kernel_notices = None;
        }
        self.chosen_plane = ChosenPlane {
            by_kernel: to_kernel,
            reason: "by `esplanade plane move`".to_owned(),
            prefers_policies: true,
        };
        self.has_moved = true;
        // Devices, rings and sockets that only this plane has.
        self.refresh();
        let associations = self.snapshot().sas().count() as u64;
        let longest_wait_us = self.longest_wait_us();
        self.report_event(What::PlaneMoved {
            from: from.to_owned(),
            to: to.to_owned(),
            associations,
            longest_wait_us,
        });
        println!("esplanade: moved to the {to} plane, {associations} associations");
    }

    fn why_not_move(&mut self, snapshot: &Arc<Snapshot>, wish: MoveWish) -> Option<String> {
        if self.rekey.is_some() {
            return Some(
                "a rekey is in progress: wait for its end (`esplanade status`)".to_owned(),
            );
        }
        let peers = self.ike.as_ref().map(|ike| &*ike.configured);
        let ours_alone = what_needs_our_own(&self.options);
        if let Some(why) = ours_alone.filter(|_| wish.to_kernel) {
            return Some(why);
        }
        let has_device = |peer: &&ConfiguredPeer| matches!(peer.mode, Mode::Route { .. });
        if let Some(peer) = peers.into_iter().flatten().find(has_device) {
            return Some(format!(
                "peer {} has a device of its own, as peers have on the user plane unless their file says otherwise, and \
                 a device cannot change its kind while routes lead there: write `mode = \"policy\"` and reload first",
                peer.connection.name
            ));
        }
        let orphan = self.ike.as_ref().and_then(|ike| {
            let mut children = ike.peers.children();
            children.find_map(|(name, _, child)| child.is_orphaned.then(|| name.to_owned()))
        });
        if let Some(name) = orphan {
            return Some(format!(
                "peer {name} has a child SA that is orphaned, which cannot be rekeyed: wait until it is negotiated \
                 again (`esplanade status`)"
            ));
        }
        let local = self.plane.kernel().local();
        let refused = refusal(snapshot, wish, local).or_else(|| stays(snapshot));
        let host = self.plane.kernel();
        if let Some(why) = refused.or_else(|| host.nonces_refuse(snapshot, wish.to_kernel)) {
            return Some(why);
        }
        // A running gateway may make no network namespace for a trial: each step is undone if the kernel refuses it.
        if wish.to_kernel {
            None
        } else {
            Native::check(&self.options)
                .err()
                .map(|why| why.to_string())
        }
    }

    /// After a second or so copies of packets that the other plane has opened have been read: from now on they would
    /// be replays.
    pub(super) fn forget_last_move(&mut self) {
        if std::mem::take(&mut self.has_moved) {
            for sa in self.snapshot().sas() {
                sa.state.own_all_numbers();
            }
            let _ = self.plane.kernel().read_kernel_counters(Duration::ZERO);
        }
    }
}
