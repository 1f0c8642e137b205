//! Durations and numbers of bytes as people write them.

use std::fmt;
use std::time::Duration;

const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

const BYTE_UNITS: [(&str, u64); 4] = [
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// A text that is no duration, or no number of bytes: what to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NotUnderstood {
    advice: &'static str,
}

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.advice)
    }
}

/// `30s`, `1h30m`, `500ms`.
pub(super) fn duration(text: &str) -> Result<Duration, NotUnderstood> {
    let wrong = || NotUnderstood {
        advice: "write a number and its unit, such as \"30s\", \"10m\", \"4h\" or \"1h30m\"",
    };
    let (mut rest, mut milliseconds) = (text.trim(), 0u64);
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(digits);
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, next) = behind.split_at(letters);
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let part = unit.and_then(|(_, factor)| number.parse::<u64>().ok()?.checked_mul(*factor));
        milliseconds = part
            .and_then(|part| milliseconds.checked_add(part))
            .ok_or_else(wrong)?;
        rest = next.trim_start();
    }
    Ok(Duration::from_millis(milliseconds))
}

/// A duration in its largest whole units.
pub(super) fn shown(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let mut parts = Vec::new();
    for (unit, factor) in UNITS.iter().rev() {
        let count = rest / u128::from(*factor);
        rest %= u128::from(*factor);
        if count > 0 {
            parts.push(format!("{count} {unit}"));
        }
    }
    if parts.is_empty() {
        "0 s".to_owned()
    } else {
        parts.join(" ")
    }
}

/// `500MB`, `20GB`.
pub(super) fn bytes(text: &str) -> Result<u64, NotUnderstood> {
    let wrong = || NotUnderstood {
        advice: "write a number and its unit, such as \"500MB\" or \"20GB\"",
    };
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = BYTE_UNITS.iter().find(|(name, _)| *name == unit.trim());
    let bytes = unit.and_then(|(_, factor)| number.parse::<u64>().ok()?.checked_mul(*factor));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// A number of bytes in the largest unit in which it is whole.
pub(super) fn bytes_shown(bytes: u64) -> String {
    let whole = BYTE_UNITS
        .iter()
        .rev()
        .find(|(_, factor)| bytes.is_multiple_of(*factor));
    match whole {
        Some((unit, factor)) if bytes > 0 => format!("{} {unit}", bytes / factor),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, seconds, again) in [
            ("30s", 30.0, "30 s"),
            ("1h30m", 5400.0, "1 h 30 m"),
            ("90m", 5400.0, "1 h 30 m"),
            ("1d", 86400.0, "1 d"),
            ("500ms", 0.5, "500 ms"),
            ("0s", 0.0, "0 s"),
        ] {
            let read = duration(text).unwrap();
            assert_eq!(
                (read.as_secs_f64(), shown(read)),
                (seconds, again.to_owned())
            );
        }
        for text in [
            "",
            "30",
            "s",
            "1.5h",
            "-1s",
            "1y",
            "99999999999999999999s",
            "9999999999999999d",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("20GB"), Ok(20_000_000_000));
        assert_eq!(bytes_shown(20_000_000_000), "20 GB");
        assert_eq!(bytes_shown(1_500_000), "1500 KB");
        for text in ["", "5", "GB", "0GB", "5GiB", "99999999999TB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
