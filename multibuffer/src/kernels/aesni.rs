//! AES by the AES-NI instructions: key expansion, and CBC encryption of eight packets at once.

use std::arch::x86_64::{
    __m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aeskeygenassist_si128, _mm_cvtsi128_si32,
    _mm_loadu_si128, _mm_set1_epi32, _mm_setzero_si128, _mm_storeu_si128, _mm_xor_si128,
};

use zeroize::Zeroize;

use super::cbc_lanes::{self, CbcJob, CbcMacJob, Flight};
use crate::detect::features;

/// One round key more than AES-256 has rounds.
pub(super) const MAX_ROUND_KEYS: usize = 15;

const LANES: usize = 8;

/// The round keys of AES for encryption, in the order of the standard (FIPS 197 5.2).
pub(crate) struct RoundKeys {
    blocks: [[u8; 16]; MAX_ROUND_KEYS],
    rounds: u8,
}

impl RoundKeys {
    /// Expands 16, 24 or 32 key bytes; `None` for others, or if the processor lacks AES-NI.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let fits = matches!(key.len(), 16 | 24 | 32) && features().aesni;
        // SAFETY: the processor has AES-NI.
        fits.then(|| unsafe { expand(key) })
    }

    /// 10, 12 or 14.
    pub(crate) fn rounds(&self) -> usize {
        usize::from(self.rounds)
    }

    /// Other keys for as many rounds.
    pub(super) fn with_blocks(&self, blocks: [[u8; 16]; MAX_ROUND_KEYS]) -> Self {
        Self {
            blocks,
            rounds: self.rounds,
        }
    }

    /// The round keys in order.
    pub(super) fn as_blocks(&self) -> &[[u8; 16]] {
        &self.blocks[..=self.rounds()]
    }
}

impl Drop for RoundKeys {
    fn drop(&mut self) {
        self.blocks.zeroize();
    }
}

/// FIPS 197 5.2, word by word. The S-box is the processor's, so no table is looked up by key bytes.
#[target_feature(enable = "aes,sse4.1")]
pub(super) fn expand(key: &[u8]) -> RoundKeys {
    let (key_words, rest) = key.as_chunks::<4>();
    debug_assert!(rest.is_empty());
    let every = key_words.len();
    let rounds = every + 6;
    let mut words = [0_u32; 4 * MAX_ROUND_KEYS];
    for (word, bytes) in words.iter_mut().zip(key_words) {
        *word = u32::from_le_bytes(*bytes);
    }
    let mut constant = 1_u32;
    for at in every..4 * (rounds + 1) {
        let mut word = words[at - 1];
        if at % every == 0 {
            word = substituted(word).rotate_right(8) ^ constant;
            // Doubling in GF(2^8), as long as the ten constants need.
            constant = (constant << 1) ^ ((constant >> 7) * 0x11b);
        } else if every == 8 && at % 8 == 4 {
            word = substituted(word);
        }
        words[at] = words[at - every] ^ word;
    }
    let mut blocks = [[0; 16]; MAX_ROUND_KEYS];
    for (bytes, word) in blocks.as_flattened_mut().chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    words.zeroize();
    RoundKeys {
        blocks,
        rounds: rounds as u8,
    }
}

#[target_feature(enable = "aes,sse4.1")]
fn substituted(word: u32) -> u32 {
    _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(_mm_set1_epi32(word as i32))) as u32
}

/// Encrypts all jobs; their keys have `rounds` rounds.
pub(crate) fn cbc_encrypt<'a>(rounds: usize, jobs: impl Iterator<Item = CbcJob<'a>>) {
    cbc_lanes::encrypt::<LANES>(rounds, jobs, |flight, blocks| {
        // SAFETY: round keys exist only where AES-NI does, and the flight's pointers are good for `blocks` blocks.
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
pub(crate) fn cbc_mac<'a>(rounds: usize, jobs: impl Iterator<Item = CbcMacJob<'a>>) {
    cbc_lanes::sign::<LANES>(rounds, jobs, |flight, blocks| {
        // SAFETY: round keys exist only where AES-NI does, and the flight's pointers are good for `blocks` blocks.
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
#[target_feature(enable = "aes,sse4.1")]
unsafe fn run<const ROUNDS: usize, const STORE: bool>(flight: &mut Flight<LANES>, blocks: usize) {
    let keys = flight.keys.as_ptr().cast::<__m128i>();
    // SAFETY: `chain` is LANES blocks and `keys` LANES blocks for each round; `text` as the caller promises.
    unsafe {
        let chain = flight.chain.as_mut_ptr().cast::<__m128i>();
        let mut state = [_mm_setzero_si128(); LANES];
        for (lane, state) in state.iter_mut().enumerate() {
            *state = _mm_loadu_si128(chain.add(lane));
        }
        for block in 0..blocks {
            for (lane, state) in state.iter_mut().enumerate() {
                let plain = _mm_loadu_si128(flight.text[lane].cast::<__m128i>().add(block));
                *state = _mm_xor_si128(
                    _mm_xor_si128(*state, plain),
                    _mm_loadu_si128(keys.add(lane)),
                );
            }
            for round in 1..ROUNDS {
                for (lane, state) in state.iter_mut().enumerate() {
                    *state =
                        _mm_aesenc_si128(*state, _mm_loadu_si128(keys.add(round * LANES + lane)));
                }
            }
            for (lane, state) in state.iter_mut().enumerate() {
                *state =
                    _mm_aesenclast_si128(*state, _mm_loadu_si128(keys.add(ROUNDS * LANES + lane)));
                if STORE {
                    _mm_storeu_si128(flight.text[lane].cast::<__m128i>().add(block), *state);
                }
            }
        }
        for (lane, state) in state.iter().enumerate() {
            _mm_storeu_si128(chain.add(lane), *state);
        }
    }
}
