//! Numbers with their units. A figure's name ends with its unit (`goodput_bps`, `rtt.p99_us`), which decides how it is
//! written, on which scale, and whether more of it is better.

use crate::stats::{Estimate, Interval};

/// How the figures of one name are shown together: one unit and one prefix for all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    factor: f64,
    /// The unit with its prefix, as `Gbit/s`; empty for a bare number.
    pub unit: String,
}

impl Scale {
    /// The scale on which `largest` is written with one to three digits before the point.
    pub fn of(figure: &str, largest: f64) -> Scale {
        let (kind, unit) = kind(figure);
        let (factor, prefix) = match kind {
            Kind::Metric => metric(largest.abs()),
            Kind::Microseconds if largest.abs() >= 1e4 => (1e3, "m"),
            Kind::Microseconds => (1.0, "µ"),
            Kind::Share => (0.01, ""),
            Kind::Bare => (1.0, ""),
        };
        Scale {
            factor,
            unit: format!("{prefix}{unit}"),
        }
    }

    /// The number in this unit.
    pub fn value(&self, raw: f64) -> f64 {
        raw / self.factor
    }

    /// The number in this unit, with three significant digits.
    pub fn number(&self, raw: f64) -> String {
        significant(self.value(raw))
    }

    /// A number with half the width of its interval, which is given two digits; the number gets as many decimals.
    pub fn plus_minus(&self, raw: f64, half: f64) -> String {
        let (value, half) = (self.value(raw), self.value(half));
        if !(half > 0.0 && half.is_finite()) {
            return format!("{} ± 0 {}", significant(value), self.unit);
        }
        let decimals = (1.0 - half.log10().floor()).clamp(0.0, 6.0) as usize;
        format!("{value:.decimals$} ± {half:.decimals$} {}", self.unit)
    }

    /// A mean with half the width of its interval, where there is one.
    pub fn mean(&self, mean: f64, interval: Option<Interval>) -> String {
        match interval {
            Some(interval) => self.plus_minus(mean, interval.half_width()),
            None => self.text(mean),
        }
    }

    /// The number with its unit.
    pub fn text(&self, raw: f64) -> String {
        if self.unit.is_empty() {
            return self.number(raw);
        }
        format!("{} {}", self.number(raw), self.unit)
    }
}

enum Kind {
    Metric,
    Microseconds,
    Share,
    Bare,
}

fn kind(figure: &str) -> (Kind, &'static str) {
    match unit(figure) {
        "bps" => (Kind::Metric, "bit/s"),
        "pps" => (Kind::Metric, "pps"),
        "bytes" => (Kind::Metric, "B"),
        "us" => (Kind::Microseconds, "s"),
        _ if figure.ends_with("_per_s") => (Kind::Bare, "/s"),
        "s" => (Kind::Bare, "s"),
        "ratio" => (Kind::Share, "%"),
        "percent" => (Kind::Bare, "%"),
        _ => (Kind::Bare, ""),
    }
}

/// What stands behind the last underscore.
fn unit(figure: &str) -> &str {
    figure.rsplit('_').next().unwrap_or_default()
}

fn metric(largest: f64) -> (f64, &'static str) {
    match largest {
        largest if largest >= 1e9 => (1e9, "G"),
        largest if largest >= 1e6 => (1e6, "M"),
        largest if largest >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    }
}

