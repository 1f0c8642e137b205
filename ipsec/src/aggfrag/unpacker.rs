//! Inbound: payloads into packets, in the order of their sequence numbers (RFC 9347 2.2.3, 2.5).
//!
//! ```text
//!   offered  5 6 8 9 7 10       7 is missing: 8 and 9 are held
//!   read     5 6 . . 7 8 9 10   7 came in time; had it not, what it carried a part of is dropped as `incomplete`
//! ```

use super::header::Header;
use crate::Dropped;
use crate::sa::SequenceNumber;
use std::collections::BTreeMap;

/// A whole packet, or the reason why one was lost.
pub type Unpacked<'a> = Result<&'a [u8], Dropped>;

/// The payloads of one association and the packet that continues from one to the next.
#[derive(Default)]
pub struct Unpacker {
    /// The sequence number to be read next; 0 before the first.
    next: u64,
    /// Payloads that have overtaken `next`.
    held: BTreeMap<u64, Vec<u8>>,
    /// When a payload was first held behind the missing one, in milliseconds.
    since: u64,
    partial: Partial,
    /// How many came too late one after the other, and the last of them.
    late: (u64, u64),
}

/// A packet of which the end is still to come.
#[derive(Default)]
struct Partial {
    /// Empty if there is none.
    bytes: Vec<u8>,
    /// Whether the rest of a packet is expected whose beginning was given up and has been counted.
    is_abandoned: bool,
}

