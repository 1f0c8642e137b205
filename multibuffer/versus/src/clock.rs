//! The CPU time of this thread: what others do on the machine meanwhile does not count.

#[repr(C)]
struct Time {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Time) -> i32;
}

/// CLOCK_THREAD_CPUTIME_ID of Linux.
const OF_THIS_THREAD: i32 = 3;

/// Seconds that this thread has run.
pub fn now() -> f64 {
    let mut time = Time {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: `time` is laid out as 64-bit Linux has it, and writable.
    let done = unsafe { clock_gettime(OF_THIS_THREAD, &mut time) };
    assert_eq!(done, 0, "every Linux has this clock");
    time.seconds as f64 + time.nanoseconds as f64 / 1e9
}
