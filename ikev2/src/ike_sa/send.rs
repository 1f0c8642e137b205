//! Sends requests and responses of an IKE SA, and repeats them.

use super::{Context, IkeSa};
use crate::{
    endpoint::Action,
    message::{
        Body, ExchangeType, Flags, Header, IkeSpi, Payload, TooLong,
        payload::{Notify, NotifyType},
    },
    window::{Datagrams, Due},
};

/// Where nothing is configured yet: what fits any path of IPv6.
const DEFAULT_FRAGMENT_BYTES: usize = 1232;

impl IkeSa {
    /// The header of a message of this side.
    pub fn header(&self, exchange: ExchangeType, message_id: u32, response: bool) -> Header {
        Header {
            initiator_spi: IkeSpi(self.spis.initiator),
            responder_spi: IkeSpi(self.spis.responder),
            exchange,
            flags: Flags {
                initiator: self.is_initiator,
                version: false,
                response,
            },
            message_id,
        }
    }

    /// Sends an encrypted request; its response comes to [`exchange::response`](crate::exchange::response). Ends the
    /// IKE SA where it cannot be sent.
    pub fn request(
        &mut self,
        cx: &mut Context<'_>,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
    ) -> bool {
        let Some(id) = self.requests.next_id() else {
            self.fail(cx, "no message ID is free for another request");
            return false;
        };
        let header = self.header(exchange, id, false);
        match self.seal(cx, &header, payloads) {
            Ok(datagrams) => {
                self.send(cx, datagrams.clone());
                self.requests.sent(datagrams, cx.now);
                true
            }
            Err(error) => {
                self.fail(cx, &error.to_string());
                false
            }
        }
    }

    /// Sends the encrypted response to the request with this ID, and keeps it for the case that the request comes
    /// again.
    pub fn respond(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
    ) {
        let header = self.header(exchange, id, true);
        match self.seal(cx, &header, payloads) {
            Ok(datagrams) => {
                self.responses.answer(id, datagrams.clone());
                self.send(cx, datagrams);
            }
            Err(error) => self.fail(cx, &error.to_string()),
        }
    }

    /// A response of one notification.
    pub fn respond_notify(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        exchange: ExchangeType,
        kind: NotifyType,
        data: &[u8],
    ) {
        let notify = Body::Notify(Notify::new(kind, data)).into();
        self.respond(cx, id, exchange, &[notify]);
    }

    fn seal(
        &mut self,
        cx: &mut Context<'_>,
        header: &Header,
        payloads: &[Payload<'_>],
    ) -> Result<Datagrams, TooLong> {
        let at_most = self
            .connection
            .as_ref()
            .map_or(DEFAULT_FRAGMENT_BYTES, |connection| {
                connection.fragment_bytes
            });
        let Some(keys) = &mut self.keys else {
            return Ok(Vec::new());
        };
        let mut random = |bytes: &mut [u8]| (cx.random)(bytes);
        if self.peer_takes_fragments {
            keys.sealer
                .seal_in_fragments(header, payloads, at_most, &mut random)
        } else {
            let message = keys.sealer.seal(header, payloads, &mut random)?;
            Ok(vec![message])
        }
    }

    /// Sends datagrams to where the peer is.
    pub fn send(&self, cx: &mut Context<'_>, datagrams: Datagrams) {
        cx.act(Action::Send {
            from: self.path.local,
            to: self.path.remote,
            datagrams,
        });
    }

    /// Sends requests again that are due, and ends the IKE SA if the peer has not answered at all.
    pub fn repeat_requests(&mut self, cx: &mut Context<'_>) {
        loop {
            let datagrams = match self.requests.due(cx.now) {
                None => return,
                Some(Due::Repeat(datagrams)) => datagrams.to_vec(),
                Some(Due::GivenUp(_)) => {
                    // RFC 7296 2.4: only now is the peer known to be dead.
                    self.fail(cx, "the peer does not answer");
                    return;
                }
            };
            self.send(cx, datagrams);
        }
    }
}
