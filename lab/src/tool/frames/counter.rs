//! What became of the datagrams, kept one by one as they arrive.

use serde::{Deserialize, Serialize};

use super::stamp::{END_NUMBER, read};
use crate::load::Histogram;

/// What became of the datagrams.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Received {
    /// Different datagrams that arrived.
    pub received: u64,
    /// Bytes of user data in them.
    pub bytes: u64,
    /// Copies beyond the first.
    pub duplicates: u64,
    /// Datagrams that a later one had overtaken (RFC 4737 3).
    pub reordered: u64,
    /// How far back the latest of them was, in datagrams (RFC 4737 4.2.1, counted in numbers).
    pub reorder_distance: u64,
    /// Seconds from the first to the last.
    pub seconds: f64,
    /// The longest time in which nothing arrived, in nanoseconds.
    #[serde(default)]
    pub longest_gap: u64,
    /// Nanoseconds on the way; empty where sender and receiver have no clock in common.
    pub latency: Histogram,
    /// Datagrams that were answered.
    #[serde(default)]
    pub answered: u64,
}

/// What a datagram was to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The first of its number.
    First(u64),
    /// One that ends the run.
    End,
    /// A copy, or of another run.
    Other,
}

/// Keeps count.
pub(super) struct DatagramCounter {
    found: Received,
    /// Whether the sender's stamps are by the receiver's clock.
    one_clock: bool,
    seen: Vec<u64>,
    highest: Option<u64>,
    first: u64,
    last: u64,
}

impl DatagramCounter {
    pub(super) fn new(one_clock: bool) -> DatagramCounter {
        DatagramCounter {
            found: Received::default(),
            one_clock,
            seen: Vec::new(),
            highest: None,
            first: 0,
            last: 0,
        }
    }

    /// Counts a datagram, and says what it was.
    pub(super) fn record(&mut self, datagram: &[u8], run: u32, at: u64) -> Arrival {
        let Some((number, made)) = read(datagram, run) else {
            return Arrival::Other;
        };
        if number == END_NUMBER {
            return Arrival::End;
        }
        if self.seen_before(number) {
            self.found.duplicates += 1;
            return Arrival::Other;
        }
        self.found.received += 1;
        self.found.bytes += datagram.len() as u64;
        if self.one_clock {
            self.found.latency.add(at.saturating_sub(made).max(1));
        }
        match self.highest {
            Some(highest) if number < highest => {
                self.found.reordered += 1;
                self.found.reorder_distance = self.found.reorder_distance.max(highest - number);
            }
            _ => self.highest = Some(number),
        }
        match self.first {
            // Without a common clock the run begins with the first arrival, not when that was sent.
            0 => self.first = if self.one_clock { made } else { at },
            _ => {
                let gap = at.saturating_sub(self.last);
                self.found.longest_gap = self.found.longest_gap.max(gap);
            }
        }
        self.last = at;
        Arrival::First(number)
    }

    /// One bit for each number; a number beyond any sender's reach is a forgery and not remembered.
    fn seen_before(&mut self, number: u64) -> bool {
        const MAX_NUMBER: u64 = 1 << 33;
        if number >= MAX_NUMBER {
            return true;
        }
        let (word, bit) = ((number / 64) as usize, number % 64);
        if word >= self.seen.len() {
            self.seen.resize((word + 1).next_power_of_two(), 0);
        }
        let before = self.seen[word] >> bit & 1 == 1;
        self.seen[word] |= 1 << bit;
        before
    }

    /// All of it, when nothing more comes.
    pub(super) fn end(mut self, answered: u64) -> Received {
        self.found.answered = answered;
        self.found.seconds = self.last.saturating_sub(self.first) as f64 / 1e9;
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::super::stamp::stamp;
    use super::*;

    fn heard(numbers: &[u64], one_clock: bool) -> Received {
        let mut counter = DatagramCounter::new(one_clock);
        for (place, number) in numbers.iter().enumerate() {
            let mut datagram = [0; 32];
            stamp(&mut datagram, 7, *number, 1000 + place as u64);
            let arrival = counter.record(&datagram, 7, 3000 + place as u64);
            assert_ne!(arrival, Arrival::End);
        }
        counter.end(0)
    }

    #[test]
    fn duplicates_and_overtaken_datagrams_are_counted_apart() {
        let found = heard(&[0, 1, 4, 2, 2, 3, 5, 0], true);
        assert_eq!((found.received, found.duplicates), (6, 2));
        assert_eq!((found.reordered, found.reorder_distance), (2, 2));
        assert_eq!((found.bytes, found.latency.count()), (192, 6));
    }

    #[test]
    fn an_orderly_run_has_no_reordering_and_its_time_is_counted() {
        let found = heard(&[0, 1, 2, 3], true);
        assert_eq!((found.reordered, found.duplicates), (0, 0));
        assert_eq!(found.seconds, 2003e-9);
        assert_eq!(found.latency.largest(), 2000);
        assert_eq!(found.longest_gap, 1);
    }

    #[test]
    fn without_a_common_clock_only_the_receivers_own_times_count() {
        let found = heard(&[0, 1, 4, 2, 2], false);
        assert_eq!(found.latency.count(), 0);
        assert_eq!((found.seconds, found.longest_gap), (3e-9, 1));
        assert_eq!(
            (found.received, found.duplicates, found.reordered),
            (4, 1, 1)
        );
    }

    #[test]
    fn datagrams_of_another_run_short_ones_and_wild_numbers_are_not_counted() {
        let mut counter = DatagramCounter::new(true);
        let mut datagram = [0; 32];
        stamp(&mut datagram, 8, 1, 1);
        assert_eq!(counter.record(&datagram, 7, 2), Arrival::Other);
        assert_eq!(counter.record(&datagram[..19], 8, 2), Arrival::Other);
        stamp(&mut datagram, 7, u64::MAX - 1, 1);
        assert_eq!(counter.record(&datagram, 7, 2), Arrival::Other);
        stamp(&mut datagram, 7, END_NUMBER, 1);
        assert_eq!(counter.record(&datagram, 7, 2), Arrival::End);
        assert_eq!(counter.end(0).received, 0);
    }
}
