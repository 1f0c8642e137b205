//! The rates of the last full second.

use std::time::{Duration, Instant};

/// Remembers two readings of a counter of packets and one of bytes.
pub(super) struct Rate {
    last: (u64, u64),
    at: Instant,
    per_second: (u64, u64),
}

impl Rate {
    /// Starts at zero.
    pub(super) fn new(at: Instant) -> Self {
        Self {
            last: (0, 0),
            at,
            per_second: (0, 0),
        }
    }

    /// Takes a reading; one less than half a second after the previous one is skipped.
    pub(super) fn read(&mut self, packets: u64, bytes: u64, at: Instant) {
        let time = at.saturating_duration_since(self.at);
        if time < Duration::from_millis(500) {
            return;
        }
        let rate = |now: u64, before: u64| {
            (now.saturating_sub(before) as f64 / time.as_secs_f64()).round() as u64
        };
        self.per_second = (rate(packets, self.last.0), rate(bytes, self.last.1));
        self.last = (packets, bytes);
        self.at = at;
    }

    /// Packets and bits in a second.
    pub(super) fn packets_and_bits(&self) -> (u64, u64) {
        (self.per_second.0, self.per_second.1 * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_difference_over_the_time_and_hasty_readings_do_not_count() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        rate.read(100, 1000, start + Duration::from_millis(100));
        assert_eq!(rate.packets_and_bits(), (0, 0));
        rate.read(100, 1000, start + Duration::from_secs(2));
        assert_eq!(rate.packets_and_bits(), (50, 4000));
        rate.read(100, 1000, start + Duration::from_secs(3));
        assert_eq!(rate.packets_and_bits(), (0, 0));
    }
}
