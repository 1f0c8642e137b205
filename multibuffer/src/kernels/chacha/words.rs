//! Vectors of 32-bit words, a block of ChaCha20 in each lane.

use std::arch::x86_64::*;

use crate::kernels::{
    transpose::{quads_256, quads_512, transposed_8, transposed_16},
    wide::{Four, Two, Wide},
};

/// Lanes of the widest vector.
pub(super) const MAX_LANES: usize = 16;

/// A vector with a word of each lane; sums wrap.
///
/// Made and used only in functions that enable its instructions, into which everything here is inlined: no closure may
/// be given to what takes one for each element of an array, or what it calls need not be.
pub(super) trait Words: Copy {
    /// How many lanes.
    const LANES: usize;
    /// The vector in which a text is read and written: as long as this one.
    type Text: Wide;

    /// The same word in every lane.
    fn splat(word: u32) -> Self;
    /// The sums.
    fn plus(self, other: Self) -> Self;
    /// Exclusive or, then a rotation towards the high end.
    fn xor_rotated<const BY: i32>(self, other: Self) -> Self;

    /// The four words at the place of each lane.
    ///
    /// # Safety
    /// So many places are readable.
    unsafe fn quarter(place: impl Fn(usize) -> *const u8) -> [Self; 4];

    /// Writes sixteen words of each lane, lane by lane.
    ///
    /// # Safety
    /// `to` is good for writing them.
    unsafe fn store_blocks(words: [Self; 16], to: *mut u8);
}

impl Words for Two {
    const LANES: usize = 8;
    type Text = Self;

    #[inline(always)]
    fn splat(word: u32) -> Self {
        // SAFETY: the contract of `Words`.
        Self(unsafe { _mm256_set1_epi32(word as i32) })
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Wide::plus(self, other)
    }

    #[inline(always)]
    fn xor_rotated<const BY: i32>(self, other: Self) -> Self {
        let mixed = self.xor(other).0;
        // SAFETY: as above.
        Self(unsafe {
            _mm256_or_si256(
                _mm256_sll_epi32(mixed, _mm_cvtsi32_si128(BY)),
                _mm256_srl_epi32(mixed, _mm_cvtsi32_si128(32 - BY)),
            )
        })
    }

    #[inline(always)]
    unsafe fn quarter(place: impl Fn(usize) -> *const u8) -> [Self; 4] {
        // SAFETY: the caller promises the places.
        unsafe {
            let mut rows = [_mm256_setzero_si256(); 4];
            for (m, row) in rows.iter_mut().enumerate() {
                // Lanes m and m + 4 side by side, so that what follows leaves them in order.
                let low = _mm_loadu_si128(place(m).cast());
                *row = _mm256_set_m128i(_mm_loadu_si128(place(m + 4).cast()), low);
            }
            let [a, b, c, d] = quads_256(rows);
            [Self(a), Self(b), Self(c), Self(d)]
        }
    }

    #[inline(always)]
    unsafe fn store_blocks(words: [Self; 16], to: *mut u8) {
        // SAFETY: the caller promises the room.
        unsafe {
            for half in 0..2 {
                let mut rows = [words[0].0; 8];
                for (row, word) in rows.iter_mut().zip(&words[8 * half..]) {
                    *row = word.0;
                }
                for (lane, column) in transposed_8(rows).into_iter().enumerate() {
                    Self(column).store(to.add(64 * lane + 32 * half));
                }
            }
        }
    }
}

impl Words for Four {
    const LANES: usize = 16;
    type Text = Self;

    #[inline(always)]
    fn splat(word: u32) -> Self {
        // SAFETY: the contract of `Words`.
        Self(unsafe { _mm512_set1_epi32(word as i32) })
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Wide::plus(self, other)
    }

    #[inline(always)]
    fn xor_rotated<const BY: i32>(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_rol_epi32::<BY>(self.xor(other).0) })
    }

    #[inline(always)]
    unsafe fn quarter(place: impl Fn(usize) -> *const u8) -> [Self; 4] {
        // SAFETY: the caller promises the places.
        unsafe {
            let mut rows = [_mm512_setzero_si512(); 4];
            for (m, row) in rows.iter_mut().enumerate() {
                // Lanes m, m + 4, m + 8 and m + 12 side by side, so that what follows leaves them in order.
                *row = _mm512_castsi128_si512(_mm_loadu_si128(place(m).cast()));
                *row = _mm512_inserti32x4::<1>(*row, _mm_loadu_si128(place(m + 4).cast()));
                *row = _mm512_inserti32x4::<2>(*row, _mm_loadu_si128(place(m + 8).cast()));
                *row = _mm512_inserti32x4::<3>(*row, _mm_loadu_si128(place(m + 12).cast()));
            }
            let [a, b, c, d] = quads_512(rows);
            [Self(a), Self(b), Self(c), Self(d)]
        }
    }

    #[inline(always)]
    unsafe fn store_blocks(words: [Self; 16], to: *mut u8) {
        // SAFETY: the caller promises the room.
        unsafe {
            let mut rows = [words[0].0; 16];
            for (row, word) in rows.iter_mut().zip(words) {
                *row = word.0;
            }
            for (lane, block) in transposed_16(rows).into_iter().enumerate() {
                Self(block).store(to.add(64 * lane));
            }
        }
    }
}