/// Three significant digits; whole numbers from 100 up, grouped by narrow blanks from 10 000 up.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "–".into(),
        0.0 => "0".into(),
        size if size < 0.001 => format!("{value:.1e}"),
        size if size < 0.01 => format!("{value:.5}"),
        size if size < 0.0999 => format!("{value:.4}"),
        size if size < 0.9995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "−" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        let left = digits.len() - place;
        if place > 0 && left.is_multiple_of(3) && digits.len() > 4 {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A ratio with its interval.
pub fn with_interval(ratio: &Estimate) -> String {
    match ratio.interval {
        Some(interval) => format!(
            "{} [{}, {}]",
            significant(ratio.value),
            significant(interval.low),
            significant(interval.high)
        ),
        None => significant(ratio.value),
    }
}

/// The figure's name for readers.
pub fn title(figure: &str) -> String {
    const KNOWN: [(&str, &str); 19] = [
        ("goodput_bps", "Goodput"),
        ("rate_pps", "Packet rate"),
        ("ndr_pps", "Highest rate without loss"),
        ("pdr_pps", "Highest rate with little loss"),
        ("loss_ratio", "Loss"),
        ("ideal_bps", "Ideal goodput"),
        ("ideal_ratio", "Share of the ideal goodput"),
        ("rtt.p50_us", "Round trip, median"),
        ("rtt.p99_us", "Round trip, 99 % are shorter"),
        ("latency.p50_us", "One-way delay, median"),
        ("latency.p99_us", "One-way delay, 99 % are shorter"),
        ("connection.p50_us", "Connection, median"),
        ("connection.p99_us", "Connection, 99 % are shorter"),
        ("transactions_per_s", "Transactions per second"),
        ("connections_per_s", "Connections per second"),
        ("lost_per_rekey", "Frames lost per renewal of the keys"),
        ("outage_s", "Longest silence"),
        ("silence_us", "Longest silence"),
        ("soaker.load_ratio", "Load of all processors, by a soaker"),
    ];
    if let Some((_, title)) = KNOWN.iter().find(|(name, _)| *name == figure) {
        return (*title).into();
    }
    let plain = match kind(figure).0 {
        Kind::Bare if unit(figure) != "percent" => figure,
        _ => figure.rsplit_once('_').map_or(figure, |(name, _)| name),
    };
    let words = plain.replace(['.', '_'], " ");
    let mut letters = words.chars();
    let first: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    first + letters.as_str()
}

/// Whether less of it is the better result.
pub fn less_is_better(figure: &str) -> bool {
    const COSTS: [&str; 9] = [
        "loss",
        "rtt",
        "latency",
        "lost",
        "dropped",
        "reordered",
        "outage",
        "silence",
        "soaker",
    ];
    matches!(unit(figure), "us" | "bytes") || COSTS.iter().any(|word| figure.starts_with(word))
}

/// A number of things, as `1 round` or `3 rounds`.
pub fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// A share as a signed change in percent: 1.25 is `+25 %`.
pub fn change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    let digits = usize::from(percent.abs() < 9.95);
    let sign = if percent < 0.0 { "−" } else { "+" };
    format!("{sign}{:.digits$} %", percent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_in_units_that_fit() {
        let text = |figure, value| Scale::of(figure, value).text(value);
        assert_eq!(text("goodput_bps", 9.876e9), "9.88 Gbit/s");
        assert_eq!(text("goodput_bps", 47.04e6), "47.0 Mbit/s");
        assert_eq!(text("rtt.p99_us", 950.0), "950 µs");
        assert_eq!(text("rtt.p99_us", 12_500.0), "12.5 ms");
        assert_eq!(text("loss_ratio", 0.0125), "1.25 %");
        assert_eq!(text("connections_per_s", 2482.4), "2482 /s");
        assert_eq!(text("outage_s", 1.5), "1.50 s");
        assert_eq!(text("lost", 36_658.0), "36\u{202f}658");
    }

    #[test]
    fn three_digits_are_kept_and_no_more() {
        let shown: Vec<String> = [
            0.0, 0.00012, 0.01234, 0.999, 1.0, 9.999, 99.96, 1234.4, -12.34,
        ]
        .map(significant)
        .into();
        let wanted = [
            "0", "1.2e-4", "0.0123", "0.999", "1.00", "10.0", "100", "1234", "-12.3",
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn an_interval_has_two_digits_and_decides_those_of_its_number() {
        let shown = |value, half| Scale::of("goodput_bps", value).plus_minus(value, half);
        assert_eq!(shown(9.3876e9, 0.2371e9), "9.39 ± 0.24 Gbit/s");
        assert_eq!(shown(95.2e6, 12.3e6), "95 ± 12 Mbit/s");
        assert_eq!(shown(1e9, 0.0), "1.00 ± 0 Gbit/s");
    }

    #[test]
    fn names_are_for_readers() {
        assert_eq!(title("goodput_bps"), "Goodput");
        assert_eq!(title("rtt.p90_us"), "Rtt p90");
        assert!(less_is_better("rtt.p90_us") && less_is_better("loss_ratio"));
        assert!(!less_is_better("goodput_bps") && !less_is_better("ideal_ratio"));
    }

    #[test]
    fn changes_carry_their_sign() {
        assert_eq!(
            (change(1.25), change(0.981)),
            ("+25 %".into(), "−1.9 %".into())
        );
    }
}
