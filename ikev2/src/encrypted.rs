//! Encrypted payloads, SK (RFC 7296 3.14, RFC 5282) and SKF (RFC 7383): sealed and opened with the keys of one
//! direction.
//!
//! ```text
//!   IKE header | generic header [| number, total] | IV | payloads, padding, its length | ICV
//!   └──────────── associated data ───────────────┘      └──────── encrypted ────────┘
//! ```
//!
//! With a separate integrity algorithm the ICV covers all in front of it. Nothing inside is read before the ICV was
//! verified.

use crate::fragments::{Fragment, MAX_FRAGMENTS};
use crate::message::{
    Body, HEADER_LEN, Header, Location, Malformed, Message, Payload, PayloadType, Refusal, TooLong,
    payload,
};
use ipsec::{algorithm::Encryption, suite::Suite};
use multibuffer::{Cipher, Iv, Key, OpenJob, SealJob, Verdict};
use std::fmt;

const GENERIC_HEADER_LEN: usize = payload::GENERIC_HEADER_LEN;
/// Number and total of a fragment.
const FRAGMENT_HEAD_LEN: usize = 4;
const MAX_BLOCK_LEN: usize = 16;

/// SK_e and SK_a of one direction. Expanded for each message: that costs less than a microsecond, and of thousands of
/// IKE SAs few have a message at any time. Zeroed when dropped, never printed.
pub struct MessageKey(Suite);

/// Why algorithms and keys cannot protect IKE messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnfitKey {
    /// Nothing would encrypt the messages.
    Unencrypted,
    /// The algorithm is for ESP alone: it does not encrypt, or leaves its IV out of the packet (RFC 8750).
    NotForIke(Encryption),
    /// Nothing would authenticate the messages.
    Unauthenticated,
}

impl fmt::Display for UnfitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unencrypted => f.write_str("a cipher is missing"),
            Self::NotForIke(encryption) => {
                write!(f, "{} cannot protect IKE messages", encryption.name)
            }
            Self::Unauthenticated => f.write_str("an integrity algorithm is missing"),
        }
    }
}

impl std::error::Error for UnfitKey {}

impl MessageKey {
    /// SK_e and SK_a of one direction.
    pub fn new(suite: &Suite) -> Result<Self, UnfitKey> {
        let (encryption, _) = suite.encryption().ok_or(UnfitKey::Unencrypted)?;
        if matches!(encryption.cipher, Cipher::Null | Cipher::AesGmac) || encryption.iv_len == 0 {
            return Err(UnfitKey::NotForIke(encryption));
        }
        if suite.is_authenticated() {
            Ok(Self(suite.clone()))
        } else {
            Err(UnfitKey::Unauthenticated)
        }
    }

    fn expand(&self) -> Key {
        multibuffer::without_stack_copies(|| self.0.expand())
    }

    /// Decrypts `message` in place, which is one whole datagram without the non-ESP marker.
    pub fn open<'m>(&self, message: &'m mut [u8]) -> Result<Opened<'m>, OpenError> {
        let (header, part, sealed_len) = Self::find(message)?;
        let (front, sealed) = message.split_at_mut(message.len() - sealed_len);
        let text = self.open_text(front, sealed).ok_or(OpenError::BadIcv)?;
        let inside = |refusal| OpenError::Inside(header, refusal);
        let text = without_padding(text).map_err(|malformed| inside(malformed.into()))?;
        let content = match part {
            Part::Whole { first } => {
                Content::Payloads(payload::parse_decrypted(first, text).map_err(inside)?)
            }
            Part::Fragment {
                first,
                number,
                total,
            } => Content::Fragment(Fragment {
                first,
                number,
                total,
                text,
            }),
        };
        Ok(Opened { header, content })
    }

    /// Where the encrypted payload is, and how many bytes of it are IV, ciphertext and ICV. Payloads in clear before it
    /// are authentic with it, but no exchange has any: they are passed over.
    fn find(message: &[u8]) -> Result<(Header, Part, usize), OpenError> {
        let Message { header, payloads } = Message::parse(message).map_err(OpenError::Outside)?;
        match payloads.last().map(|payload| &payload.body) {
            Some(Body::Encrypted { first, sealed }) => {
                Ok((header, Part::Whole { first: *first }, sealed.len()))
            }
            Some(Body::EncryptedFragment(fragment)) => {
                let (number, total) = (fragment.number, fragment.total);
                let part = Part::Fragment {
                    first: fragment.first,
                    number,
                    total,
                };
                Ok((header, part, fragment.sealed.len()))
            }
            _ => Err(OpenError::InClear),
        }
    }

    /// The plaintext with its padding, if the ICV is right.
    fn open_text<'m>(&self, aad: &[u8], sealed: &'m mut [u8]) -> Option<&'m mut [u8]> {
        let key = self.expand();
        let (iv, text) = sealed.split_at_mut_checked(key.iv_len())?;
        let text_len = text.len().checked_sub(key.icv_len())?;
        let mut jobs = [OpenJob {
            key: &key,
            aad,
            aad_tail: &[],
            iv: Iv::new(iv),
            text: &mut *text,
            verdict: Verdict::Pending,
        }];
        multibuffer::open(&mut jobs);
        let [OpenJob { verdict, .. }] = jobs;
        (verdict == Verdict::Genuine).then(|| text.split_at_mut(text_len).0)
    }
}

