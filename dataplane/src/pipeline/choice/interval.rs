//! What was measured of a lane in one interval.

/// What was measured of a lane in one interval, in seconds and numbers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Interval {
    /// How long it was.
    pub seconds: f64,
    /// Packets that were transformed.
    pub packets: f64,
    /// For how long the reading thread ran.
    pub ran: f64,
    /// For how long it ran or waited for a processor: all the time in which it did not wait for packets.
    pub busy: f64,
    /// For how long all threads together transformed, interruptions included.
    pub transform: f64,
    /// The reading thread's part of that.
    pub own_transform: f64,
    /// How long calling workers took the reading thread.
    pub calling: f64,
    /// How many calls those were.
    pub calls: f64,
    /// Idle processors among those that this process may use; absent where that is unknown.
    pub spare: Option<f64>,
}

impl Interval {
    pub(super) fn share_busy(&self) -> f64 {
        (self.busy / self.seconds).clamp(0.0, 1.0)
    }

    pub(super) fn rate(&self) -> f64 {
        self.packets / self.seconds
    }
}
