//! Key expansion by the AES-NI instructions.

use std::arch::x86_64::{_mm_aeskeygenassist_si128, _mm_cvtsi128_si32, _mm_set1_epi32};

use zeroize::Zeroize;

/// One round key more than AES-256 has rounds.
pub(super) const MAX_ROUND_KEYS: usize = 15;

/// The round keys of AES for encryption, in the order of the standard (FIPS 197 5.2).
#[repr(align(16))]
pub(crate) struct RoundKeys {
    blocks: [[u8; 16]; MAX_ROUND_KEYS],
    rounds: u8,
}

impl RoundKeys {
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
