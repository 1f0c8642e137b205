//! The stamp of each datagram: its number, the time it was made, and the run it belongs to.

/// Number, time and run: what fits the smallest datagram.
pub(super) const STAMP_BYTES: usize = 20;
/// The number of the datagrams that end a run.
pub(super) const END_NUMBER: u64 = u64::MAX;

/// Marks a datagram.
pub(super) fn stamp(datagram: &mut [u8], run: u32, number: u64, at: u64) {
    datagram[..8].copy_from_slice(&number.to_be_bytes());
    datagram[8..16].copy_from_slice(&at.to_be_bytes());
    datagram[16..STAMP_BYTES].copy_from_slice(&run.to_be_bytes());
}

/// The number and time of a datagram of this run.
pub(super) fn read(datagram: &[u8], run: u32) -> Option<(u64, u64)> {
    let word = |at: usize| -> Option<u64> {
        let bytes = datagram.get(at..at + 8)?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    };
    let theirs = u32::from_be_bytes(datagram.get(16..STAMP_BYTES)?.try_into().ok()?);
    (theirs == run).then_some((word(0)?, word(8)?))
}

/// Nanoseconds of the monotonic clock, which is one for all namespaces of a machine.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
