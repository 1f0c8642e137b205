//! The sum of words from which the Internet checksum is folded (RFC 1071).
//!
//! ```text
//!   few bytes    words of 32 bits are added, in integers
//!   many bytes   words of 16 bits in vectors of 256 bits: 0x8000 is taken from each, so that they fit the signed
//!                products; two neighbours are added by one instruction, and 0x8000 for each is put back at the end
//! ```

#[cfg(target_arch = "x86_64")]
use crate::detect::features;

/// Bytes from which vectors are faster.
#[cfg(target_arch = "x86_64")]
const VECTORS_FROM_BYTES: usize = 128;

/// Bytes added per round of vectors.
#[cfg(target_arch = "x86_64")]
const ROUND_BYTES: usize = 64;

/// Rounds after which no sum of 32 bits has overflowed: each adds at most 2^16 to it.
#[cfg(target_arch = "x86_64")]
const MAX_ROUNDS: usize = 1 << 14;

/// See [`crate::word_sum`].
#[inline]
pub(crate) fn word_sum(piece: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if piece.len() >= VECTORS_FROM_BYTES && features().avx2 {
        // SAFETY: the processor has AVX2.
        return unsafe { x86_64::word_sum(piece) };
    }
    in_integers(piece)
}

#[inline(always)]
fn in_integers(piece: &[u8]) -> u64 {
    let (words, last) = piece.as_chunks::<4>();
    let sum: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    sum + u64::from(padded(last))
}

/// At most three bytes as the word that zeros behind them would make.
#[inline(always)]
fn padded(last: &[u8]) -> u32 {
    u32::from_ne_bytes(match *last {
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c] => [a, b, c, 0],
        _ => [0; 4],
    })
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{MAX_ROUNDS, ROUND_BYTES, in_integers};
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_add_epi64, _mm256_castsi256_si128, _mm256_cvtepi32_epi64,
        _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi16,
        _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
    };

    /// What is put back for each round: 0x8000 for each of its words.
    const ROUND_OFFSET: i64 = (ROUND_BYTES as i64 / 2) << 15;

    #[target_feature(enable = "avx2")]
    pub(super) fn word_sum(piece: &[u8]) -> u64 {
        let (rounds, rest) = piece.as_chunks::<ROUND_BYTES>();
        let sum: i64 = rounds.chunks(MAX_ROUNDS).map(|part| sum_of(part)).sum();
        sum as u64 + in_integers(rest)
    }

    #[target_feature(enable = "avx2")]
    fn sum_of(rounds: &[[u8; ROUND_BYTES]]) -> i64 {
        let mut sums = [_mm256_setzero_si256(); 2];
        for round in rounds {
            let (halves, _) = round.as_chunks::<32>();
            for (sum, half) in sums.iter_mut().zip(halves) {
                *sum = _mm256_add_epi32(*sum, pairs(half));
            }
        }
        let sums = _mm256_add_epi64(widened(sums[0]), widened(sums[1]));
        let mut parts = [0i64; 4];
        // SAFETY: 32 bytes may be written there, at any alignment.
        unsafe { _mm256_storeu_si256(parts.as_mut_ptr().cast(), sums) };
        parts.iter().sum::<i64>() + rounds.len() as i64 * ROUND_OFFSET
    }

    /// Sums of two neighbouring words each, less 0x10000.
    #[target_feature(enable = "avx2")]
    fn pairs(half: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes may be read there, at any alignment.
        let words = unsafe { _mm256_loadu_si256(half.as_ptr().cast()) };
        let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
        _mm256_madd_epi16(signed, _mm256_set1_epi16(1))
    }

    /// Four sums of two each, in 64 bits.
    #[target_feature(enable = "avx2")]
    fn widened(sums: __m256i) -> __m256i {
        let low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sums));
        let high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256::<1>(sums));
        _mm256_add_epi64(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As RFC 1071 reads.
    fn folded(mut sum: u64) -> u64 {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    }

    fn one_by_one(piece: &[u8]) -> u64 {
        piece.chunks(2).fold(0, |sum, pair| {
            let word = u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
            folded(sum + u64::from(word))
        })
    }

    #[test]
    fn every_length_folds_to_the_sum_of_its_words() {
        let bytes: Vec<u8> = (0..3000u32)
            .map(|n| (n.wrapping_mul(n) >> 3) as u8 ^ 0xa5)
            .collect();
        for len in 0..bytes.len() - 1 {
            // At any alignment.
            let piece = &bytes[len % 2..][..len];
            assert_eq!(folded(word_sum(piece)), one_by_one(piece), "{len} bytes");
        }
    }

    /// A sum of 32 bits would overflow in either direction.
    #[test]
    fn a_piece_of_any_size_does_not_overflow() {
        for byte in [0x00, 0xff, 0x7f, 0x80] {
            let piece = vec![byte; 3 << 20];
            assert_eq!(folded(word_sum(&piece)), one_by_one(&piece), "{byte:#x}");
        }
    }

    #[test]
    fn vectors_and_integers_agree() {
        let piece: Vec<u8> = (0..1500u32).map(|n| (n * 31) as u8).collect();
        assert_eq!(folded(word_sum(&piece)), folded(in_integers(&piece)));
    }
}
