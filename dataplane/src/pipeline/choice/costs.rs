//! What a packet costs a lane, learnt from its intervals, and the speed-up that workers could give.

use super::interval::Interval;

/// What a packet costs, in nanoseconds of processor time: means over the last intervals.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Costs {
    /// What one thread must do in order: reading, prepare, commit, sending.
    pub serial_ns: f64,
    /// What any thread may do.
    pub transform_ns: f64,
    /// Calling a worker, once for several batches; 0 before it was ever done.
    pub call_ns: f64,
}

/// Intervals with fewer packets are ignored.
pub(super) const MIN_INTERVAL_PACKETS: f64 = 32.0;

impl Costs {
    /// Learns from an interval. Interruptions, which lengthen a transform by the clock, are subtracted in proportion.
    pub(in crate::pipeline) fn learn(&mut self, seen: &Interval) {
        self.learn_calls(seen);
        if seen.packets < MIN_INTERVAL_PACKETS || seen.busy <= 0.0 {
            return;
        }
        let at_work = (seen.ran / seen.busy).clamp(0.0, 1.0);
        let per_packet = |seconds: f64| seconds.max(0.0) * 1e9 / seen.packets;
        let serial = per_packet(seen.ran - seen.own_transform * at_work - seen.calling * at_work);
        smooth(&mut self.serial_ns, serial);
        smooth(&mut self.transform_ns, per_packet(seen.transform * at_work));
    }

    pub(super) fn learn_calls(&mut self, seen: &Interval) {
        if seen.calls >= 1.0 {
            smooth(&mut self.call_ns, seen.calling * 1e9 / seen.calls);
        }
    }

    /// Both parts together.
    pub fn all_ns(&self) -> f64 {
        self.serial_ns + self.transform_ns
    }

    /// The greatest possible speed-up by `workers` beside the reading thread on `spare` idle processors.
    pub(super) fn promise(&self, workers: usize, spare: f64) -> f64 {
        let processors = 1.0 + spare.clamp(0.0, workers as f64);
        processors.min(self.all_ns() / self.serial_ns.max(1.0))
    }

    /// How many workers the reading thread can keep busy.
    pub(super) fn useful_workers(&self) -> usize {
        (self.transform_ns / self.serial_ns.max(1.0))
            .ceil()
            .max(1.0) as usize
    }
}

/// A mean in which the past counts for three quarters; the first value is the mean.
pub(super) fn smooth(mean: &mut f64, value: f64) {
    *mean = match *mean {
        0.0 => value,
        old => old + (value - old) / 4.0,
    };
}
