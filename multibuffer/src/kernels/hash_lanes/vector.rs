//! Vectors of words, a lane for each message.

use std::{
    arch::x86_64::*,
    ops::{Add, BitXor},
};

use crate::kernels::transpose::{MAX_LANES, block_4_long, block_8, block_8_long, block_16};

/// A word of a hash function.
pub(crate) trait Element: Copy + Default + 'static {
    /// Writes the word's bytes.
    fn write(self, big_endian: bool, bytes: &mut [u8]);
}

macro_rules! element {
    ($($word:ty)*) => {$(
        impl Element for $word {
            fn write(self, big_endian: bool, bytes: &mut [u8]) {
                bytes.copy_from_slice(&if big_endian { self.to_be_bytes() } else { self.to_le_bytes() });
            }
        }
    )*};
}

element!(u32 u64);

/// A vector with a word of each lane; sums wrap.
///
/// Made and used only in functions that enable its instructions, into which everything here is inlined.
pub(crate) trait Vector: Copy + Add<Output = Self> + BitXor<Output = Self> {
    /// A word.
    type Element: Element;
    /// How many of them.
    const LANES: usize;

    /// The same word in every lane.
    fn splat(word: Self::Element) -> Self;
    /// The first words of a row.
    fn load(row: &[Self::Element; MAX_LANES]) -> Self;
    /// The reverse of [`Vector::load`].
    fn store(self, row: &mut [Self::Element; MAX_LANES]);
    /// The sixteen words that stand `offset` bytes behind each pointer.
    ///
    /// # Safety
    /// The first [`Vector::LANES`] pointers, and the words behind them, are readable.
    unsafe fn load_block(
        data: &[*const u8; MAX_LANES],
        offset: usize,
        big_endian: bool,
    ) -> [Self; 16];

    /// Rotation towards the high end.
    fn rotated(self, by: u32) -> Self;
    /// Shift towards the low end.
    fn shifted_down(self, by: u32) -> Self;
    /// The exclusive or of three.
    fn xor3(x: Self, y: Self, z: Self) -> Self;
    /// `y` where `x` is 1, `z` where it is 0.
    fn choose(x: Self, y: Self, z: Self) -> Self;
    /// What at least two of three are.
    fn majority(x: Self, y: Self, z: Self) -> Self;
    /// `x | !y`.
    fn or_not(x: Self, y: Self) -> Self;
}

macro_rules! vector {
    ($name:ident, $vector:ident, $word:ty as $signed:ty, $lanes:literal,
     $add:ident, $xor:ident, $splat:ident, $load:ident, $store:ident, $load_block:ident,
     rotated: |$ra:ident, $rby:ident| $rotated:expr,
     shifted: $shifted:ident,
     xor3: |$x3:ident, $y3:ident, $z3:ident| $xor3:expr,
     choose: |$xc:ident, $yc:ident, $zc:ident| $choose:expr,
     majority: |$xm:ident, $ym:ident, $zm:ident| $majority:expr,
     or_not: |$xo:ident, $yo:ident| $or_not:expr $(,)?) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name($vector);

        impl Add for $name {
            type Output = Self;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: a vector exists only where its instructions do.
                Self(unsafe { $add(self.0, other.0) })
            }
        }

        impl BitXor for $name {
            type Output = Self;
            #[inline(always)]
            fn bitxor(self, other: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $xor(self.0, other.0) })
            }
        }

        impl Vector for $name {
            type Element = $word;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn splat(word: $word) -> Self {
                // SAFETY: the contract of `Vector`.
                Self(unsafe { $splat(word as $signed) })
            }

            #[inline(always)]
            fn load(row: &[$word; MAX_LANES]) -> Self {
                // SAFETY: a row is as long as the longest vector.
                Self(unsafe { $load(row.as_ptr().cast()) })
            }

            #[inline(always)]
            fn store(self, row: &mut [$word; MAX_LANES]) {
                // SAFETY: a row is as long as the longest vector.
                unsafe { $store(row.as_mut_ptr().cast(), self.0) }
            }

            #[inline(always)]
            unsafe fn load_block(
                data: &[*const u8; MAX_LANES],
                offset: usize,
                big_endian: bool,
            ) -> [Self; 16] {
                // SAFETY: the caller promises readable words.
                let words = unsafe { $load_block(data, offset, big_endian) };
                let mut block = [Self(words[0]); 16];
                for (vector, word) in block.iter_mut().zip(words) {
                    vector.0 = word;
                }
                block
            }

            #[inline(always)]
            fn rotated(self, by: u32) -> Self {
                let ($ra, $rby) = (self.0, by as i32);
                // SAFETY: as above.
                Self(unsafe { $rotated })
            }

            #[inline(always)]
            fn shifted_down(self, by: u32) -> Self {
                // SAFETY: as above.
                Self(unsafe { $shifted(self.0, _mm_cvtsi32_si128(by as i32)) })
            }

            #[inline(always)]
            fn xor3(x: Self, y: Self, z: Self) -> Self {
                let ($x3, $y3, $z3) = (x.0, y.0, z.0);
                // SAFETY: as above.
                Self(unsafe { $xor3 })
            }

            #[inline(always)]
            fn choose(x: Self, y: Self, z: Self) -> Self {
                let ($xc, $yc, $zc) = (x.0, y.0, z.0);
                // SAFETY: as above.
                Self(unsafe { $choose })
            }

            #[inline(always)]
            fn majority(x: Self, y: Self, z: Self) -> Self {
                let ($xm, $ym, $zm) = (x.0, y.0, z.0);
                // SAFETY: as above.
                Self(unsafe { $majority })
            }

            #[inline(always)]
            fn or_not(x: Self, y: Self) -> Self {
                let ($xo, $yo) = (x.0, y.0);
                // SAFETY: as above.
                Self(unsafe { $or_not })
            }
        }
    };
}

