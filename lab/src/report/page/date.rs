//! Seconds since 1970 as a date. In UTC, because reports are read in other time zones.

/// As `2026-11-22 00:41 UTC`.
pub(super) fn text(unix: f64) -> String {
    let seconds = unix.max(0.0) as i64;
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let minutes = seconds.rem_euclid(86_400) / 60;
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02} UTC",
        minutes / 60,
        minutes % 60
    )
}

/// The Gregorian date of a day counted from 1970-01-01. Years begin in March here, so that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // Printed by `date -u -d @N`.
        let known = [
            (0.0, "1970-01-01 00:00 UTC"),
            (951_782_400.0, "2000-02-29 00:00 UTC"),
            (1_709_251_199.0, "2024-02-29 23:59 UTC"),
            (1_795_308_071.9, "2026-11-22 00:41 UTC"),
            (4_107_542_400.0, "2100-03-01 00:00 UTC"),
        ];
        for (unix, expected) in known {
            assert_eq!(text(unix), expected);
        }
    }
}
