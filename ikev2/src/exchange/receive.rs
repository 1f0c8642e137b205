//! What comes in for an IKE SA: authentic messages, each once.

use super::{Context, child};
use crate::{
    encrypted::{Content, OpenError},
    endpoint::{Action, Event},
    fragments::{Fragment, Offered},
    ike_sa::{IkeSa, State},
    message::{Header, Payload, Refusal, payload::NotifyType},
    nat::Origin,
    window::Received,
};

impl IkeSa {
    /// Takes an encrypted message. What is not authentic has no effect at all (RFC 7296 2.21).
    pub fn receive(&mut self, cx: &mut Context<'_>, origin: Origin, bytes: &mut [u8]) {
        let Ok((header, _)) = Header::parse(bytes) else {
            return;
        };
        // A message of this side that comes back; and a response that nothing waits for need not be decrypted.
        let is_awaited = !header.flags.response || self.requests.awaits(header.message_id);
        if header.flags.initiator == self.is_initiator || !is_awaited {
            return;
        }
        // A responder's request that has overtaken its IKE_AUTH response: it has proven nothing yet, and asks again.
        let is_proven = !(self.is_initiator && matches!(self.state, State::Authenticating));
        if !header.flags.response && !is_proven {
            return;
        }
        let Some(keys) = &self.keys else { return };
        match keys.opener.open(bytes) {
            Ok(opened) => match opened.content {
                Content::Payloads(payloads) => self.message(cx, origin, &opened.header, &payloads),
                Content::Fragment(fragment) => {
                    self.fragment(cx, origin, &opened.header, fragment);
                }
            },
            Err(OpenError::Inside(header, refusal)) => self.refused(cx, origin, &header, refusal),
            Err(OpenError::Outside(_) | OpenError::InClear | OpenError::BadIcv) => {}
        }
    }

    /// A peer's first request has come again: the same answer, if there is one already (RFC 7296 2.1).
    pub fn first_again(&mut self, cx: &mut Context<'_>, origin: Origin, bytes: &[u8]) {
        let first = match (&self.state, &self.auth) {
            (State::Responding(responding), _) => &responding.handshake.peer_message,
            (_, Some(auth)) => &auth.handshake.peer_message,
            _ => return,
        };
        if first.as_slice() != bytes {
            return;
        }
        if let Received::Again(datagrams) = self.responses.peek(0) {
            let datagrams = datagrams.to_vec();
            send_back(cx, origin, datagrams);
        }
    }

    fn fragment(
        &mut self,
        cx: &mut Context<'_>,
        origin: Origin,
        header: &Header,
        fragment: Fragment<'_>,
    ) {
        if !header.flags.response {
            match self.responses.peek(header.message_id) {
                Received::New => {}
                // RFC 7383 2.6.1: the first fragment alone has the answer sent again.
                Received::Again(datagrams) if fragment.number == 1 => {
                    let datagrams = datagrams.to_vec();
                    return send_back(cx, origin, datagrams);
                }
                _ => return,
            }
        }
        let fragments = if header.flags.response {
            &mut self.fragments_of_responses
        } else {
            &mut self.fragments_of_requests
        };
        if let Offered::Complete(joined) = fragments.offer(header, fragment, cx.now) {
            match joined.payloads() {
                Ok(payloads) => self.message(cx, origin, &joined.header, &payloads),
                Err(refusal) => self.refused(cx, origin, &joined.header, refusal),
            }
        }
    }

    /// A whole authentic message.
    fn message(
        &mut self,
        cx: &mut Context<'_>,
        origin: Origin,
        header: &Header,
        payloads: &[Payload<'_>],
    ) {
        if header.flags.response {
            if self.requests.answered(header.message_id) {
                self.heard(cx, origin);
                super::response(self, cx, header, payloads);
            }
        } else if self.is_new(cx, origin, header.message_id) {
            self.heard(cx, origin);
            super::request(self, cx, header, payloads);
        }
    }

    /// Whether a request comes for the first time. One that was answered gets the same answer again.
    fn is_new(&mut self, cx: &mut Context<'_>, origin: Origin, id: u32) -> bool {
        match self.responses.receive(id) {
            Received::New => !matches!(self.state, State::Lingering(_) | State::Gone),
            Received::Again(datagrams) => {
                let datagrams = datagrams.to_vec();
                send_back(cx, origin, datagrams);
                child::answered_again(self, cx, id);
                false
            }
            // RFC 7296 2.3: ignored; the notification INVALID_MESSAGE_ID is optional.
            Received::InProgress | Received::OutsideWindow => false,
        }
    }

    /// An authentic message whose content breaks the rules.
    fn refused(&mut self, cx: &mut Context<'_>, origin: Origin, header: &Header, refusal: Refusal) {
        if header.flags.response {
            if self.requests.answered(header.message_id) {
                // RFC 7296 2.21.3: the peer does not speak the protocol; nothing can be repaired.
                self.fail(cx, &format!("the peer's answer is refused: {refusal}"));
            }
            return;
        }
        let id = header.message_id;
        if !self.is_new(cx, origin, id) {
            return;
        }
        self.heard(cx, origin);
        match refusal {
            // RFC 7296 2.5: MUST reject the message, with the type of the payload.
            Refusal::UnsupportedCritical(kind) => {
                let notify = NotifyType::UnsupportedCriticalPayload;
                self.respond_notify(cx, id, header.exchange, notify, &[kind.0]);
                if !matches!(self.state, State::Established(_)) {
                    self.fail_and_linger(cx, &refusal.to_string());
                }
            }
            // RFC 7296 2.21.3: INVALID_SYNTAX is sent, and ends the IKE SA on both sides.
            Refusal::Malformed(_) | Refusal::MajorVersion(_) => {
                let notify = NotifyType::InvalidSyntax;
                self.respond_notify(cx, id, header.exchange, notify, &[]);
                self.fail_and_linger(cx, &format!("a message of the peer is refused: {refusal}"));
            }
        }
    }

    /// The peer lives, and is here now.
    fn heard(&mut self, cx: &mut Context<'_>, origin: Origin) {
        let now = cx.now;
        match &mut self.state {
            State::Established(established) => established.heard_at = now,
            // The message that floats to port 4500, or the first from the address that the kernel chose.
            State::Authenticating => {
                self.path.local = origin.to;
                self.path.remote = origin.from;
                return;
            }
            _ => return,
        }
        self.follow(cx, origin);
    }

    /// RFC 7296 2.23: a peer behind a NAT is followed to the address of its newest authentic message, by a side that is
    /// behind none.
    fn follow(&mut self, cx: &mut Context<'_>, origin: Origin) {
        let old = self.path.remote;
        let is_moved = old != origin.from;
        if !is_moved || !self.path.nat_remote || self.path.nat_local {
            return;
        }
        self.path.remote = origin.from;
        self.path.local = origin.to;
        let children = self.children.iter().map(|child| child.id).collect();
        let peer = self.peer();
        self.step(
            cx,
            format!("the peer has moved from {old} to {}", origin.from),
        );
        cx.event(Event::Moved {
            peer,
            from: old,
            children,
        });
    }
}

/// Answers a request that came again where it came from.
fn send_back(cx: &mut Context<'_>, origin: Origin, datagrams: Vec<Vec<u8>>) {
    cx.act(Action::Send {
        from: origin.to,
        to: origin.from,
        datagrams,
    });
}