impl Unpacker {
    /// Takes the payload of one ESP packet that was admitted by its window; packets that are whole now go to `out`, in
    /// order. At most `window` payloads are held behind a missing one.
    pub fn offer(
        &mut self,
        sequence: SequenceNumber,
        payload: &[u8],
        window: u16,
        now: u64,
        out: &mut dyn FnMut(Unpacked<'_>),
    ) {
        let window = u64::from(window);
        let SequenceNumber(number) = sequence;
        if self.is_fresh() {
            // A sender that has been running for long is joined where it is.
            self.next = if number > window + 1 { number } else { 1 };
        }
        if number < self.next && !self.starts_over(number, window) {
            return out(Err(Dropped::TooOld));
        }
        if number == self.next {
            self.read(payload, out);
            return self.advance(now, out);
        }
        if self.held.contains_key(&number) {
            return out(Err(Dropped::Replayed));
        }
        if self.held.is_empty() {
            self.since = now;
        }
        self.held.insert(number, payload.to_vec());
        if number - self.next > window {
            self.skip_to(number - window, out);
            self.since = now;
            self.advance(now, out);
        }
    }

    /// Gives up what has been missing for `timeout_ms` milliseconds.
    pub fn expire(&mut self, timeout_ms: u16, now: u64, out: &mut dyn FnMut(Unpacked<'_>)) {
        if self
            .deadline(timeout_ms)
            .is_none_or(|deadline| deadline > now)
        {
            return;
        }
        if let Some((&number, _)) = self.held.first_key_value() {
            self.skip_to(number, out);
            self.advance(now, out);
        }
    }

    /// When [`Unpacker::expire`] has something to do, in milliseconds.
    pub fn deadline(&self, timeout_ms: u16) -> Option<u64> {
        let deadline = self.since + u64::from(timeout_ms);
        (!self.held.is_empty()).then_some(deadline)
    }

    /// Payloads that are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn is_fresh(&self) -> bool {
        self.next == 0
    }

    /// Whether so many numbers came too late in a row that the sender must have started again with the same key, as it
    /// may with keys set by hand and no replay check.
    fn starts_over(&mut self, number: u64, window: u64) -> bool {
        let (run, last) = self.late;
        let run = if last.wrapping_add(1) == number {
            run + 1
        } else {
            1
        };
        self.late = (run, number);
        if run <= 2 * window + 8 {
            return false;
        }
        *self = Self {
            next: number,
            ..Self::default()
        };
        true
    }

    /// Reads on as long as nothing is missing.
    fn advance(&mut self, now: u64, out: &mut dyn FnMut(Unpacked<'_>)) {
        if !self.held.contains_key(&self.next) {
            return;
        }
        while let Some(payload) = self.held.remove(&self.next) {
            self.read(&payload, out);
        }
        // What is still held waits for another number, which is missing only now.
        self.since = now;
    }

    /// Gives up every number before `number` that is missing, and reads those that are not.
    fn skip_to(&mut self, number: u64, out: &mut dyn FnMut(Unpacked<'_>)) {
        while self.next < number {
            match self.held.first_key_value() {
                Some((&first, _)) if first < number => {
                    if first > self.next {
                        self.skip_missing(first, out);
                    }
                    let payload = self.held.remove(&first).unwrap_or_default();
                    self.read(&payload, out);
                }
                _ => self.skip_missing(number, out),
            }
        }
    }

    /// RFC 9347 2.2.3: what was to be continued in a lost payload never will be.
    fn skip_missing(&mut self, next: u64, out: &mut dyn FnMut(Unpacked<'_>)) {
        self.next = next;
        self.partial.abandon(Dropped::Incomplete, out);
    }

    /// Reads the payload of number `next`.
    fn read(&mut self, payload: &[u8], out: &mut dyn FnMut(Unpacked<'_>)) {
        self.next = self.next.saturating_add(1);
        let (header, data) = match Header::read(payload) {
            Ok(read) => read,
            Err(reason) => {
                self.partial.abandon(reason, out);
                return out(Err(reason));
            }
        };
        // RFC 9347 2.2.3, 2.2.4: nothing but padding, and no data at all, come between the parts of a packet.
        let is_padding = data.first().is_none_or(|byte| byte >> 4 == 0);
        if header.block_offset == 0 && is_padding {
            return out(Err(Dropped::Dummy));
        }
        let offset = usize::from(header.block_offset);
        let (rest, blocks) = data.split_at(offset.min(data.len()));
        self.partial.continue_packet(rest, offset, out);
        self.partial.blocks(blocks, out);
    }
}

impl Partial {
    /// Adds what belongs to a packet begun before: `rest` here, and `offset` bytes all in all.
    fn continue_packet(&mut self, rest: &[u8], offset: usize, out: &mut dyn FnMut(Unpacked<'_>)) {
        let ends_here = rest.len() == offset;
        if self.bytes.is_empty() {
            // Its beginning was lost; one that was lost altogether is counted at its end.
            if offset > 0 && ends_here && !self.is_abandoned {
                out(Err(Dropped::Incomplete));
            }
            self.is_abandoned &= !ends_here;
            return;
        }
        let whole = self.bytes.len() + offset;
        self.bytes.extend_from_slice(rest);
        match length(&self.bytes) {
            Length::Bytes(len) if len == whole && ends_here => {
                out(Ok(&self.bytes));
                self.bytes.clear();
            }
            Length::Bytes(len) if len == whole => {}
            Length::Unknown if !ends_here => {}
            // RFC 9347 6.1: the header and the packet disagree about its length.
            _ => self.abandon(Dropped::BadInner, out),
        }
    }

    /// Reads data blocks up to the payload's end (RFC 9347 6.1.3).
    fn blocks(&mut self, mut data: &[u8], out: &mut dyn FnMut(Unpacked<'_>)) {
        while let Some(first) = data.first() {
            let len = match (first >> 4, length(data)) {
                // The rest is padding.
                (0, _) => return,
                (_, Length::Bytes(len)) => len,
                (_, Length::Unknown) => usize::MAX,
                // The next block can only be found by the next payload's header.
                (_, Length::None) => return out(Err(Dropped::BadInner)),
            };
            if len > data.len() {
                self.is_abandoned = false;
                return self.bytes.extend_from_slice(data);
            }
            let (packet, rest) = data.split_at(len);
            out(Ok(packet));
            data = rest;
        }
    }

    fn abandon(&mut self, reason: Dropped, out: &mut dyn FnMut(Unpacked<'_>)) {
        if !self.bytes.is_empty() {
            self.bytes.clear();
            self.is_abandoned = true;
            out(Err(reason));
        }
    }
}

/// The length of a data block, by its first bytes.
enum Length {
    /// All of it.
    Bytes(usize),
    /// Too few bytes to know it (RFC 9347 leaves it to the sender where it cuts).
    Unknown,
    /// It is no IP packet.
    None,
}

fn length(block: &[u8]) -> Length {
    match *block {
        [first, ..] if !matches!(first >> 4, 4 | 6) => Length::None,
        [first, _, high, low, ..] if first >> 4 == 4 => {
            match usize::from(u16::from_be_bytes([high, low])) {
                20.. if first & 15 < 5 => Length::None,
                len @ 20.. => Length::Bytes(len),
                _ => Length::None,
            }
        }
        [first, _, _, _, high, low, ..] if first >> 4 == 6 => {
            Length::Bytes(40 + usize::from(u16::from_be_bytes([high, low])))
        }
        _ => Length::Unknown,
    }
}
