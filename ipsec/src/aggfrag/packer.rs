//! Outbound: packets into payloads, back to back, in order.

use super::header::{HEADER_LEN, Header};
use crate::Dropped;

/// The fewest bytes of a packet in its first fragment: enough to hold its length, so that a receiver knows from the
/// first fragment on how much is to come.
const MIN_FIRST_FRAGMENT_BYTES: usize = 6;
/// The smallest capacity of a payload: an IPv6 header, so that no packet is spread over very many payloads.
const MIN_CAPACITY_BYTES: usize = 40;

/// Puts the packets of one association into payloads, one open payload at a time.
pub struct Packer {
    capacity: usize,
    fragments: bool,
    padded: bool,
    /// The open payload with its header; empty if none is open.
    open: Vec<u8>,
}

impl Packer {
    /// A packer of payloads with `capacity` bytes of data blocks. Where `padded`, all payloads are equally long.
    pub fn new(capacity: usize, fragments: bool, padded: bool) -> Self {
        Self {
            capacity,
            fragments,
            padded,
            open: Vec::new(),
        }
    }

    /// Adds one packet, which is `head` and `rest` end to end; every payload that is full goes to `done`, in order.
    ///
    /// RFC 9347 2.2.3: the payloads must leave with consecutive sequence numbers in the order of `done`.
    pub fn push(
        &mut self,
        head: &[u8],
        rest: &[u8],
        done: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Dropped> {
        let len = head.len() + rest.len();
        if self.capacity < MIN_CAPACITY_BYTES || len > self.limit() {
            return Err(Dropped::TooBig);
        }
        let free = self.free();
        if len > free && (!self.fragments || free < MIN_FIRST_FRAGMENT_BYTES) {
            self.flush(done);
        }
        let mut left = len;
        for part in [head, rest] {
            self.append(part, &mut left, len, done);
        }
        Ok(())
    }

    /// The largest packet that is carried.
    fn limit(&self) -> usize {
        if self.fragments {
            usize::from(u16::MAX)
        } else {
            self.capacity
        }
    }

    /// Copies a part of a packet of which `left` bytes are still to come.
    fn append(
        &mut self,
        mut part: &[u8],
        left: &mut usize,
        len: usize,
        done: &mut dyn FnMut(&[u8]),
    ) {
        while !part.is_empty() {
            if self.open.is_empty() {
                // RFC 9347 6.1.1: what is left of a packet begun before, even if it goes beyond this payload.
                let block_offset = if *left < len { *left } else { 0 };
                self.open
                    .extend_from_slice(&Header::emit(block_offset as u16));
            }
            let (now, later) = part.split_at(part.len().min(self.free()));
            self.open.extend_from_slice(now);
            *left -= now.len();
            part = later;
            if self.free() == 0 {
                self.flush(done);
            }
        }
    }

    /// Ends the open payload, if there is one. A packet never ends here: [`Packer::push`] leaves none unfinished.
    pub fn flush(&mut self, done: &mut dyn FnMut(&[u8])) {
        if self.open.is_empty() {
            return;
        }
        if self.padded {
            // RFC 9347 6.1.3.3: a block of type 0 is padding, to the end.
            self.open.resize(HEADER_LEN + self.capacity, 0);
        }
        done(&self.open);
        self.open.clear();
    }

    /// A payload with nothing but padding (RFC 9347 2.2.3), as long as the others.
    pub fn padding(&self) -> Vec<u8> {
        vec![0; HEADER_LEN + self.capacity]
    }

    /// Starts over with another capacity; a payload that was not flushed before is discarded.
    pub fn reconfigure(&mut self, capacity: usize, fragments: bool) {
        self.open.clear();
        self.capacity = capacity;
        self.fragments = fragments;
    }

    /// Bytes of data blocks in each payload.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn free(&self) -> usize {
        self.capacity - self.open.len().saturating_sub(HEADER_LEN)
    }
}
