//! The anti-replay window (RFC 4303 3.4.3, appendix A2) of 0 to 8192 packets, 32-bit and extended numbers.
//!
//! A ring of 64-bit words, one bit per sequence number (the layout of RFC 6479): moving the window clears whole words
//! ahead of the new edge, so its cost does not depend on the window's size except after a jump.
//!
//! ```text
//!            too old │◄────────── size ─────────►│ new
//!   ─────────────────┼───────────────────────────┼──────────► sequence numbers
//!                 top - size                    top
//! ```

use crate::Dropped;
use crate::sa::SequenceNumber;

/// The largest window, in packets.
pub const MAX_REPLAY_WINDOW_PACKETS: u32 = 8192;

const WORD: u64 = u64::BITS as u64;

/// The window of one inbound association.
pub struct ReplayWindow {
    size: u64,
    top: u64,
    words: Box<[u64]>,
}

impl ReplayWindow {
    /// A window of `size` packets, 0 for no check; at most [`MAX_REPLAY_WINDOW_PACKETS`].
    pub fn new(size: u32) -> Self {
        let size = size.min(MAX_REPLAY_WINDOW_PACKETS);
        Self {
            size: size.into(),
            top: 0,
            words: vec![0; Self::words_for(size)].into(),
        }
    }

    /// A window of `size` packets in which everything up to `last` counts as seen.
    pub fn behind(last: u64, size: u32) -> Self {
        let mut window = Self::new(0);
        window.top = last;
        window.resize(size);
        window
    }

    /// A window whose highest number is `last`, with what `is_seen` says about each that it covers.
    pub fn with_seen(last: u64, size: u32, is_seen: impl Fn(u64) -> bool) -> Self {
        let mut window = Self::new(size);
        window.top = last;
        let covered = last.min(window.size);
        for number in last - covered + 1..=last {
            if is_seen(number) {
                window.mark(number);
            }
        }
        window
    }

    /// One word more than the window needs, so that the word being filled never holds numbers still inside.
    fn words_for(size: u32) -> usize {
        if size == 0 {
            0
        } else {
            (size.div_ceil(u64::BITS) as usize + 1).next_power_of_two()
        }
    }

    /// What the window knows of the numbers up to the highest one, in words of 64: bit *b* of word *w* tells whether
    /// the number 64 *w* + *b* below it was seen.
    pub fn seen(&self) -> Vec<u64> {
        let covered = self.top.min(self.size);
        let mut words = vec![0; covered.div_ceil(WORD) as usize];
        for back in (0..covered).filter(|back| self.is_marked(self.top - back)) {
            words[(back / WORD) as usize] |= 1 << (back % WORD);
        }
        words
    }

    /// The highest number admitted so far.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Changes the size and keeps what is known; numbers that a larger window newly covers count as seen.
    pub fn resize(&mut self, size: u32) {
        let size = size.min(MAX_REPLAY_WINDOW_PACKETS);
        if u64::from(size) == self.size {
            return;
        }
        let mut resized = Self::new(size);
        resized.top = self.top;
        let covered = self.top.min(resized.size);
        for number in self.top - covered + 1..=self.top {
            if self.top - number >= self.size || self.is_marked(number) {
                resized.mark(number);
            }
        }
        *self = resized;
    }

    /// Completes the 32 bits in the packet to the most probable extended sequence number (RFC 4303 A2.1).
    /// `None` if it would lie before the association's first packet.
    pub fn extend(&self, low: u32) -> Option<SequenceNumber> {
        // Without a window the nearest number is meant; a window only makes the rule sharper.
        let reach = if self.size == 0 { 1 << 31 } else { self.size };
        let bottom = self.top.wrapping_sub(reach - 1);
        let ahead = low.wrapping_sub(bottom as u32);
        let number = bottom.wrapping_add(u64::from(ahead));
        // The window of a young association reaches below zero: what lands there was meant to be far ahead or is old.
        let below_zero = self.top < reach - 1 && number >= bottom;
        (!below_zero).then_some(SequenceNumber(number))
    }

    /// Whether `number` is new; the window does not move.
    pub fn check(&self, number: SequenceNumber) -> Result<(), Dropped> {
        let SequenceNumber(number) = number;
        if self.size == 0 || number > self.top {
            return Ok(());
        }
        if self.top - number >= self.size {
            return Err(Dropped::TooOld);
        }
        if self.is_marked(number) {
            Err(Dropped::Replayed)
        } else {
            Ok(())
        }
    }

    /// Takes `number` in, after its packet was authenticated: checks again and moves the window.
    pub fn admit(&mut self, number: SequenceNumber) -> Result<(), Dropped> {
        self.check(number)?;
        let SequenceNumber(number) = number;
        if self.size == 0 {
            self.top = self.top.max(number);
            return Ok(());
        }
        if number > self.top {
            self.clear_ahead(number);
            self.top = number;
        }
        self.mark(number);
        Ok(())
    }

    fn clear_ahead(&mut self, number: u64) {
        let (from, to) = (self.top / WORD, number / WORD);
        let steps = (to - from).min(self.words.len() as u64);
        for step in 1..=steps {
            let slot = self.slot(from.wrapping_add(step));
            self.words[slot] = 0;
        }
    }

    fn slot(&self, word: u64) -> usize {
        (word as usize) & (self.words.len() - 1)
    }

    fn is_marked(&self, number: u64) -> bool {
        self.words[self.slot(number / WORD)] >> (number % WORD) & 1 == 1
    }

    fn mark(&mut self, number: u64) {
        let slot = self.slot(number / WORD);
        self.words[slot] |= 1 << (number % WORD);
    }
}

#[cfg(test)]
mod tests;
