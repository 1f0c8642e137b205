//! The kernels: libraries behind safe functions, and this crate's own.
//!
//! Only this folder and `zeroing` contain `unsafe`. A kernel knows expanded keys, blocks and chaining values; what a
//! packet's bytes mean (which are associated data, where the ICV stands) is its caller's business. Which kernels run is
//! decided by [`crate::detect`] and `lanes`.

pub(crate) mod at_least;
pub(crate) mod aws_lc;
pub(crate) mod bitslice;
pub(crate) mod nonce;
pub(crate) mod scalar;
pub(crate) mod word_sum;

#[cfg(target_arch = "x86_64")]
mod aesni;
#[cfg(target_arch = "x86_64")]
mod cbc_lanes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod chacha;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gcm;
#[cfg(target_arch = "x86_64")]
mod hash_lanes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod self_test;
#[cfg(target_arch = "x86_64")]
mod streams;
#[cfg(target_arch = "x86_64")]
mod transpose;
#[cfg(target_arch = "x86_64")]
pub(crate) mod wide;

pub(crate) mod lanes;

/// See [`crate::time_stamp`].
pub(crate) fn time_stamp() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    return Some(unsafe { std::arch::x86_64::_rdtsc() });
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// See [`crate::prefetch`].
#[inline(always)]
pub(crate) fn prefetch<T: ?Sized>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(what).cast::<i8>();
        let end = start.wrapping_add(size_of_val(what));
        let mut line = start.map_addr(|address| address & !(CACHE_LINE_BYTES - 1));
        while line < end {
            // SAFETY: a hint: it neither faults nor changes anything a program can see, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
            line = line.wrapping_add(CACHE_LINE_BYTES);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

/// A request to memcheck about the bytes of `about`; does nothing outside valgrind.
#[cfg(all(feature = "memcheck", target_arch = "x86_64"))]
pub(crate) fn request_memcheck<T: ?Sized>(request: u64, about: &T) {
    let request = [
        request,
        std::ptr::from_ref(about).cast::<u8>() as u64,
        size_of_val(about) as u64,
        0,
        0,
        0,
    ];
    // SAFETY: rotations that undo each other, and a move of a register to itself: outside valgrind these instructions
    // change nothing but the flags.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0_u64 => _,
        );
    }
}
