//! Texts that change a running gateway: as statements, or as its whole configuration.

use super::Gateway;
use crate::apply;
use crate::control::{Answer, SetkeyText};
use crate::failure::Failure;
use crate::memory;
use crate::plane::{OwnPlane, Recorder};
use crate::reload;
use crate::report;
use crate::run::host::Host;
use crate::run::source::Content;
use dataplane::clock::now;
use ipsec::database::Snapshot;
use std::sync::Arc;
use zeroize::Zeroizing;

impl Gateway {
    pub(super) fn apply_text(&mut self, text: &SetkeyText) -> Answer {
        let (outcome, rivals) = if text.dry_run {
            let mut recorder = Recorder::over(self.plane.draft());
            (apply::apply(&mut recorder, text, now()), Vec::new())
        } else {
            self.change(|plane| apply::apply(plane, text, now()))
        };
        match outcome {
            Ok(mut applied) => {
                applied.warnings.extend(about(&rivals, text));
                Answer::Setkey {
                    output: applied.output,
                    warnings: applied.warnings,
                }
            }
            Err(failure) => Answer::Refused(failure.to_string()),
        }
    }

    /// Replaces the gateway's configuration by that of a text, or of its own file if none is given.
    pub(super) fn reload(&mut self, text: Option<SetkeyText>) -> Answer {
        let (text, peers) = match text {
            Some(text) => (text, None),
            None => match self.read_again() {
                Ok(Content { text, peers }) => (text, peers),
                Err(why) => return Answer::Refused(why.to_string()),
            },
        };
        if let Some(Err(why)) = peers.as_ref().map(|peers| self.prepare_for_peers(peers)) {
            return Answer::Refused(why.to_string());
        }
        let (outcome, rivals) = self.change(|plane| reload::reload(plane, &text));
        match outcome {
            Ok((changes, mut warnings)) => {
                // From now on the text defines the configuration: a rekey under way ends.
                self.rekey = None;
                warnings.extend(about(&rivals, &text));
                let has_none = text.text.is_empty() && changes == reload::Changes::default();
                // A configuration without setkey files has nothing to say about them.
                let mut output = if peers.is_some() && has_none {
                    String::new()
                } else {
                    format!("{}: {changes}\n", text.name)
                };
                if let Some(peers) = peers {
                    match self.reload_peers(peers) {
                        Ok(difference) => output += &difference,
                        Err(why) => return Answer::Refused(why.to_string()),
                    }
                }
                Answer::Setkey {
                    output: Zeroizing::new(output),
                    warnings,
                }
            }
            Err(failure) => Answer::Refused(failure.to_string()),
        }
    }

    fn read_again(&mut self) -> Result<Content, Failure> {
        let previous = self.ike.as_ref().map(|ike| &*ike.configured);
        let previous = previous.unwrap_or_default();
        let mut content = self.file.read_again(previous, &self.warnings.warn())?;
        let peers = content.peers.take();
        content.peers = peers.map(|peers| self.chosen_plane.serves(peers));
        Ok(content)
    }

    /// SIGHUP: the answer is written to the log.
    pub(super) fn reload_file(&mut self) {
        let outcome = match self.check_no_move() {
            Ok(()) => self.reload(None),
            Err(why) => Answer::Refused(why.to_string()),
        };
        match outcome {
            Answer::Setkey { output, warnings } => {
                warnings.iter().for_each(|warning| eprint!("{warning}"));
                print!("esplanade: SIGHUP: {}", &*output);
            }
            Answer::Refused(why) => {
                eprintln!(
                    "esplanade: SIGHUP: nothing was changed:\n{}",
                    why.trim_end()
                )
            }
            _ => {}
        }
        memory::wipe_stack();
    }

    /// Changes the databases and reports the changes as events. Also returns which associations now take over traffic
    /// of others.
    pub(super) fn change<R>(
        &mut self,
        work: impl FnOnce(&mut OwnPlane<Host>) -> R,
    ) -> (R, Vec<String>) {
        let before = self.snapshot();
        let outcome = self.change_and_report(&before, work);
        // Names of associations are no keys.
        let rivals = memory::without_keys(|| report::rivals(&before, &self.snapshot()));
        self.complete(before);
        (outcome, rivals)
    }

    /// The same for the child SAs of IKE, whose policies name the one that carries.
    pub(super) fn change_for_ike<R>(&mut self, work: impl FnOnce(&mut OwnPlane<Host>) -> R) -> R {
        let before = self.snapshot();
        let outcome = self.change_and_report(&before, work);
        self.complete(before);
        outcome
    }

    fn change_and_report<R>(
        &mut self,
        before: &Snapshot,
        work: impl FnOnce(&mut OwnPlane<Host>) -> R,
    ) -> R {
        let outcome = work(&mut self.plane);
        self.relax_rp_filter();
        // Names of associations and policies are no keys.
        memory::without_keys(|| self.report_changes(before));
        outcome
    }

    /// What was removed has gone when this returns.
    fn complete(&mut self, before: Arc<Snapshot>) {
        drop(before);
        self.plane.drain();
        self.warn_of_unlocked_keys();
    }

    /// Sends an event for each association and policy that has changed.
    fn report_changes(&mut self, before: &Snapshot) {
        if !self.server.has_listeners() {
            return;
        }
        let after = self.snapshot();
        for what in report::changes(before, &after) {
            self.report_event(what);
        }
    }
}

fn about(rivals: &[String], text: &SetkeyText) -> Vec<String> {
    let warning = |rival: &String| format!("{}: warning: {rival}\n", text.name);
    rivals.iter().map(warning).collect()
}
