//! Zeroes copies of keys that kernels have made, fast enough for every batch.

use std::{arch::asm, mem::MaybeUninit};

/// Bytes of stack that kernels use at most, with a margin: lanes with their round keys and buffers use the most.
const MAX_STACK_BYTES: usize = 24 << 10;

/// Runs `work` in a stack frame of its own, below that of the caller, which [`zero_stack`] zeroes afterwards.
#[inline(never)]
pub(crate) fn in_own_frame<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Zeroes the stack below the caller.
#[inline(never)]
pub(crate) fn zero_stack() {
    let mut room = [MaybeUninit::<u8>::uninit(); MAX_STACK_BYTES];
    zero(&mut room);
}

/// Types for which every byte pattern is a value, zeroes among them.
///
/// # Safety
/// That must be so, and there must be nothing to drop.
pub(crate) unsafe trait Plain {}

// SAFETY: numbers.
unsafe impl Plain for u8 {}
// SAFETY: uninitialized bytes may have any value, zero included, and nothing is dropped.
unsafe impl Plain for MaybeUninit<u8> {}
// SAFETY: an array of plain elements is plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Zeroes `what`, although the program does not read it again. Unlike the crate `zeroize`, which writes element by
/// element, it uses the widest words that the processor has.
pub(crate) fn zero<T: Plain>(what: &mut T) {
    // SAFETY: zeroes are a value of a plain type; the empty instructions might read it, as far as the compiler knows.
    unsafe {
        std::ptr::write_bytes(what, 0, 1);
        asm!("/* {0} */", in(reg) &raw mut *what, options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_zeroed() {
        let mut keys = [[[0x5a_u8; 16]; 16]; 15];
        zero(&mut keys);
        assert_eq!(keys, [[[0; 16]; 16]; 15]);
    }
}
