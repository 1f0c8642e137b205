//! AES by the VAES instructions on 256-bit vectors: CBC encryption of sixteen packets at once, two in each vector.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_storeu_si128, _mm256_aesenc_epi128,
    _mm256_aesenclast_epi128, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256,
    _mm256_set_m128i, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::cbc_lanes::{self, CbcJob, CbcMacJob, Flight};

const LANES: usize = 16;
const PAIRS: usize = LANES / 2;

/// Encrypts all jobs; their keys have `rounds` rounds.
///
/// # Safety
/// The processor has VAES and AVX2.
pub(crate) unsafe fn cbc_encrypt<'a>(rounds: usize, jobs: impl Iterator<Item = CbcJob<'a>>) {
    cbc_lanes::encrypt::<LANES>(rounds, jobs, |flight, blocks| {
        // SAFETY: the caller answers for the processor, and the flight's pointers are good for `blocks` blocks.
        unsafe {
            match rounds {
                10 => run::<10, true>(flight, blocks),
                12 => run::<12, true>(flight, blocks),
                _ => run::<14, true>(flight, blocks),
            }
        }
    });
}

/// Signs all jobs; their keys have `rounds` rounds.
///
/// # Safety
/// The processor has VAES and AVX2.
pub(crate) unsafe fn cbc_mac<'a>(rounds: usize, jobs: impl Iterator<Item = CbcMacJob<'a>>) {
    cbc_lanes::sign::<LANES>(rounds, jobs, |flight, blocks| {
        // SAFETY: the caller answers for the processor, and the flight's pointers are good for `blocks` blocks.
        unsafe {
            match rounds {
                10 => run::<10, false>(flight, blocks),
                12 => run::<12, false>(flight, blocks),
                _ => run::<14, false>(flight, blocks),
            }
        }
    });
}

/// Takes each lane `blocks` blocks further; the text is replaced by its ciphertext if `STORE`, else only read.
///
/// # Safety
/// Each `text` of the flight is valid for reading `blocks` blocks, and for writing them if `STORE`.
#[target_feature(enable = "vaes,avx2")]
unsafe fn run<const ROUNDS: usize, const STORE: bool>(flight: &mut Flight<LANES>, blocks: usize) {
    let keys = flight.keys.as_ptr().cast::<__m256i>();
    // SAFETY: `chain` is LANES blocks and `keys` LANES blocks for each round; `text` as the caller promises.
    unsafe {
        let chain = flight.chain.as_mut_ptr().cast::<__m256i>();
        let text = |lane: usize, block: usize| flight.text[lane].cast::<__m128i>().add(block);
        let mut state = [_mm256_setzero_si256(); PAIRS];
        for (pair, state) in state.iter_mut().enumerate() {
            *state = _mm256_loadu_si256(chain.add(pair));
        }
        for block in 0..blocks {
            for (pair, state) in state.iter_mut().enumerate() {
                let (low, high) = (text(2 * pair, block), text(2 * pair + 1, block));
                let plain = _mm256_set_m128i(_mm_loadu_si128(high), _mm_loadu_si128(low));
                *state = _mm256_xor_si256(
                    _mm256_xor_si256(*state, plain),
                    _mm256_loadu_si256(keys.add(pair)),
                );
            }
            for round in 1..ROUNDS {
                for (pair, state) in state.iter_mut().enumerate() {
                    *state = _mm256_aesenc_epi128(
                        *state,
                        _mm256_loadu_si256(keys.add(round * PAIRS + pair)),
                    );
                }
            }
            for (pair, state) in state.iter_mut().enumerate() {
                *state = _mm256_aesenclast_epi128(
                    *state,
                    _mm256_loadu_si256(keys.add(ROUNDS * PAIRS + pair)),
                );
                if STORE {
                    _mm_storeu_si128(text(2 * pair, block), _mm256_castsi256_si128(*state));
                    _mm_storeu_si128(
                        text(2 * pair + 1, block),
                        _mm256_extracti128_si256::<1>(*state),
                    );
                }
            }
        }
        for (pair, state) in state.iter().enumerate() {
            _mm256_storeu_si256(chain.add(pair), *state);
        }
    }
}
