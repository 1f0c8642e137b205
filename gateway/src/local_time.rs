//! Local time, for dumps and events that people read.

/// By how many seconds local time was ahead of UTC, `seconds` after the Unix epoch.
pub(crate) fn utc_offset(seconds: u64) -> i64 {
    let Ok(time) = libc::time_t::try_from(seconds) else {
        return 0;
    };
    // SAFETY: `tm` is plain numbers and a pointer that may be null; all zero is a value of it.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right types, and the function keeps neither.
    let result = unsafe { libc::localtime_r(&time, &mut local) };
    if result.is_null() { 0 } else { local.tm_gmtoff }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_on_earth_is_a_day_ahead() {
        for seconds in [0, 1_795_262_400, u64::MAX] {
            assert!(utc_offset(seconds).abs() <= 14 * 3600);
        }
    }
}
