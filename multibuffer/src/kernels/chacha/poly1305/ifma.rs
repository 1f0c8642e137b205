//! Eight packets a vector, numbers in three limbs of 44 bits: products of 52 bits, of which an instruction adds the
//! lower or the upper half to a sum.

use std::arch::x86_64::*;

use super::LaneSet;
use crate::kernels::wide::{Four, Wide};

/// Packets a vector.
pub(in super::super) const LANES: usize = 8;

/// Takes each lane `blocks` blocks further.
///
/// # Safety
/// The processor has the instructions, and the lane set's pointers are good for so many blocks.
#[inline(never)]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,avx512ifma")]
pub(in super::super) unsafe fn run(lane_set: &mut LaneSet<3>, blocks: usize) {
    let (mut factor, mut sum) = ([_mm512_setzero_si512(); 3], [_mm512_setzero_si512(); 3]);
    for (at, (factor, sum)) in factor.iter_mut().zip(&mut sum).enumerate() {
        // SAFETY: a row is as long as the longest vector.
        unsafe {
            *factor = _mm512_loadu_si512(lane_set.factor[at].as_ptr().cast());
            *sum = _mm512_loadu_si512(lane_set.sum[at].as_ptr().cast());
        }
    }
    let [r0, r1, r2] = factor;
    // 2¹³² is 20.
    let (s1, s2) = (
        times_5(_mm512_slli_epi64::<2>(r1)),
        times_5(_mm512_slli_epi64::<2>(r2)),
    );
    let [d0, d1, d2, d3, d4, d5, d6, d7] = lane_set.data.map(<*const u8>::cast_mut);
    let (even, odd) = ([d0, d2, d4, d6], [d1, d3, d5, d7]);
    let mask = _mm512_set1_epi64((1 << 44) - 1);
    let short_mask = _mm512_set1_epi64((1 << 42) - 1);
    let zero = _mm512_setzero_si512();
    for block in 0..blocks {
        // SAFETY: the caller promises the blocks.
        let (even, odd) = unsafe {
            (
                Four::collected(&even, 16 * block).0,
                Four::collected(&odd, 16 * block).0,
            )
        };
        let [m0, m1, m2] = limbs(
            _mm512_unpacklo_epi64(even, odd),
            _mm512_unpackhi_epi64(even, odd),
        );
        let [h0, h1, h2] = [
            _mm512_add_epi64(sum[0], m0),
            _mm512_add_epi64(sum[1], m1),
            _mm512_add_epi64(sum[2], m2),
        ];
        // The lowest limb is known last, so its products are too.
        let low = |sum, a, b| _mm512_madd52lo_epu64(sum, a, b);
        let high = |sum, a, b| _mm512_madd52hi_epu64(sum, a, b);
        let low0 = low(low(low(zero, h2, s1), h1, s2), h0, r0);
        let low1 = low(low(low(zero, h2, s2), h1, r0), h0, r1);
        let low2 = low(low(low(zero, h2, r0), h1, r1), h0, r2);
        let high0 = high(high(high(zero, h2, s1), h1, s2), h0, r0);
        let high1 = high(high(high(zero, h2, s2), h1, r0), h0, r1);
        let high2 = high(high(high(zero, h2, r0), h1, r1), h0, r2);
        // An upper half counts 2⁵², which is 2⁸ in the next limb; the last limb has 42 bits, and what is above counts
        // 5.
        let low1 = _mm512_add_epi64(low1, _mm512_slli_epi64::<8>(high0));
        let low1 = _mm512_add_epi64(low1, _mm512_srli_epi64::<44>(low0));
        let low2 = _mm512_add_epi64(low2, _mm512_slli_epi64::<8>(high1));
        let low2 = _mm512_add_epi64(low2, _mm512_srli_epi64::<44>(low1));
        let above = _mm512_add_epi64(
            _mm512_slli_epi64::<10>(high2),
            _mm512_srli_epi64::<42>(low2),
        );
        // The lowest limb stays below 2⁵¹: factors have 44, 44 and 36 bits, so `above` is less than 2⁴⁸.
        sum = [
            _mm512_add_epi64(_mm512_and_si512(low0, mask), times_5(above)),
            _mm512_and_si512(low1, mask),
            _mm512_and_si512(low2, short_mask),
        ];
    }
    for (row, sum) in lane_set.sum.iter_mut().zip(sum) {
        // SAFETY: a row is as long as the vector.
        unsafe { _mm512_storeu_si512(row.as_mut_ptr().cast(), sum) };
    }
}

/// A block and the bit behind it.
#[target_feature(enable = "avx512f")]
#[inline]
fn limbs(low: __m512i, high: __m512i) -> [__m512i; 3] {
    let mask = _mm512_set1_epi64((1 << 44) - 1);
    let middle = _mm512_or_si512(_mm512_srli_epi64::<44>(low), _mm512_slli_epi64::<20>(high));
    [
        _mm512_and_si512(low, mask),
        _mm512_and_si512(middle, mask),
        _mm512_or_si512(_mm512_srli_epi64::<24>(high), _mm512_set1_epi64(1 << 40)),
    ]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn times_5(number: __m512i) -> __m512i {
    _mm512_add_epi64(number, _mm512_slli_epi64::<2>(number))
}
