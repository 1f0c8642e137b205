//! How many sequence numbers stay with the user plane while an association moves to the kernel plane: by its pace.

use ipsec::sa::{Sa, SaId};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How many sequence numbers the user plane keeps: at least `MIN_NUMBERS`, and enough for `SHARED_TIME` at the stream's
/// current rate.
const MIN_NUMBERS: u64 = 64;
const SHARED_TIME: Duration = Duration::from_millis(40);

/// The shortest time over which a pace is measured.
const MIN_PACE_TIME: Duration = Duration::from_millis(20);

/// The pace of associations since the move began.
pub(super) struct Paces {
    packets: HashMap<SaId, u64>,
    begun: Instant,
}

impl Paces {
    /// From now on.
    pub(super) fn of<'a>(sas: impl Iterator<Item = &'a Sa>) -> Self {
        Self {
            packets: sas
                .map(|sa| (sa.config.id, sa.state.usage().packets))
                .collect(),
            begun: Instant::now(),
        }
    }

    /// Waits until the rates have been measured for `MIN_PACE_TIME`.
    pub(super) fn wait(&self) {
        std::thread::sleep(MIN_PACE_TIME.saturating_sub(self.begun.elapsed()));
    }

    /// Of an association by which packets arrive.
    pub(super) fn numbers_to_open(&self, sa: &Sa) -> u64 {
        let before = self.packets.get(&sa.config.id).copied().unwrap_or_default();
        let packets = sa.state.usage().packets.saturating_sub(before);
        let elapsed = self.begun.elapsed().max(MIN_PACE_TIME).as_micros() as u64;
        MIN_NUMBERS + packets.saturating_mul(SHARED_TIME.as_micros() as u64) / elapsed
    }

    /// Of an association by which packets leave: a packet without a number is lost, so half of a replay window stays.
    /// With more the peer might not accept the lower numbers after the higher ones; its window is taken to be as large
    /// as this side's.
    pub(super) fn numbers_to_send(&self, sa: &Sa) -> u64 {
        let half = u64::from(sa.config.replay_window) / 2;
        self.numbers_to_open(sa).max(half)
    }
}
