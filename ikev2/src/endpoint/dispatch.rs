//! Datagrams: to the IKE SA whose SPI they name, or, as a stranger's first request, through cookie and limits.

use super::{Action, Endpoint, Event};
use crate::{
    exchange::{
        Context,
        init::{initiator, responder},
    },
    groups::Random,
    ike_sa::Steps,
    message::{ExchangeType, Header, IkeSpi, Message, Refusal, payload::NotifyType},
    nat::Origin,
};
use std::{net::SocketAddr, time::Duration};

/// Refused strangers are reported no more often than this.
const REFUSAL_INTERVAL: Duration = Duration::from_millis(100);

impl Endpoint {
    pub(super) fn datagram(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        bytes: &mut [u8],
        now: Duration,
        random: Random<'_>,
    ) {
        // RFC 7296 2.5: a message of a higher major version MUST be dropped. Strangers get no notification of that.
        let Ok((header, _)) = Header::parse(bytes) else {
            return;
        };
        let origin = Origin { from, to };
        let is_first = header.exchange == ExchangeType::IKE_SA_INIT && !header.flags.response;
        if is_first {
            return self.first_request(origin, &header, bytes, now, random);
        }
        // RFC 7296 2.6: an end finds its IKE SA by the SPI that it chose itself.
        let own = if header.flags.initiator {
            header.responder_spi
        } else {
            header.initiator_spi
        };
        // RFC 7296 2.21.4: a message for an unknown SPI may be left without an answer.
        let Some(sa) = self.sas.get(&own) else { return };
        if header.exchange == ExchangeType::IKE_SA_INIT {
            if sa.is_initiator && from.ip() == sa.path.remote.ip() {
                self.first_response(own, origin, bytes, now, random);
            }
            return;
        }
        let spis = (IkeSpi(sa.spis.initiator), IkeSpi(sa.spis.responder));
        if spis == (header.initiator_spi, header.responder_spi) {
            self.with(own, now, random, |sa, cx| sa.receive(cx, origin, bytes));
        }
    }

    fn first_response(
        &mut self,
        own: IkeSpi,
        origin: Origin,
        bytes: &[u8],
        now: Duration,
        random: Random<'_>,
    ) {
        let Ok(message) = Message::parse(bytes) else {
            return;
        };
        self.with(own, now, random, |sa, cx| {
            initiator::response(sa, cx, &message, bytes, origin.to);
        });
    }

    /// A stranger's request.
    fn first_request(
        &mut self,
        origin: Origin,
        header: &Header,
        bytes: &[u8],
        now: Duration,
        random: Random<'_>,
    ) {
        let is_proper = header.flags.initiator
            && header.message_id == 0
            && header.initiator_spi != IkeSpi::ZERO
            && header.responder_spi == IkeSpi::ZERO;
        if !is_proper || self.is_stopping {
            return;
        }
        let first = (origin.from, header.initiator_spi);
        if let Some(own) = self.half_open.find(first) {
            return self.with(own, now, random, |sa, cx| sa.first_again(cx, origin, bytes));
        }
        let (local, remote) = (origin.to.ip(), origin.from.ip());
        let settings = &self.shared.settings;
        let is_stranger = !self.shared.peers.knows(remote);
        if !self.half_open.has_room(settings, remote, is_stranger) {
            return;
        }
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            // RFC 7296 2.5: MUST reject the message, with the payload's type.
            Err(Refusal::UnsupportedCritical(kind)) => {
                let notify = NotifyType::UnsupportedCriticalPayload;
                let answer = responder::stateless(header, notify, &[kind.0]);
                return self.answer(origin, answer);
            }
            Err(_) => return,
        };
        let is_under_load = self.half_open.is_under_load(settings);
        if is_under_load && !self.has_cookie(origin, &message, now, random) {
            return;
        }
        let candidates = self.shared.peers.acceptance(local, remote);
        if candidates.names.is_empty() {
            let why = "no connection is configured for this address";
            return self.refused(origin.from, None, why.to_owned(), now);
        }
        let mut cx = Context {
            now,
            random: &mut *random,
            shared: &mut self.shared,
        };
        match responder::begin(&mut cx, origin, &message, bytes, &candidates) {
            responder::Begun::Sa(sa) => {
                let own = sa.own_spi();
                self.half_open.add(own, first, is_stranger);
                self.settle(sa, now, random);
            }
            responder::Begun::Refused(answer, why) => {
                self.answer(origin, answer);
                self.refused_for(origin.from, &candidates.names, why, now);
            }
            responder::Begun::Ignored(why) => self.refused(origin.from, None, why, now),
        }
    }

    /// Whether a request has a good cookie; else it gets one, and nothing is kept (RFC 7296 2.6).
    fn has_cookie(
        &mut self,
        origin: Origin,
        message: &Message<'_>,
        now: Duration,
        random: Random<'_>,
    ) -> bool {
        let Some(nonce) = responder::nonce(message) else {
            return false;
        };
        let request = (&message.header.initiator_spi.0, nonce);
        let cookie = responder::cookie(message);
        if cookie.is_some_and(|cookie| self.cookies.check(cookie, origin.from, request, now)) {
            return true;
        }
        if let Some(cookie) = self.cookies.make(origin.from, request, now, random) {
            let answer = responder::stateless(&message.header, NotifyType::Cookie, &cookie);
            self.answer(origin, answer);
        }
        false
    }

    fn answer(&mut self, origin: Origin, datagram: Vec<u8>) {
        self.shared.actions.push(Action::Send {
            from: origin.to,
            to: origin.from,
            datagrams: vec![datagram],
        });
    }

    /// A stranger was refused: reported, but not so often that a flood fills a log.
    pub(super) fn refused(
        &mut self,
        from: SocketAddr,
        connection: Option<String>,
        reason: String,
        now: Duration,
    ) {
        let last = self.refused_at;
        if last.is_some_and(|last| now.saturating_sub(last) < REFUSAL_INTERVAL) {
            return;
        }
        self.refused_at = Some(now);
        self.shared.actions.push(Action::Event(Event::Refused {
            from,
            connection,
            reason,
        }));
    }

    /// The same, and the story of each connection that it could have been for and that is not up.
    fn refused_for(&mut self, from: SocketAddr, names: &[String], why: String, now: Duration) {
        for name in names {
            let Some(record) = self.shared.peers.record_mut(name) else {
                continue;
            };
            if record.up.is_empty() && record.attempt.is_none() {
                record.story = Steps::default();
                record
                    .story
                    .push(now, true, &format!("{from} begins; {why}"));
                record.last_failure = Some(why.clone());
            }
        }
        self.refused(from, names.first().cloned(), why, now);
    }
}
