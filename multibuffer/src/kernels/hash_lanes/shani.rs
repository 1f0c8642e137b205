//! SHA-1 and SHA-256 by the SHA instructions, two messages at once: each instruction waits for the one before it, so a
//! second message costs little.

use std::arch::x86_64::*;

use super::{HmacJob, LaneSet, Sha1, Sha256, sign};

/// Messages at once.
const PAIR: usize = 2;

/// Signs all jobs.
///
/// # Safety
/// The processor has the SHA instructions and SSE 4.1.
pub(crate) unsafe fn sign_sha1<'a>(jobs: impl Iterator<Item = HmacJob<'a, Sha1>>) {
    // SAFETY: the caller answers for the processor, and `sign` keeps the lane set's invariant.
    sign(PAIR, jobs, |lane_set, blocks| unsafe {
        sha1(lane_set, blocks)
    });
}

/// Signs all jobs.
///
/// # Safety
/// The processor has the SHA instructions and SSE 4.1.
pub(crate) unsafe fn sign_sha256<'a>(jobs: impl Iterator<Item = HmacJob<'a, Sha256>>) {
    // SAFETY: as above.
    sign(PAIR, jobs, |lane_set, blocks| unsafe {
        sha256(lane_set, blocks)
    });
}

/// # Safety
/// The lane set's first pointers are to `blocks` readable blocks.
#[target_feature(enable = "sha,sse4.1,ssse3")]
unsafe fn sha1(lane_set: &mut LaneSet<u32>, blocks: usize) {
    let reversal = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    let zero = _mm_setzero_si128();
    // The instructions expect the first word in the highest place.
    let (mut abcd, mut e) = ([zero; PAIR], [zero; PAIR]);
    for lane in 0..PAIR {
        let word = |at: usize| lane_set.state[at][lane] as i32;
        abcd[lane] = _mm_set_epi32(word(0), word(1), word(2), word(3));
        e[lane] = _mm_set_epi32(word(4), 0, 0, 0);
    }
    for block in 0..blocks {
        let (abcd_before, e_before) = (abcd, e);
        let mut w = [[zero; 4]; PAIR];
        for (lane, w) in w.iter_mut().enumerate() {
            for (quarter, words) in w.iter_mut().enumerate() {
                // SAFETY: the caller promises the block.
                let bytes = unsafe {
                    _mm_loadu_si128(lane_set.data[lane].add(64 * block + 16 * quarter).cast())
                };
                *words = _mm_shuffle_epi8(bytes, reversal);
            }
        }
        let mut previous = [zero; PAIR];
        macro_rules! four_rounds {
            ($($function:literal: $($at:literal)*;)*) => {$($(
                for lane in 0..PAIR {
                    let w = &mut w[lane];
                    if $at >= 4 {
                        let mixed = _mm_xor_si128(_mm_sha1msg1_epu32(w[$at % 4], w[($at + 1) % 4]), w[($at + 2) % 4]);
                        w[$at % 4] = _mm_sha1msg2_epu32(mixed, w[($at + 3) % 4]);
                    }
                    let words = w[$at % 4];
                    let sum = if $at == 0 {
                        _mm_add_epi32(e[lane], words)
                    } else {
                        _mm_sha1nexte_epu32(previous[lane], words)
                    };
                    previous[lane] = abcd[lane];
                    abcd[lane] = _mm_sha1rnds4_epu32::<$function>(abcd[lane], sum);
                }
            )*)*};
        }
        four_rounds!(0: 0 1 2 3 4; 1: 5 6 7 8 9; 2: 10 11 12 13 14; 3: 15 16 17 18 19;);
        for lane in 0..PAIR {
            e[lane] = _mm_sha1nexte_epu32(previous[lane], e_before[lane]);
            abcd[lane] = _mm_add_epi32(abcd[lane], abcd_before[lane]);
        }
    }
    for lane in 0..PAIR {
        let words = [
            _mm_extract_epi32::<3>(abcd[lane]),
            _mm_extract_epi32::<2>(abcd[lane]),
            _mm_extract_epi32::<1>(abcd[lane]),
            _mm_extract_epi32::<0>(abcd[lane]),
            _mm_extract_epi32::<3>(e[lane]),
        ];
        for (row, word) in lane_set.state.iter_mut().zip(words) {
            row[lane] = word as u32;
        }
    }
}

/// # Safety
/// The lane set's first pointers are to `blocks` readable blocks.
#[target_feature(enable = "sha,sse4.1,ssse3")]
unsafe fn sha256(lane_set: &mut LaneSet<u32>, blocks: usize) {
    let reversal = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let zero = _mm_setzero_si128();
    let (mut abef, mut cdgh) = ([zero; PAIR], [zero; PAIR]);
    for lane in 0..PAIR {
        let word = |at: usize| lane_set.state[at][lane] as i32;
        abef[lane] = _mm_set_epi32(word(0), word(1), word(4), word(5));
        cdgh[lane] = _mm_set_epi32(word(2), word(3), word(6), word(7));
    }
    for block in 0..blocks {
        let (abef_before, cdgh_before) = (abef, cdgh);
        let mut w = [[zero; 4]; PAIR];
        for (lane, w) in w.iter_mut().enumerate() {
            for (quarter, words) in w.iter_mut().enumerate() {
                // SAFETY: the caller promises the block.
                let bytes = unsafe {
                    _mm_loadu_si128(lane_set.data[lane].add(64 * block + 16 * quarter).cast())
                };
                *words = _mm_shuffle_epi8(bytes, reversal);
            }
        }
        macro_rules! four_rounds {
            ($($at:literal)*) => {$(
                // SAFETY: four constants stand there.
                let constants = unsafe { _mm_loadu_si128(super::sha2::CONSTANTS_256.as_ptr().add(4 * $at).cast()) };
                for lane in 0..PAIR {
                    let w = &mut w[lane];
                    if $at >= 4 {
                        let early = _mm_sha256msg1_epu32(w[$at % 4], w[($at + 1) % 4]);
                        let middle = _mm_alignr_epi8::<4>(w[($at + 3) % 4], w[($at + 2) % 4]);
                        w[$at % 4] = _mm_sha256msg2_epu32(_mm_add_epi32(early, middle), w[($at + 3) % 4]);
                    }
                    let sum = _mm_add_epi32(w[$at % 4], constants);
                    cdgh[lane] = _mm_sha256rnds2_epu32(cdgh[lane], abef[lane], sum);
                    abef[lane] = _mm_sha256rnds2_epu32(abef[lane], cdgh[lane], _mm_shuffle_epi32::<0x0e>(sum));
                }
            )*};
        }
        four_rounds!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        for lane in 0..PAIR {
            abef[lane] = _mm_add_epi32(abef[lane], abef_before[lane]);
            cdgh[lane] = _mm_add_epi32(cdgh[lane], cdgh_before[lane]);
        }
    }
    for lane in 0..PAIR {
        let words = [
            _mm_extract_epi32::<3>(abef[lane]),
            _mm_extract_epi32::<2>(abef[lane]),
            _mm_extract_epi32::<3>(cdgh[lane]),
            _mm_extract_epi32::<2>(cdgh[lane]),
            _mm_extract_epi32::<1>(abef[lane]),
            _mm_extract_epi32::<0>(abef[lane]),
            _mm_extract_epi32::<1>(cdgh[lane]),
            _mm_extract_epi32::<0>(cdgh[lane]),
        ];
        for (row, word) in lane_set.state.iter_mut().zip(words) {
            row[lane] = word as u32;
        }
    }
}
