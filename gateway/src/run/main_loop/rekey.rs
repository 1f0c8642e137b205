//! A rekey in the main thread: started, continued or aborted by request, checked once a second.

use super::Gateway;
use crate::control::{Answer, Rekey, SetkeyText};
use crate::events::What;
use crate::failure::Failure;
use crate::memory;
use crate::plane::{Kernel as _, Plane as _};
use crate::rekey::{Pace, RekeyPlan, RekeyProgress, Step, Turn};
use crate::status::{RekeyPeer, RekeyStatus};
use dataplane::clock::now;
use ipsec::command::Refused;
use zeroize::Zeroizing;

/// What a request has done, as text, and the warnings about it.
type Reported = Result<(String, Vec<String>), Failure>;

impl Gateway {
    pub(super) fn rekey(&mut self, request: Rekey) -> Answer {
        let outcome = if request.abort {
            self.abort_rekey()
        } else {
            self.begin_rekey(request)
        };
        match outcome {
            Ok((said, warnings)) => Answer::Setkey {
                output: Zeroizing::new(said),
                warnings,
            },
            Err(failure) => Answer::Refused(failure.to_string()),
        }
    }

    fn begin_rekey(&mut self, request: Rekey) -> Reported {
        let pace = Pace {
            wait: if request.now { Some(0) } else { request.wait },
            keep: request.keep,
        };
        let text = match request.text {
            Some(text) => text,
            None => self.file.read(&self.warnings.warn())?,
        };
        let local = self.plane.kernel().addresses();
        let local = local
            .map_err(|error| Failure::new(format!("cannot list this host's addresses: {error}")))?;
        let plan = RekeyPlan::of(&mut self.plane, &text, &local)?;
        if self.rekey.is_some() {
            return self.go_on_with_rekey(plan, pace);
        }
        if plan.install.is_empty() {
            return if plan.peers.is_empty() {
                Ok((format!("{}: no new keys\n", plan.name()), plan.warnings))
            } else {
                Err(Failure::new(format!(
                    "{}: no new keys, only deleted associations: use `esplanade reload`",
                    plan.name()
                )))
            };
        }
        self.install(plan, pace, &text)
    }

    /// The same command again: with other waiting times, or for peers that were returned to the old keys.
    fn go_on_with_rekey(&mut self, plan: RekeyPlan, pace: Pace) -> Reported {
        let Some(progress) = self.rekey.as_mut() else {
            return Err(Failure::new("no rekey is in progress"));
        };
        let name = progress.name().to_owned();
        if !plan.install.is_empty() || !progress.is_of(&plan.known) {
            return Err(Failure::new(format!(
                "a rekey from {name} is in progress (`esplanade status`): wait for its end, or abort it with \
                 `esplanade rekey --abort`"
            )));
        }
        progress.go_on(pace, now());
        self.check_rekey();
        Ok((self.rekey_text(&name), plan.warnings))
    }

    fn install(&mut self, plan: RekeyPlan, pace: Pace, text: &SetkeyText) -> Reported {
        let mute = plan.peers.iter().find(|peer| peer.messenger().is_none());
        if let (Some(peer), None) = (mute.filter(|peer| !peer.new.outbound.is_empty()), pace.wait) {
            return Err(Failure::new(format!(
                "{}: the switch of {} cannot be detected, which needs ESP in both directions: choose when to send \
                 with the new keys (--wait SECONDS, or --now once the peer has them)",
                plan.name(),
                peer.address
            )));
        }
        let (outcome, _) = self.change(|plane| plane.apply(&plan.install).map(drop));
        outcome.map_err(|refused| Failure::new(plan.blame(&refused, text)))?;
        let (name, warnings) = (plan.name().to_owned(), plan.warnings);
        let snapshot = self.snapshot();
        let progress = RekeyProgress::new(&name, plan.peers, pace, &snapshot, now());
        for (peer, _) in progress.describe(&snapshot, now()) {
            self.report_event(What::Rekey {
                peer,
                step: "begun".to_owned(),
            });
        }
        drop(snapshot);
        self.rekey = Some(progress);
        self.check_rekey();
        Ok((self.rekey_text(&name), warnings))
    }

