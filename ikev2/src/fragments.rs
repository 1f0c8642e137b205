//! Joins the fragments of an encrypted message (RFC 7383 2.6). Only authentic fragments come here.
//!
//! One message is joined at a time, as the window of an IKE SA has one request and one response. What is held is
//! bounded by [`MAX_FRAGMENTS`] and [`MAX_JOINED_BYTES`].

use crate::message::{Header, Payload, PayloadType, Refusal, payload};
use std::time::Duration;

/// How many fragments a message may have: 64 KB in datagrams of 576 bytes.
pub const MAX_FRAGMENTS: u16 = 128;
/// How many bytes of payloads a message may have when it is joined.
pub const MAX_JOINED_BYTES: usize = 65_535;
/// After this time without a new fragment, those received are discarded (RFC 7383 2.6 leaves the time open).
pub const FRAGMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// An authentic part of what was encrypted. INVARIANT: the number is from 1 to the total.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment<'m> {
    /// The type of the first payload, in fragment 1.
    pub first: PayloadType,
    /// Which one it is, from 1.
    pub number: u16,
    /// How many there are.
    pub total: u16,
    /// Its part of the payloads.
    pub text: &'m [u8],
}

/// The fragments of one message, as far as they have come.
#[derive(Default)]
pub struct Fragments {
    /// Rare, and beside the keys of every IKE SA.
    pending: Option<Box<Pending>>,
}

struct Pending {
    header: Header,
    first: PayloadType,
    parts: Vec<Option<Vec<u8>>>,
    missing: usize,
    bytes: usize,
    last_at: Duration,
}

/// What became of a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Offered {
    /// Others are missing.
    Waiting,
    /// It was the last that was missing.
    Complete(Joined),
    /// It was not taken.
    Discarded(Reason),
}

/// Why a fragment was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It had come before.
    Duplicate,
    /// Fragments with a larger total have come: the peer has fragmented the message again since (RFC 7383 2.6).
    Outdated,
    /// More than [`MAX_FRAGMENTS`] in all.
    TooMany,
    /// More than [`MAX_JOINED_BYTES`] in all.
    TooLong,
    /// Nothing is in it, and it is not the only one.
    Empty,
    /// Exchange type, flags or SPIs differ from those of the others.
    OtherHeader,
}

/// All payloads of a message that came in fragments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The header, without the type of the first payload and the length.
    pub header: Header,
    first: PayloadType,
    bytes: Vec<u8>,
}

impl Joined {
    /// The payloads.
    pub fn payloads(&self) -> Result<Vec<Payload<'_>>, Refusal> {
        payload::parse_decrypted(self.first, &self.bytes)
    }
}

impl Fragments {
    /// Takes an authentic fragment of the message with `header`.
    pub fn offer(&mut self, header: &Header, fragment: Fragment<'_>, now: Duration) -> Offered {
        if fragment.total > MAX_FRAGMENTS {
            return Offered::Discarded(Reason::TooMany);
        }
        if fragment.text.is_empty() && fragment.total > 1 {
            return Offered::Discarded(Reason::Empty);
        }
        self.expire(now);
        let total = usize::from(fragment.total);
        let pending = match self.pending.take() {
            // RFC 7383 2.6: a larger total replaces what came before, a smaller one comes too late.
            Some(pending) if pending.is_same_message(header) && pending.parts.len() >= total => {
                pending
            }
            _ => Box::new(Pending::new(header, total, now)),
        };
        let pending = self.pending.insert(pending);
        if let Err(reason) = pending.add(header, fragment, now) {
            return Offered::Discarded(reason);
        }
        match self.pending.take_if(|pending| pending.missing == 0) {
            Some(complete) => Offered::Complete(complete.join()),
            None => Offered::Waiting,
        }
    }

    /// Gives up a message of which nothing came for [`FRAGMENT_TIMEOUT`].
    pub fn expire(&mut self, now: Duration) {
        self.pending
            .take_if(|pending| now.saturating_sub(pending.last_at) >= FRAGMENT_TIMEOUT);
    }

    /// Bytes of payloads that are held.
    pub fn held_bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.bytes)
    }
}

impl Pending {
    fn new(header: &Header, total: usize, now: Duration) -> Self {
        Self {
            header: *header,
            first: PayloadType::NONE,
            parts: vec![None; total],
            missing: total,
            bytes: 0,
            last_at: now,
        }
    }

    fn is_same_message(&self, header: &Header) -> bool {
        let message = |header: &Header| (header.message_id, header.flags.response);
        message(&self.header) == message(header)
    }

    fn add(
        &mut self,
        header: &Header,
        fragment: Fragment<'_>,
        now: Duration,
    ) -> Result<(), Reason> {
        if self.header != *header {
            return Err(Reason::OtherHeader);
        }
        if usize::from(fragment.total) < self.parts.len() {
            return Err(Reason::Outdated);
        }
        let index = usize::from(fragment.number).checked_sub(1);
        let part = index
            .and_then(|index| self.parts.get_mut(index))
            .ok_or(Reason::TooMany)?;
        if part.is_some() {
            return Err(Reason::Duplicate);
        }
        if self.bytes + fragment.text.len() > MAX_JOINED_BYTES {
            return Err(Reason::TooLong);
        }
        *part = Some(fragment.text.to_vec());
        if fragment.number == 1 {
            self.first = fragment.first;
        }
        self.missing -= 1;
        self.bytes += fragment.text.len();
        self.last_at = now;
        Ok(())
    }

    fn join(self) -> Joined {
        let bytes = self
            .parts
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .concat();
        Joined {
            header: self.header,
            first: self.first,
            bytes,
        }
    }
}

#[cfg(test)]
mod tests;