vector!(
    Words8, __m256i, u32 as i32, 8,
    _mm256_add_epi32, _mm256_xor_si256, _mm256_set1_epi32, _mm256_loadu_si256, _mm256_storeu_si256, block_8,
    rotated: |a, by| _mm256_or_si256(
        _mm256_sll_epi32(a, _mm_cvtsi32_si128(by)),
        _mm256_srl_epi32(a, _mm_cvtsi32_si128(32 - by)),
    ),
    shifted: _mm256_srl_epi32,
    xor3: |x, y, z| _mm256_xor_si256(_mm256_xor_si256(x, y), z),
    choose: |x, y, z| _mm256_xor_si256(z, _mm256_and_si256(x, _mm256_xor_si256(y, z))),
    majority: |x, y, z| _mm256_or_si256(_mm256_and_si256(x, y), _mm256_and_si256(z, _mm256_or_si256(x, y))),
    or_not: |x, y| _mm256_or_si256(x, _mm256_xor_si256(y, _mm256_set1_epi32(-1))),
);

vector!(
    Words4Long, __m256i, u64 as i64, 4,
    _mm256_add_epi64, _mm256_xor_si256, _mm256_set1_epi64x, _mm256_loadu_si256, _mm256_storeu_si256, block_4_long,
    rotated: |a, by| _mm256_or_si256(
        _mm256_sll_epi64(a, _mm_cvtsi32_si128(by)),
        _mm256_srl_epi64(a, _mm_cvtsi32_si128(64 - by)),
    ),
    shifted: _mm256_srl_epi64,
    xor3: |x, y, z| _mm256_xor_si256(_mm256_xor_si256(x, y), z),
    choose: |x, y, z| _mm256_xor_si256(z, _mm256_and_si256(x, _mm256_xor_si256(y, z))),
    majority: |x, y, z| _mm256_or_si256(_mm256_and_si256(x, y), _mm256_and_si256(z, _mm256_or_si256(x, y))),
    or_not: |x, y| _mm256_or_si256(x, _mm256_xor_si256(y, _mm256_set1_epi32(-1))),
);

vector!(
    Words16, __m512i, u32 as i32, 16,
    _mm512_add_epi32, _mm512_xor_si512, _mm512_set1_epi32, _mm512_loadu_si512, _mm512_storeu_si512, block_16,
    rotated: |a, by| _mm512_rolv_epi32(a, _mm512_set1_epi32(by)),
    shifted: _mm512_srl_epi32,
    xor3: |x, y, z| _mm512_ternarylogic_epi32::<0x96>(x, y, z),
    choose: |x, y, z| _mm512_ternarylogic_epi32::<0xca>(x, y, z),
    majority: |x, y, z| _mm512_ternarylogic_epi32::<0xe8>(x, y, z),
    or_not: |x, y| _mm512_ternarylogic_epi32::<0xf3>(x, y, y),
);

vector!(
    Words8Long, __m512i, u64 as i64, 8,
    _mm512_add_epi64, _mm512_xor_si512, _mm512_set1_epi64, _mm512_loadu_si512, _mm512_storeu_si512, block_8_long,
    rotated: |a, by| _mm512_rolv_epi64(a, _mm512_set1_epi64(by as i64)),
    shifted: _mm512_srl_epi64,
    xor3: |x, y, z| _mm512_ternarylogic_epi64::<0x96>(x, y, z),
    choose: |x, y, z| _mm512_ternarylogic_epi64::<0xca>(x, y, z),
    majority: |x, y, z| _mm512_ternarylogic_epi64::<0xe8>(x, y, z),
    or_not: |x, y| _mm512_ternarylogic_epi64::<0xf3>(x, y, y),
);
