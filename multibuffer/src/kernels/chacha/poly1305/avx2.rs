//! Four packets a vector, numbers in five limbs of 26 bits: products of 32 bits, whole.

use std::arch::x86_64::*;

use super::LaneSet;
use crate::kernels::wide::{Two, Wide};

/// Packets a vector.
pub(in super::super) const LANES: usize = 4;

/// Takes each lane `blocks` blocks further.
///
/// # Safety
/// The processor has AVX2, and the lane set's pointers are good for so many blocks.
#[inline(never)]
#[target_feature(enable = "avx2")]
pub(in super::super) unsafe fn run(lane_set: &mut LaneSet<5>, blocks: usize) {
    let (mut r, mut sum) = ([_mm256_setzero_si256(); 5], [_mm256_setzero_si256(); 5]);
    for (at, (r, sum)) in r.iter_mut().zip(&mut sum).enumerate() {
        // SAFETY: a row is as long as the longest vector.
        unsafe {
            *r = _mm256_loadu_si256(lane_set.factor[at].as_ptr().cast());
            *sum = _mm256_loadu_si256(lane_set.sum[at].as_ptr().cast());
        }
    }
    // 2¹³⁰ is 5.
    let mut s = r;
    for limb in &mut s {
        *limb = times_5(*limb);
    }
    let [d0, d1, d2, d3, ..] = lane_set.data.map(<*const u8>::cast_mut);
    let (even, odd) = ([d0, d2], [d1, d3]);
    for block in 0..blocks {
        // SAFETY: the caller promises the blocks.
        let (even, odd) = unsafe {
            (
                Two::collected(&even, 16 * block).0,
                Two::collected(&odd, 16 * block).0,
            )
        };
        let message = limbs(
            _mm256_unpacklo_epi64(even, odd),
            _mm256_unpackhi_epi64(even, odd),
        );
        let mut h = sum;
        for (limb, message) in h.iter_mut().zip(message) {
            *limb = _mm256_add_epi64(*limb, message);
        }
        // Limbs have less than 27 bits, and what they are multiplied with less than 29.
        let mut products = [_mm256_setzero_si256(); 5];
        for (to, sum) in products.iter_mut().enumerate() {
            for (from, limb) in h.iter().enumerate() {
                let factor = if from <= to {
                    r[to - from]
                } else {
                    s[5 + to - from]
                };
                *sum = _mm256_add_epi64(*sum, _mm256_mul_epu32(*limb, factor));
            }
        }
        sum = carried(products);
    }
    for (row, sum) in lane_set.sum.iter_mut().zip(sum) {
        // SAFETY: a row is longer than the vector.
        unsafe { _mm256_storeu_si256(row.as_mut_ptr().cast(), sum) };
    }
}

/// Limbs of 26 bits or little more. Two chains side by side, so that each is half as long.
#[target_feature(enable = "avx2")]
#[inline]
fn carried(sum: [__m256i; 5]) -> [__m256i; 5] {
    let mask = _mm256_set1_epi64x((1 << 26) - 1);
    let rest = |limb| _mm256_and_si256(limb, mask);
    let above = |limb| _mm256_srli_epi64::<26>(limb);
    let [l0, l1, l2, l3, l4] = sum;
    let (l1, l0) = (_mm256_add_epi64(l1, above(l0)), rest(l0));
    let (l4, l3) = (_mm256_add_epi64(l4, above(l3)), rest(l3));
    let (l2, l1) = (_mm256_add_epi64(l2, above(l1)), rest(l1));
    let (l0, l4) = (_mm256_add_epi64(l0, times_5(above(l4))), rest(l4));
    let (l3, l2) = (_mm256_add_epi64(l3, above(l2)), rest(l2));
    let (l1, l0) = (_mm256_add_epi64(l1, above(l0)), rest(l0));
    let (l4, l3) = (_mm256_add_epi64(l4, above(l3)), rest(l3));
    [l0, l1, l2, l3, l4]
}

/// A block and the bit behind it.
#[target_feature(enable = "avx2")]
#[inline]
fn limbs(low: __m256i, high: __m256i) -> [__m256i; 5] {
    let mask = _mm256_set1_epi64x((1 << 26) - 1);
    let middle = _mm256_or_si256(_mm256_srli_epi64::<52>(low), _mm256_slli_epi64::<12>(high));
    [
        _mm256_and_si256(low, mask),
        _mm256_and_si256(_mm256_srli_epi64::<26>(low), mask),
        _mm256_and_si256(middle, mask),
        _mm256_and_si256(_mm256_srli_epi64::<14>(high), mask),
        _mm256_or_si256(_mm256_srli_epi64::<40>(high), _mm256_set1_epi64x(1 << 24)),
    ]
}

#[target_feature(enable = "avx2")]
#[inline]
fn times_5(number: __m256i) -> __m256i {
    _mm256_add_epi64(number, _mm256_slli_epi64::<2>(number))
}
