//! The part of a move that waits: each child SA is rekeyed straight onto the other plane.
//!
//! ```text
//!   forward ── each old pair is removed ──► the last steps ──► moved
//!     │ too long, or a last step failed
//!     └──► back ── each pair that has moved is rekeyed again, or negotiated anew ──► undone ──► the plane that was
//! ```

use super::super::Gateway;
use super::super::answers::plane_name;
use super::waiting::PlaneMove;
use crate::control::{Answer, ClientId};
use crate::failure::Failure;
use crate::ike::message::ToIke;
use crate::run::host::MoveContext;
use ikev2::endpoint::ChildId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long rekeys may take, with the seconds for which old pairs still receive.
const MAX_REKEY_TIME: Duration = Duration::from_secs(30);

/// How long the rekeys of the way back may take. Peers that take longer are negotiated anew.
const MAX_TIME_BACK: Duration = Duration::from_secs(15);

/// The most peers that a text names.
const MAX_LISTED_PEERS: usize = 5;

impl Gateway {
    /// Whether associations are still to pass over.
    pub(super) fn has_left_behind(&mut self) -> bool {
        let snapshot = self.snapshot();
        !self.plane.kernel().left_behind(&snapshot).is_empty()
    }

    /// Has each child SA rekeyed; the client is answered when all have passed over.
    pub(super) fn wait_for_rekeys(&mut self, client: ClientId, to_kernel: bool) {
        self.plane_move = Some(PlaneMove {
            client,
            to_kernel,
            deadline: Instant::now() + MAX_REKEY_TIME,
            failure: None,
        });
        if let Some(text) = self.moving_text() {
            println!("esplanade: {text}");
        }
        self.rekey_left_behind();
    }

    /// Refuses what would meet a move half-way.
    pub(in crate::run::main_loop) fn check_no_move(&mut self) -> Result<(), Failure> {
        match self.moving_text() {
            Some(text) => Err(Failure::new(format!(
                "{text}: wait for its end (`esplanade plane`)"
            ))),
            None => Ok(()),
        }
    }

    /// That a move is in progress, if one is.
    pub(super) fn moving_text(&mut self) -> Option<String> {
        self.plane_move.as_ref()?;
        let names = self.names_left_behind();
        let moving = self.plane_move.as_ref()?;
        let to = plane_name(moving.to_kernel);
        Some(match &moving.failure {
            None => format!(
                "a move to the {to} plane is in progress, and waits until these peers are rekeyed: {names}"
            ),
            Some(why) => format!(
                "a move to the {to} plane is being undone ({why}), and waits until these peers are rekeyed: {names}"
            ),
        })
    }

    /// Whether the last association has passed over, or the time for that is over.
    pub(in crate::run::main_loop) fn look_at_move(&mut self) {
        let Some(moving) = &self.plane_move else {
            return;
        };
        let (to_kernel, is_back) = (moving.to_kernel, moving.failure.is_some());
        let is_late = moving.deadline <= Instant::now();
        let is_over = !self.has_left_behind();
        match (is_over, is_back) {
            (true, false) => self.end_move_forward(to_kernel),
            (true, true) => self.end_move_back(),
            (false, false) if is_late => {
                let seconds = MAX_REKEY_TIME.as_secs();
                let names = self.names_left_behind();
                self.go_back(format!(
                    "rekeying onto it: peers that were not rekeyed within {seconds} s: {names}"
                ));
            }
            (false, true) if is_late => self.negotiate_left_behind_anew(),
            (false, _) => {}
        }
    }

    fn end_move_forward(&mut self, to_kernel: bool) {
        let context = MoveContext {
            options: &self.options,
            snapshot: self.snapshot(),
            hook: self.hook(),
        };
        if let Err(why) = self.plane.kernel().end_move(context) {
            return self.go_back(why.to_string());
        }
        if let Some(moving) = self.plane_move.take() {
            self.has_arrived(to_kernel);
            let answer = self.plane_status(true);
            self.server.answer(moving.client, &answer);
        }
    }

    /// From now on the way leads back.
    fn go_back(&mut self, why: String) {
        let snapshot = self.snapshot();
        self.plane.kernel().turn_back(&snapshot);
        drop(snapshot);
        if let Some(moving) = &mut self.plane_move {
            eprintln!("esplanade: the move to the other plane is undone: {why}");
            moving.failure = Some(why);
            moving.deadline = Instant::now() + MAX_TIME_BACK;
        }
        self.refresh();
        self.rekey_left_behind();
    }

    fn end_move_back(&mut self) {
        let context = MoveContext {
            options: &self.options,
            snapshot: self.snapshot(),
            hook: self.hook(),
        };
        let faults = self.plane.kernel().undo_move(context);
        self.coalesce_ike(true);
        let Some(moving) = self.plane_move.take() else {
            return;
        };
        if moving.to_kernel {
            self.kernel_notices = None;
        }
        self.has_moved = true;
        self.refresh();
        let to = plane_name(moving.to_kernel);
        let why = moving.failure.into_iter().chain(faults);
        let why = why.collect::<Vec<_>>().join("; ");
        let told = format!("not moved to the {to} plane; the plane is the one that it was: {why}");
        self.server.answer(moving.client, &Answer::Refused(told));
    }

    fn children_left_behind(&mut self) -> BTreeSet<ChildId> {
        let snapshot = self.snapshot();
        let left = self.plane.kernel().left_behind(&snapshot);
        let ike = self.ike.iter();
        let children = ike.flat_map(|ike| left.iter().filter_map(|id| ike.peers.child_of(id)));
        children.collect()
    }

    fn peers_left_behind(&mut self) -> BTreeSet<String> {
        let children = self.children_left_behind();
        let ike = self.ike.iter();
        let names = ike.flat_map(|ike| children.iter().filter_map(|id| ike.peers.peer_of(*id)));
        names.map(str::to_owned).collect()
    }

    /// A text with some of them.
    fn names_left_behind(&mut self) -> String {
        list(&self.peers_left_behind())
    }

    fn rekey_left_behind(&mut self) {
        let names = self.peers_left_behind().into_iter();
        let rekey = |connection| ToIke::Rekey {
            connection,
            ike: false,
        };
        let messages = names.map(rekey).collect();
        if let Some(ike) = &mut self.ike {
            ike.send_all(messages);
        }
    }

    /// These peers get a Delete, and are negotiated on the plane that was. Their networks are closed meanwhile.
    fn negotiate_left_behind_anew(&mut self) {
        let names = self.peers_left_behind().into_iter();
        let children: Vec<_> = self.children_left_behind().into_iter().collect();
        if let Some(moving) = &mut self.plane_move {
            // Should the databases not take it, it is tried again.
            moving.deadline = Instant::now() + MAX_TIME_BACK;
        }
        let anew = |connection: String| {
            let down = ToIke::Down {
                connection: connection.clone(),
            };
            [down, ToIke::Up { connection }]
        };
        let messages = names.flat_map(anew).collect();
        if let Some(ike) = &mut self.ike {
            ike.send_all(messages);
        }
        self.remove_children(&children);
    }
}

fn list(names: &BTreeSet<String>) -> String {
    let first: Vec<_> = names.iter().take(MAX_LISTED_PEERS).cloned().collect();
    match names.len().saturating_sub(MAX_LISTED_PEERS) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_peers_some_are_named() {
        let names = |count: usize| (1..=count).map(|number| format!("p{number}")).collect();
        assert_eq!(list(&names(2)), "p1, p2");
        assert_eq!(list(&names(7)), "p1, p2, p3, p4, p5 and 2 more");
    }
}
