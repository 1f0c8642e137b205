//! Moments in the words of C's `ctime`, without its day of the week.

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

const DAY: i64 = 86_400;

/// `Nov 21 12:00:00 2026`: the moment `seconds` after the Unix epoch where clocks are `offset` seconds ahead.
pub fn local(seconds: u64, offset: i64) -> String {
    // Times beyond the year 9999 have no such words; they cannot come from a clock.
    let seconds = i64::try_from(seconds)
        .unwrap_or(i64::MAX)
        .min(253_402_300_799);
    let local = seconds.saturating_add(offset.clamp(-DAY, DAY));
    let (year, month, day) = date(local.div_euclid(DAY));
    let second = local.rem_euclid(DAY);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{} {day:2} {hour:02}:{minute:02}:{:02} {year}",
        MONTHS[month],
        second % 60
    )
}

/// Year, month from 0 and day from 1 of the day `days` after 1 January 1970.
///
/// Years are taken to start in March, so that the leap day is the last of its year; then the number of days before a
/// month is a straight line, and 400 years are a whole number of days.
fn date(days: i64) -> (i64, usize, i64) {
    let since_march_of_0 = days + 719_468;
    let era = since_march_of_0.div_euclid(146_097);
    let of_era = since_march_of_0.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + i64::from(month < 2);
    (year, month as usize, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right-hand sides are what `date -u -d @N '+%b %e %H:%M:%S %Y'` of GNU coreutils prints.
    #[test]
    fn moments_are_printed_as_date_prints_them() {
        for (seconds, words) in [
            (1, "Jan  1 00:00:01 1970"),
            (951_782_400, "Feb 29 00:00:00 2000"),
            (951_868_800, "Mar  1 00:00:00 2000"),
            (1_795_262_400, "Nov 21 12:00:00 2026"),
            (4_107_542_399, "Feb 28 23:59:59 2100"),
            (4_107_542_400, "Mar  1 00:00:00 2100"),
            (253_402_300_799, "Dec 31 23:59:59 9999"),
        ] {
            assert_eq!(local(seconds, 0), words);
        }
    }

    #[test]
    fn clocks_ahead_and_behind_move_the_date() {
        assert_eq!(local(1_767_225_599, 1), "Jan  1 00:00:00 2026");
        assert_eq!(local(1_767_225_600, -3600), "Dec 31 23:00:00 2025");
        assert_eq!(local(1, -3600), "Dec 31 23:00:01 1969");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..60_000 {
            let (year, month, day) = date(days);
            let next_day = (year, month, day) == (before.0, before.1, before.2 + 1);
            let next_month = day == 1
                && (month, year) == ((before.1 + 1) % 12, before.0 + i64::from(before.1 == 11));
            assert!(next_day || next_month, "{days}");
            before = (year, month, day);
        }
    }
}
