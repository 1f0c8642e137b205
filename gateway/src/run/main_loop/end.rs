//! The end of a gateway: the last packets, what it has changed in the host, and what the next process gets.

use super::Gateway;
use crate::control::{Answer, ClientId};
use crate::events::What;
use crate::failure::Failure;
use crate::handover::PassedDescriptors;
use crate::memory;
use crate::routes::record::Record;
use crate::state;
use sd_notify::NotifyState;
use std::io;
use std::time::Duration;

impl Gateway {
    /// The end: packets in flight are sent, then the rules are removed if requested.
    pub(super) fn finish(
        mut self,
        take_away: bool,
        asked_by: Option<ClientId>,
    ) -> Result<(), Failure> {
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        self.report_event(What::Stopping);
        self.stop_ike();
        self.plane.kernel().stop();
        let ended = self.end_kernel_associations();
        self.plane.numbers().finish();
        let outcome = if take_away { self.take_away() } else { ended };
        self.stop_hooks();
        let answer = match &outcome {
            Ok(()) if self.is_replaced => memory::with_keys(|| self.hand_over(asked_by)),
            Ok(()) => Answer::Done,
            Err(error) => Answer::Refused(format!(
                "the gateway stops, but not everything could be removed: {error}"
            )),
        };
        if let Some(id) = asked_by {
            memory::with_keys(|| self.server.answer(id, &answer));
        }
        self.server.flush(Duration::from_secs(2));
        outcome.map_err(|error| Failure::new(format!("cannot remove everything: {error}")))
    }

    /// Descriptors for the process that takes over. Without them it opens its own.
    fn hand_over(&mut self, to: Option<ClientId>) -> Answer {
        let (mut parting, mut descriptors) = self.plane.kernel().descriptors_to_pass(&self.options);
        if let Some((passed, sockets)) = self.pass_key_exchange() {
            parting.key_exchange = Some(passed);
            descriptors.extend(sockets);
        }
        let passed = to.map(|id| self.server.pass(id, &descriptors));
        Answer::Left(match passed {
            Some(Ok(())) => parting,
            _ => PassedDescriptors::default(),
        })
    }

    pub(super) fn take_away(&mut self) -> io::Result<()> {
        self.plane.kernel().take_away()?;
        for name in self.record.restore() {
            (self.warnings.warn())(&format!(
                "the record of an earlier gateway names {name}, which a gateway never changes: ignored"
            ));
        }
        if self.plane.numbers().are_kept() {
            state::remove_recent(self.server.folder())?;
        }
        Record::remove(self.server.folder())
    }
}
