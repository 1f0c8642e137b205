//! What a vector is enciphered with: round keys and counter blocks.

use std::arch::x86_64::*;

use super::Wide;
use crate::kernels::{aesni::RoundKeys, nonce::Nonce};

/// The round keys of AES, as vectors load them.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Schedule(*const u8);

impl Schedule {
    pub(in crate::kernels) fn of(keys: &RoundKeys) -> Self {
        Self(keys.as_blocks().as_ptr().cast())
    }

    /// A round key in every block.
    ///
    /// # Safety
    /// The keys live, have that many rounds, and the processor has `W`.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn key<W: Wide>(self, round: usize) -> W {
        // SAFETY: the caller promises as many round keys.
        W::every(unsafe { _mm_loadu_si128(self.0.add(16 * round).cast()) })
    }
}

macro_rules! directions {
    ($($(#[doc = $told:literal])* $name:ident: $round:ident $last:ident;)*) => {
        impl Schedule {$(
            $(#[doc = $told])*
            ///
            /// # Safety
            /// The keys live and have `ROUNDS` rounds, and the processor has `W`.
            #[inline(always)]
            pub(in crate::kernels) unsafe fn $name<W: Wide, const ROUNDS: usize, const N: usize>(
                self,
                mut text: [W; N],
            ) -> [W; N] {
                // SAFETY: the caller promises as many round keys.
                unsafe {
                    for vector in &mut text {
                        *vector = vector.xor(self.key(0));
                    }
                    for round in 1..ROUNDS {
                        let key = self.key(round);
                        for vector in &mut text {
                            *vector = vector.$round(key);
                        }
                    }
                    for vector in &mut text {
                        *vector = vector.$last(self.key(ROUNDS));
                    }
                }
                text
            }
        )*}
    };
}

directions! {
    /// Encrypts every block of every vector.
    encrypt: encrypt encrypt_last;
    /// Decrypts every block of every vector, by keys that were turned round.
    decrypt: decrypt decrypt_last;
}

/// Counter blocks: the number in the last word, in the processor's own order until it is enciphered.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Counters<W>(W);

impl<W: Wide> Counters<W> {
    /// Counts from `number` on.
    ///
    /// # Safety
    /// The processor has `W`.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn from(nonce: Nonce, number: u32) -> Self {
        let block = nonce.with_counter_last(number);
        // SAFETY: every x86-64 processor has this instruction.
        let block = unsafe { _mm_set_epi64x((block >> 64) as i64, block as i64) };
        Self(W::every(block).plus(W::numbers()))
    }

    /// The next blocks, as many as a vector has.
    #[inline(always)]
    pub(in crate::kernels) fn next(&mut self) -> W {
        // SAFETY: every x86-64 processor has these instructions.
        let (order, step) = unsafe {
            (
                _mm_set_epi8(12, 13, 14, 15, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                _mm_set_epi32(W::BLOCKS as i32, 0, 0, 0),
            )
        };
        let blocks = self.0.shuffled(order);
        self.0 = self.0.plus(W::every(step));
        blocks
    }
}
