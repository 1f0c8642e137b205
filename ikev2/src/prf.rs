//! Pseudorandom functions as IKEv2 uses them: their transform IDs, the lengths of their keys, and prf+ (RFC 7296 2.13).

use multibuffer::{Prf, PrfKey};
use zeroize::Zeroizing;

/// The most blocks that prf+ gives: its counter is one byte (RFC 7296 2.13).
const MAX_PRF_PLUS_BLOCKS: usize = 255;

/// Transform IDs (type 2, RFC 7296 3.3.2, RFC 4868, RFC 4615), with a name for people.
pub const TRANSFORMS: [(u16, Prf, &str); 6] = [
    (2, Prf::HmacSha1, "prf-hmac-sha1"),
    (4, Prf::AesXcbc, "prf-aes-xcbc"),
    (5, Prf::HmacSha256, "prf-hmac-sha2-256"),
    (6, Prf::HmacSha384, "prf-hmac-sha2-384"),
    (7, Prf::HmacSha512, "prf-hmac-sha2-512"),
    (8, Prf::AesCmac, "prf-aes-cmac"),
];

/// The function with this transform ID.
pub fn from_transform(id: u16) -> Option<Prf> {
    let row = TRANSFORMS.iter().find(|row| row.0 == id);
    row.map(|row| row.1)
}

/// Bytes of SK_d, SK_pi and SK_pr, the function's preferred key length (RFC 7296 2.14): that of its output, for HMAC
/// (2.13) as for AES, whose key and block have 16 bytes both.
pub fn key_len(prf: Prf) -> usize {
    prf.output_len()
}

/// RFC 7296 2.13: T1 = prf(K, S | 1), T2 = prf(K, T1 | S | 2) and so on, `len` bytes of them. The parts of `seed` are S
/// in order.
///
/// # Panics
/// If more than 255 blocks are requested. No negotiated suite needs as many, so only a wrong caller causes it, never a
/// peer.
pub fn prf_plus(key: &PrfKey, seed: &[&[u8]], len: usize) -> Zeroizing<Vec<u8>> {
    // INVARIANT: as long as it ever gets, so that no copy is left behind by growing.
    let mut output = Zeroizing::new(Vec::with_capacity(len));
    let mut block = Zeroizing::new(Vec::new());
    let mut count: u8 = 0;
    while output.len() < len {
        count = count.checked_add(1).expect("at most 255 blocks of prf+");
        block = {
            let mut message = vec![block.as_slice()];
            message.extend(seed);
            let counter = [count];
            message.push(&counter);
            key.compute(&message)
        };
        let wanted = block.len().min(len - output.len());
        output.extend_from_slice(&block[..wanted]);
    }
    output
}

/// The most bytes that [`prf_plus`] gives.
pub fn max_prf_plus_len(prf: Prf) -> usize {
    MAX_PRF_PLUS_BLOCKS * prf.output_len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written as the RFC's formula is, with nothing shared but the function itself.
    fn by_the_formula(key: &PrfKey, seed: &[u8], blocks: u8) -> Vec<u8> {
        let mut all = Vec::new();
        let mut last = Vec::new();
        for count in 1..=blocks {
            last = key.compute(&[&[&last, seed, &[count]].concat()]).to_vec();
            all.extend_from_slice(&last);
        }
        all
    }

    #[test]
    fn prf_plus_is_the_formula_at_every_length_and_however_the_seed_is_cut() {
        for (_, prf, name) in TRANSFORMS {
            let key = PrfKey::new(prf, b"a key of no particular length");
            let expected = by_the_formula(&key, b"nonces and SPIs", 5);
            for len in 0..=expected.len() {
                let output = prf_plus(&key, &[b"nonces", b"", b" and SPIs"], len);
                assert_eq!(output[..], expected[..len], "{name}, {len} bytes");
            }
        }
    }

    #[test]
    fn prf_plus_ends_where_its_counter_does() {
        let key = PrfKey::new(Prf::HmacSha1, b"key");
        assert_eq!(max_prf_plus_len(Prf::HmacSha1), 5100);
        assert_eq!(prf_plus(&key, &[b"seed"], 5100).len(), 5100);
    }

    #[test]
    #[should_panic(expected = "at most 255 blocks")]
    fn prf_plus_never_begins_again() {
        prf_plus(&PrfKey::new(Prf::HmacSha1, b"key"), &[b"seed"], 5101);
    }

    #[test]
    fn transform_ids_are_those_of_the_registry() {
        assert_eq!(from_transform(5), Some(Prf::HmacSha256));
        for id in [0, 1, 3, 9] {
            assert_eq!(from_transform(id), None);
        }
    }
}
