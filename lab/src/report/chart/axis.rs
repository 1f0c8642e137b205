//! From numbers to places: round ticks on a straight or a logarithmic scale.

/// A scale between two places.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Axis {
    /// From zero to a round number not below `most`.
    pub(super) fn from_zero(most: f64, from: f64, to: f64) -> Axis {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most);
        Axis {
            low: 0.0,
            high: (most / step).ceil() * step,
            logarithmic: false,
            from,
            to,
        }
    }

    /// Over the given values: logarithmic where they span more than a factor of 12, as sizes and link rates do.
    pub(super) fn over(values: &[f64], from: f64, to: f64) -> Axis {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Axis {
            low,
            high: if high > low { high } else { low + 1.0 },
            logarithmic: low > 0.0 && high / low > 12.0,
            from,
            to,
        }
    }

    /// Over positive values on a logarithmic scale, from one of 1, 2, 5 times a power of ten to another.
    pub(super) fn decades(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Axis {
        let positive = values.filter(|value| *value > 0.0);
        let low = positive.clone().reduce(f64::min).unwrap_or(1.0);
        let high = positive.reduce(f64::max).unwrap_or(1.0);
        let low = round_steps(low / 10.0, low).last().copied().unwrap_or(low);
        let high = high.max(2.0 * low);
        let ends = round_steps(high, high * 10.0);
        Axis {
            low,
            high: ends.first().copied().unwrap_or(high),
            logarithmic: true,
            from,
            to,
        }
    }

    /// The place of a value; on a logarithmic scale what is below its beginning stands there.
    pub fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// Round values to mark, zero and the end included.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            return round_steps(self.low, self.high);
        }
        let step = step(self.high - self.low);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|count| count as f64 * step).collect()
    }
}

/// 1, 2 and 5 times the powers of ten from `low` to `high`, both included.
fn round_steps(low: f64, high: f64) -> Vec<f64> {
    let powers = low.log10().floor() as i32..=high.log10().floor() as i32;
    let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    let within = (low * (1.0 - 1e-9))..=(high * (1.0 + 1e-9));
    all.filter(|step| within.contains(step)).collect()
}

/// The distance of ticks: 1, 2 or 5 times a power of ten, for four to eight of them.
fn step(span: f64) -> f64 {
    let power = 10f64.powf((span / 4.0).log10().floor());
    let wanted = span / 4.0 / power;
    let round = [5.0, 2.0].into_iter().find(|round| wanted >= *round);
    round.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for most in [0.013, 0.9, 1.0, 7.4, 29.4, 100.0, 985.0] {
            let axis = Axis::from_zero(most, 0.0, 100.0);
            let ticks = axis.ticks();
            assert!((4..=9).contains(&ticks.len()), "{most}: {ticks:?}");
            assert!(axis.place(most) <= 100.0 && axis.place(0.0) == 0.0);
            assert!(
                (axis.place(ticks[ticks.len() - 1]) - 100.0).abs() < 1e-6,
                "{most}: {ticks:?}"
            );
        }
    }

    #[test]
    fn decades_begin_and_end_at_round_numbers_and_hold_everything() {
        let axis = Axis::decades([41.0, 120.0, 8400.0].into_iter(), 0.0, 100.0);
        let ticks = [
            20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
        ];
        assert_eq!(axis.ticks(), ticks);
        assert_eq!((axis.place(20.0), axis.place(10_000.0)), (0.0, 100.0));
        assert_eq!(axis.place(-3.0), 0.0, "an interval may reach below nothing");
        let one = Axis::decades([50.0].into_iter(), 0.0, 100.0);
        assert!(one.place(50.0).is_finite() && one.ticks().len() > 1);
        assert!(
            Axis::decades([].into_iter(), 0.0, 100.0)
                .place(1.0)
                .is_finite()
        );
    }

    #[test]
    fn wide_ranges_are_logarithmic_and_narrow_ones_are_not() {
        let wide = Axis::over(&[64.0, 1024.0, 16_384.0], 0.0, 100.0);
        assert!((wide.place(1024.0) - 50.0).abs() < 1e-9);
        let narrow = Axis::over(&[1.0, 2.0, 3.0], 0.0, 100.0);
        assert!((narrow.place(2.0) - 50.0).abs() < 1e-9);
        assert_eq!(Axis::over(&[5.0], 0.0, 100.0).place(5.0), 0.0);
    }
}
