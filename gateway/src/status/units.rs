//! Numbers and times in the largest unit that fits.

pub(super) fn scaled(value: u64, unit: &str) -> String {
    let mut value = value as f64;
    for prefix in ["", "k", "M", "G", "T"] {
        if value < 1000.0 {
            let digits = usize::from(!prefix.is_empty());
            return format!("{value:.digits$} {prefix}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} P{unit}")
}

pub(super) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_printed_in_the_largest_unit_that_fits() {
        assert_eq!(scaled(999, "B"), "999 B");
        assert_eq!(scaled(1_500_000, "B"), "1.5 MB");
        assert_eq!(duration(59), "59 s");
        assert_eq!(duration(3700), "1 h 1 min");
        assert_eq!(duration(200_000), "2 d 7 h");
    }
}
