//! Marks for valgrind's memcheck, used by `tests/constant-time`: secret bytes count as undefined, so that every branch
//! and every address that depends on one is reported. Does nothing outside valgrind.

use std::hint::black_box;

/// Client requests of valgrind's header `memcheck.h`.
const MAKE_UNDEFINED: u64 = 0x4d43_0001;
const MAKE_DEFINED: u64 = 0x4d43_0002;

/// From here on the bytes are secret, and what is computed from them.
pub fn make_secret(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    crate::kernels::request_memcheck(MAKE_UNDEFINED, bytes);
    black_box(bytes);
}

/// Marks a verdict as public.
pub(crate) fn publish(verdict: &u64) {
    #[cfg(target_arch = "x86_64")]
    crate::kernels::request_memcheck(MAKE_DEFINED, verdict);
    black_box(verdict);
}