enum Part {
    Whole {
        first: PayloadType,
    },
    Fragment {
        first: PayloadType,
        number: u16,
        total: u16,
    },
}

/// RFC 7296 3.14: the last byte is the number of padding bytes in front of it; they may have any value.
fn without_padding(text: &mut [u8]) -> Result<&[u8], Malformed> {
    let malformed = Malformed {
        location: Location::Payload(PayloadType::ENCRYPTED),
        offset: text.len().saturating_sub(1),
        expected: "a length of padding that fits",
    };
    let (&mut padding, text) = text.split_last_mut().ok_or(malformed)?;
    let len = text
        .len()
        .checked_sub(usize::from(padding))
        .ok_or(malformed)?;
    text.get(..len).ok_or(malformed)
}

/// An authentic message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened<'m> {
    /// Its header.
    pub header: Header,
    /// What was encrypted.
    pub content: Content<'m>,
}

/// What was encrypted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content<'m> {
    /// All payloads.
    Payloads(Vec<Payload<'m>>),
    /// A part of them, to be joined with the others.
    Fragment(Fragment<'m>),
}

/// Why a message was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The part in clear is refused. It is not authenticated, so no answer is sent.
    Outside(Refusal),
    /// It has no encrypted payload.
    InClear,
    /// It is not from the peer, or was changed: it is dropped without an answer (RFC 7296 2.21).
    BadIcv,
    /// It is authentic, but its content is refused: the peer gets an error.
    Inside(Header, Refusal),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside(refusal) => refusal.fmt(f),
            Self::InClear => f.write_str("the message is not encrypted"),
            Self::BadIcv => {
                f.write_str("the ICV is wrong: not from the peer, or changed on the way")
            }
            Self::Inside(_, refusal) => write!(f, "in the encrypted payload: {refusal}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Seals the messages of one direction, and gives no IV twice.
pub struct Sealer {
    key: MessageKey,
    /// RFC 5282 3.1: a counter never repeats. CBC takes random bytes instead.
    next_iv: u64,
}

impl Sealer {
    /// Begins with the first IV of a key that has not sealed anything yet.
    pub fn new(key: MessageKey) -> Self {
        Self { key, next_iv: 0 }
    }

    /// The message with all `payloads` in one encrypted payload. `random` fills in bytes that cannot be predicted.
    pub fn seal(
        &mut self,
        header: &Header,
        payloads: &[Payload<'_>],
        random: &mut impl FnMut(&mut [u8]),
    ) -> Result<Vec<u8>, TooLong> {
        let text = printed(payloads)?;
        let kind = PayloadType::ENCRYPTED;
        let key = self.key.expand();
        let parts = (kind, payload::first(payloads));
        self.seal_part(&key, header, parts, &[], &text, random)
    }

    /// The message as datagrams of at most `max_datagram_bytes` each (what UDP carries, without the non-ESP marker):
    /// whole if it fits, else in fragments (RFC 7383 2.5). There is always room for some bytes: less than that is taken
    /// as that.
    pub fn seal_in_fragments(
        &mut self,
        header: &Header,
        payloads: &[Payload<'_>],
        max_datagram_bytes: usize,
        random: &mut impl FnMut(&mut [u8]),
    ) -> Result<Vec<Vec<u8>>, TooLong> {
        let text = printed(payloads)?;
        let first = payload::first(payloads);
        let key = self.key.expand();
        let around = HEADER_LEN + GENERIC_HEADER_LEN + longest_overhead(&key);
        // RFC 7383 2.5.1: what fits is not cut.
        if text.len() + around <= max_datagram_bytes {
            let part = (PayloadType::ENCRYPTED, first);
            return Ok(vec![self.seal_part(
                &key,
                header,
                part,
                &[],
                &text,
                random,
            )?]);
        }
        let room = max_datagram_bytes.saturating_sub(around + FRAGMENT_HEAD_LEN);
        let parts = text.chunks(room.max(MIN_FRAGMENT_BYTES));
        let too_long = TooLong(PayloadType::ENCRYPTED_FRAGMENT);
        let total = u16::try_from(parts.len()).map_err(|_| too_long)?;
        if total > MAX_FRAGMENTS {
            return Err(too_long);
        }
        let numbered = (1..=total).zip(parts);
        let sealed = numbered.map(|(number, text)| {
            let first = if number == 1 {
                first
            } else {
                PayloadType::NONE
            };
            let ([a, b], [c, d]) = (number.to_be_bytes(), total.to_be_bytes());
            let part = (PayloadType::ENCRYPTED_FRAGMENT, first);
            self.seal_part(&key, header, part, &[a, b, c, d], text, random)
        });
        sealed.collect()
    }

    fn seal_part(
        &mut self,
        key: &Key,
        header: &Header,
        (kind, first): (PayloadType, PayloadType),
        fragment_head: &[u8],
        text: &[u8],
        random: &mut impl FnMut(&mut [u8]),
    ) -> Result<Vec<u8>, TooLong> {
        let iv = self.iv(key, random);
        let padding_len = key.block_len() - 1 - text.len() % key.block_len();
        let sealed_len = text.len() + padding_len + 1 + key.icv_len();
        let payload_len =
            GENERIC_HEADER_LEN + fragment_head.len() + iv.as_bytes().len() + sealed_len;
        let message_len = HEADER_LEN + payload_len;
        let payload_len = u16::try_from(payload_len).map_err(|_| TooLong(kind))?;
        let [high, low] = payload_len.to_be_bytes();

        let mut message = Vec::with_capacity(message_len);
        message.extend(header.emit(kind, message_len as u32));
        message.extend([first.0, 0, high, low]);
        message.extend_from_slice(fragment_head);
        let aad_len = message.len();
        message.extend_from_slice(iv.as_bytes());
        let output_at = message.len();
        message.resize(message_len, 0);
        let (front, output) = message.split_at_mut(output_at);

        // RFC 7296 3.14: padding of any value, and its length.
        let mut trailer = [0; MAX_BLOCK_LEN];
        trailer[padding_len] = padding_len as u8;
        multibuffer::seal(&mut [SealJob {
            key,
            aad: &front[..aad_len],
            aad_tail: &[],
            iv,
            input: [text, &trailer[..=padding_len], &[]],
            output,
        }]);
        Ok(message)
    }

    fn iv(&mut self, key: &Key, random: &mut impl FnMut(&mut [u8])) -> Iv {
        if key.iv_is_counter() {
            let iv = self.next_iv;
            // At a million messages a second this would take half a million years.
            self.next_iv = iv.checked_add(1).expect("2^64 messages under one key");
            Iv::new(&iv.to_be_bytes())
        } else {
            let mut iv = [0; MAX_BLOCK_LEN];
            let iv = &mut iv[..key.iv_len()];
            random(iv);
            Iv::new(iv)
        }
    }
}

/// The least part of a message in a fragment, however small the datagrams should be.
const MIN_FRAGMENT_BYTES: usize = 128;

/// Bytes that protection adds to those of the payloads, padding at its longest.
fn longest_overhead(key: &Key) -> usize {
    key.iv_len() + key.block_len() + key.icv_len()
}

fn printed(payloads: &[Payload<'_>]) -> Result<Vec<u8>, TooLong> {
    let mut text = Vec::new();
    payload::print(payloads, &mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
