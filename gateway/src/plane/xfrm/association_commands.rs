//! Commands about associations, as messages to the kernel.

use super::direction::SaDirection;
use super::socket::Refusal;
use super::zeroizing::ZeroizingMessage;
use super::{Outcome, XfrmPlane, XfrmState, association, xfrm_state};
use ipsec::command::{Answer, Command, SaReport};
use ipsec::sa::{Protocol, SaConfig, SaId};
use netlink_packet_xfrm::XfrmMessage;
use std::net::IpAddr;

impl XfrmPlane {
    /// A reserved SPI gets its keys by an update, whatever the command was; so does an existing association.
    pub(super) fn put_sa(&mut self, config: &SaConfig, command: &Command) -> Outcome<Answer> {
        let name = association::named(&config.id);
        let old = self.find(XfrmMessage::GetSa(name.clone()))?;
        let is_larval = old
            .as_ref()
            .is_some_and(|old| matches!(xfrm_state(old), Some(XfrmState::Larval(_))));
        let delete = ZeroizingMessage::new(XfrmMessage::DeleteSa(name));
        match (old, command) {
            (Some(_), _) if is_larval => {
                let update = XfrmMessage::UpdateSa(association::emit(config));
                self.change(update, vec![delete])
            }
            (Some(old), Command::UpdateSa(_)) => {
                let mut update = association::emit(config);
                // The kernel refuses an update to another direction, or to none.
                if let Some(direction) = direction_of(&old) {
                    direction.put_into(&mut update);
                }
                self.change(XfrmMessage::UpdateSa(update), vec![old.into_update()])
            }
            _ => {
                let add = ZeroizingMessage::new(XfrmMessage::AddSa(association::emit(config)));
                self.kernel.create(&add)?;
                self.undo.push(delete);
                Ok(Answer::Done)
            }
        }
    }

    pub(super) fn delete_sa(&mut self, id: &SaId) -> Outcome<Answer> {
        let name = association::named(id);
        let old = self
            .kernel
            .ask(&ZeroizingMessage::new(XfrmMessage::GetSa(name.clone())))?;
        self.change(XfrmMessage::DeleteSa(name), vec![old])
    }

    pub(super) fn delete_all(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        protocol: Protocol,
    ) -> Outcome<Answer> {
        for (_, found) in self.sas()? {
            if let XfrmState::Sa(report) = found
                && (
                    report.config.source,
                    report.config.id.destination,
                    report.config.id.protocol,
                ) == (source, destination, protocol)
            {
                self.delete_sa(&report.config.id)?;
            }
        }
        Ok(Answer::Done)
    }

    pub(super) fn get_sa(&mut self, id: &SaId) -> Outcome<Answer> {
        let name = association::named(id);
        let answer = self
            .kernel
            .ask(&ZeroizingMessage::new(XfrmMessage::GetSa(name)))?;
        match xfrm_state(&answer) {
            Some(XfrmState::Sa(report)) => Ok(Answer::Sas(vec![*report])),
            _ => Err(Refusal::of(libc::ENOENT)),
        }
    }

    pub(super) fn get_spi(&mut self, wanted: &ZeroizingMessage) -> Outcome<Answer> {
        let answer = self.kernel.ask(wanted)?;
        let XfrmMessage::AddSa(message) = &*answer else {
            return Err(Refusal::of(libc::ENOENT));
        };
        let id = association::identity(&message.user_sa_info).ok_or(Refusal::of(libc::ENOENT))?;
        let delete = XfrmMessage::DeleteSa(association::named(&id));
        self.undo.push(ZeroizingMessage::new(delete));
        Ok(Answer::Spi(id.spi))
    }

    pub(super) fn flush_sas(&mut self, protocol: Option<Protocol>) -> Outcome<Answer> {
        let touched = |message: &ZeroizingMessage| {
            matches!(&**message, XfrmMessage::AddSa(sa)
                if protocol.is_none_or(|protocol| protocol.number() == sa.user_sa_info.id.proto))
        };
        let old = self.sas()?.into_iter().map(|(old, _)| old);
        let old = old.filter(touched).collect();
        self.change(association::flush(protocol), old)
    }

    pub(super) fn dump_sas(&mut self, protocol: Option<Protocol>) -> Outcome<Answer> {
        let mut reports = Vec::new();
        for (_, found) in self.sas()? {
            match found {
                XfrmState::Sa(report) => reports.push(*report),
                XfrmState::Larval(_) => {}
                XfrmState::Other => self.unsupported += 1,
            }
        }
        let wanted = |report: &SaReport| {
            protocol.is_none_or(|protocol| protocol == report.config.id.protocol)
        };
        reports.retain(wanted);
        Ok(Answer::Sas(reports))
    }

    pub(super) fn dump_policies(&mut self) -> Outcome<Answer> {
        let read: Vec<_> = self.policies()?;
        self.unsupported += read.iter().filter(|(_, report)| report.is_none()).count();
        let reports = read.into_iter().filter_map(|(_, report)| report);
        Ok(Answer::Policies(reports.collect()))
    }
}

fn direction_of(answer: &ZeroizingMessage) -> Option<SaDirection> {
    match &**answer {
        XfrmMessage::AddSa(message) => SaDirection::read(message),
        _ => None,
    }
}