    fn rekey_text(&self, name: &str) -> String {
        let mut text = format!("{name}: new keys are installed\n");
        for peer in self
            .rekey_status()
            .map(|status| status.peers)
            .unwrap_or_default()
        {
            text += &format!("  {}: {}\n", peer.peer, peer.state);
        }
        text
    }

    fn abort_rekey(&mut self) -> Reported {
        let Some(mut progress) = self.rekey.take() else {
            return Err(Failure::new("no rekey is in progress"));
        };
        let steps = progress.abort(&self.snapshot(), now());
        let nothing = steps.is_empty();
        self.take_steps(&mut progress, steps);
        let name = progress.name().to_owned();
        self.rekey = Some(progress);
        if nothing {
            Err(Failure::new(format!(
                "every peer of the rekey from {name} uses the new keys already or was rolled back: for other keys, \
                 rekey from another file on both sides"
            )))
        } else {
            Ok((
                self.rekey_text(&name).replace(
                    "new keys are installed",
                    "rolled back for peers that have not used the new keys",
                ),
                Vec::new(),
            ))
        }
    }

    /// Once a second: checks what has arrived, carries out the steps that are due, and sends a dummy packet to each
    /// peer.
    pub(super) fn check_rekey(&mut self) {
        let Some(mut progress) = self.rekey.take() else {
            return;
        };
        let snapshot = self.snapshot();
        let steps = progress.due_steps(&snapshot, now());
        drop(snapshot);
        self.take_steps(&mut progress, steps);
        let snapshot = self.snapshot();
        for name in progress.messengers() {
            if let Some(sa) = name.find(&snapshot) {
                self.plane.kernel().send_dummy(sa, now());
            }
        }
        drop(snapshot);
        if !progress.is_over() {
            self.rekey = Some(progress);
        }
    }

    fn take_steps(&mut self, progress: &mut RekeyProgress, steps: Vec<Step>) {
        for step in steps {
            let outcome = if step.commands.is_empty() {
                Ok(())
            } else {
                let (outcome, _) = self.change(|plane| plane.apply(&step.commands).map(drop));
                memory::wipe_stack();
                outcome
            };
            match outcome {
                Ok(()) => {
                    progress.carried_out(&step, now());
                    self.report_step(&step);
                }
                Err(Refused { reason, .. }) => (self.warnings.warn_once())(&format!(
                    "the rekey with {} is stuck and will be retried: {reason}",
                    step.peer
                )),
            }
        }
    }

    fn report_step(&mut self, step: &Step) {
        let text = match step.turn {
            Turn::Follow => "the peer uses the new keys: now sending with them",
            Turn::Force => "now sending with the new keys; the peer has not used them yet",
            Turn::Finish => "done: the old associations are deleted",
            Turn::Unanswered => {
                "the peer has not used the new keys yet: still sending with the old ones (rekey the peer too, or \
                 `esplanade rekey --abort`)"
            }
            Turn::TakeBack => "rolled back: sending with the old keys",
            Turn::Forget => "rolled back: the new associations are deleted",
        };
        self.report_event(What::Rekey {
            peer: step.peer,
            step: text.to_owned(),
        });
    }

    pub(super) fn rekey_status(&self) -> Option<RekeyStatus> {
        let progress = self.rekey.as_ref()?;
        let peers = progress.describe(&self.snapshot(), now());
        let peer = |(peer, state)| RekeyPeer { peer, state };
        Some(RekeyStatus {
            file: progress.name().to_owned(),
            seconds: now().saturating_sub(progress.begun()),
            peers: peers.into_iter().map(peer).collect(),
        })
    }
}
