//! `esplanade plane`: which plane carries the packets, and the move to the other one.

use super::Gateway;
use super::answers::plane_name;
use crate::config::{ConfiguredPeer, Mode};
use crate::control::{Answer, PlaneQuestion};
use crate::events::What;
use crate::plane::{KernelNotices, MoveWish, refusal, stays};
use crate::run::host::MoveContext;
use crate::run::native::Native;
use crate::run::plane_choice::{ChosenPlane, what_needs_our_own};
use crate::status::PlaneStatus;
use ipsec::database::Snapshot;
use std::sync::Arc;
use std::time::Duration;

impl Gateway {
    /// Answers, and moves first if that is asked for.
    pub(super) fn plane(&mut self, question: &PlaneQuestion) -> Answer {
        let moved = match question.to_kernel {
            Some(to_kernel) if to_kernel != self.chosen_plane.by_kernel => {
                let wish = MoveWish {
                    to_kernel,
                    same_keys: question.same_keys,
                };
                match self.move_plane(wish) {
                    Ok(()) => true,
                    Err(why) => return Answer::Refused(why),
                }
            }
            _ => false,
        };
        Answer::Plane(PlaneStatus {
            plane: plane_name(self.chosen_plane.by_kernel).to_owned(),
            reason: self.chosen_plane.reason.clone(),
            moved,
            associations: self.snapshot().sas().count() as u64,
        })
    }

    fn move_plane(&mut self, wish: MoveWish) -> Result<(), String> {
        let snapshot = self.snapshot();
        let to = plane_name(wish.to_kernel);
        if let Some(why) = self.why_not_move(&snapshot, wish) {
            return Err(format!(
                "not moved to the {to} plane, and nothing was changed: {why}"
            ));
        }
        let notices = match wish.to_kernel {
            true => Some(KernelNotices::open().map_err(|error| {
                format!("cannot listen to the kernel's IPsec, which needs CAP_NET_ADMIN: {error}")
            })?),
            false => None,
        };
        let associations = snapshot.sas().count() as u64;
        let context = MoveContext {
            options: &self.options,
            snapshot,
            hook: self.hook(),
        };
        let moved = self.plane.kernel().move_plane(wish.to_kernel, context);
        moved.map_err(|why| {
            format!("not moved to the {to} plane; the plane is the one that it was: {why}")
        })?;
        let from = plane_name(!wish.to_kernel).to_owned();
        self.kernel_notices = notices;
        self.chosen_plane = ChosenPlane {
            by_kernel: wish.to_kernel,
            reason: "by `esplanade plane move`".to_owned(),
        };
        self.has_moved = true;
        // Devices, rings and sockets that only this plane has.
        self.refresh();
        self.report_event(What::PlaneMoved {
            from,
            to: to.to_owned(),
            associations,
        });
        println!("esplanade: moved to the {to} plane, {associations} associations");
        Ok(())
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
                "peer {} has a device of its own, which cannot change its kind while routes lead there: write `mode = \
                 \"policy\"` and reload first",
                peer.connection.name
            ));
        }
        if let Some(why) = refusal(snapshot, wish).or_else(|| stays(snapshot)) {
            return Some(why);
        }
        // A running gateway may make no network namespace for a trial: each step is undone if the kernel refuses it.
        match wish.to_kernel {
            true => None,
            false => Native::check(&self.options)
                .err()
                .map(|why| why.to_string()),
        }
    }

    /// Copies of packets that the other plane has opened have been read by now.
    pub(super) fn end_move(&mut self) {
        if std::mem::take(&mut self.has_moved) {
            for sa in self.snapshot().sas() {
                sa.state.own_all_numbers();
            }
            let _ = self.plane.kernel().read_kernel_counters(Duration::ZERO);
        }
    }
}
