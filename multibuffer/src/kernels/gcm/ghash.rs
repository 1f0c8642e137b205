//! GHASH (SP 800-38D 6.4) by carry-less products: many blocks times powers of the hash key, one reduction for all.
//!
//! Bits of a block stand in the order of polynomials written backwards, so the bytes are reversed before, and the key
//! is multiplied by x once, which makes up for the place that a product of reversed numbers is off.

use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_set_epi8, _mm_set_epi64x};

use zeroize::Zeroize;

use crate::kernels::wide::{One, Source, Wide};

/// Vectors that are enciphered together.
pub(super) const VECTORS_AT_ONCE: usize = 4;

/// The most blocks that are summed up: as many as the widest vectors hold together, the lengths, and the block before.
const MAX_POWER: usize = 4 * VECTORS_AT_ONCE + 2;

/// Read past the last power by vectors that have nothing there to multiply.
const EXTRA_POWERS: usize = 3;

/// Powers of the hash key, the highest first.
#[repr(align(16))]
pub(super) struct Powers([[u8; 16]; MAX_POWER + EXTRA_POWERS]);

impl Drop for Powers {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Powers {
    /// The powers of a hash key, given as it was enciphered.
    #[inline(always)]
    pub(super) fn of(key: __m128i) -> Self {
        let mut bytes = [0; 16];
        // SAFETY: a block is as long as the vector.
        unsafe { One(key).store(bytes.as_mut_ptr()) };
        let key = u128::from_be_bytes(bytes);
        // Times x: what leaves at the end comes back by the polynomial.
        let by_x = (key << 1) ^ ((key >> 127) * POLYNOMIAL);
        let mut powers = Self([[0; 16]; MAX_POWER + EXTRA_POWERS]);
        powers.0[MAX_POWER - 1] = by_x.to_le_bytes();
        for power in (0..MAX_POWER - 1).rev() {
            let mut sum = Sum::<One>::nothing();
            // SAFETY: a block is as long as the vector.
            let last = unsafe { _mm_loadu_si128(powers.0[power + 1].as_ptr().cast()) };
            sum.add(One(last), powers.from(1));
            // SAFETY: as above.
            unsafe { One(sum.reduced()).store(powers.0[power].as_mut_ptr()) };
        }
        bytes.zeroize();
        powers
    }

    /// All that is read for so many blocks.
    #[inline]
    pub(super) fn for_blocks(&self, blocks: usize) -> &[[u8; 16]] {
        &self.0[MAX_POWER.saturating_sub(blocks)..]
    }

    /// The powers from `power` downwards, which is at least 1, and what stands behind the first.
    #[inline(always)]
    pub(super) fn from<W: Wide>(&self, power: usize) -> W {
        debug_assert!((1..=MAX_POWER).contains(&power));
        let first = &self.0[MAX_POWER - power..][..W::BLOCKS];
        // SAFETY: the slice is as long as the vector.
        unsafe { W::load(first.as_ptr().cast()) }
    }
}

/// x¹²⁸ + x¹²⁷ + x¹²⁶ + x¹²¹ + 1, without its highest bit.
const POLYNOMIAL: u128 = 0xc2 << 120 | 1;

/// A sum of products, each 256 bits wide, in each block of a vector.
#[derive(Clone, Copy)]
pub(super) struct Sum<W> {
    low: W,
    middle: W,
    high: W,
}

impl<W: Wide> Sum<W> {
    #[inline(always)]
    pub(super) fn nothing() -> Self {
        Self {
            low: W::zero(),
            middle: W::zero(),
            high: W::zero(),
        }
    }

    /// Adds the product of each block with its power.
    #[inline(always)]
    pub(super) fn add(&mut self, blocks: W, powers: W) {
        self.low = self.low.xor(blocks.product::<0x00>(powers));
        self.high = self.high.xor(blocks.product::<0x11>(powers));
        let crossed = blocks
            .product::<0x01>(powers)
            .xor(blocks.product::<0x10>(powers));
        self.middle = self.middle.xor(crossed);
    }

    /// The sum of all blocks, modulo the polynomial. Each step takes the lowest 64 bits away and adds them above.
    #[inline(always)]
    pub(super) fn reduced(self) -> __m128i {
        // SAFETY: every x86-64 processor has this instruction.
        let polynomial = W::every(unsafe { _mm_set_epi64x((POLYNOMIAL >> 64) as i64, 1) });
        let middle = self
            .middle
            .xor(self.low.turned())
            .xor(polynomial.product::<0x01>(self.low));
        let high = self
            .high
            .xor(middle.turned())
            .xor(polynomial.product::<0x01>(middle));
        high.folded()
    }
}

/// The bytes of each block in reversed order.
#[inline(always)]
pub(super) fn reversed<W: Wide>(blocks: W) -> W {
    // SAFETY: every x86-64 processor has this instruction.
    blocks.shuffled(unsafe { _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) })
}

/// The hash of `len` bytes, the last block filled up with zeros.
///
/// # Safety
/// The processor has `W`, and the source as many bytes.
#[inline(always)]
pub(super) unsafe fn absorb<W: Wide>(powers: &Powers, mut source: Source, len: usize) -> __m128i {
    let together = VECTORS_AT_ONCE * W::BYTES;
    let mut left = len;
    let mut hash = One::zero().0;
    // SAFETY: the source has `left` bytes.
    unsafe {
        while left >= together {
            let mut sum = Sum::<W>::nothing();
            for at in 0..VECTORS_AT_ONCE {
                let blocks = reversed(source.whole::<W>());
                let blocks = if at == 0 {
                    blocks.xor(W::first(hash))
                } else {
                    blocks
                };
                sum.add(blocks, powers.from((VECTORS_AT_ONCE - at) * W::BLOCKS));
            }
            hash = sum.reduced();
            left -= together;
        }
        if left == 0 {
            return hash;
        }
        let mut next = left.div_ceil(16);
        let mut sum = Sum::<W>::nothing();
        let mut before = W::first(hash);
        while left > 0 {
            let now = left.min(W::BYTES);
            sum.add(
                reversed(source.some::<W>(now)).xor(before),
                powers.from(next),
            );
            before = W::zero();
            next = next.saturating_sub(W::BLOCKS);
            left -= now;
        }
        sum.reduced()
    }
}
