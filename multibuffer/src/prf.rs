//! Pseudorandom functions for key exchange: the same MACs that protect packets, untruncated and with a key of any
//! length.
//!
//! The `ikev2` crate defines what IKEv2 derives with them, and in which order.

use zeroize::Zeroizing;

use crate::{
    hmac::HmacKey,
    kernels::aws_lc::{Sha1, Sha256, Sha384, Sha512},
    xcbc::CbcMacKey,
    zeroing,
};

/// Bytes of an AES block, and of the key of PRFs based on AES.
const AES_KEY_BYTES: usize = 16;

/// A pseudorandom function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Prf {
    /// HMAC-SHA1 (RFC 2104).
    HmacSha1,
    /// HMAC-SHA-256 (RFC 4868).
    HmacSha256,
    /// HMAC-SHA-384 (RFC 4868).
    HmacSha384,
    /// HMAC-SHA-512 (RFC 4868).
    HmacSha512,
    /// AES-XCBC-PRF-128 (RFC 4434).
    AesXcbc,
    /// AES-CMAC-PRF-128 (RFC 4615).
    AesCmac,
}

impl Prf {
    /// Bytes of output.
    pub fn output_len(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
            Self::AesXcbc | Self::AesCmac => 16,
        }
    }
}

/// An expanded key of a [`Prf`]: zeroed when dropped, never printed.
pub struct PrfKey {
    prf: Prf,
    expanded: Expanded,
}

enum Expanded {
    HmacSha1(HmacKey<Sha1>),
    HmacSha256(HmacKey<Sha256>),
    HmacSha384(HmacKey<Sha384>),
    HmacSha512(HmacKey<Sha512>),
    CbcMac(Box<CbcMacKey>),
}

impl PrfKey {
    /// Expands `key`, which may have any length.
    pub fn new(prf: Prf, key: &[u8]) -> Self {
        let made = zeroing::in_own_frame(|| Self {
            prf,
            expanded: Expanded::new(prf, key),
        });
        zeroing::zero_stack();
        made
    }

    /// The function over `message`, its parts in order.
    pub fn compute(&self, message: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        let output = zeroing::in_own_frame(|| {
            let mut output = Zeroizing::new(vec![0; self.prf.output_len()]);
            self.expanded.sign(message, &mut output);
            output
        });
        zeroing::zero_stack();
        output
    }
}

impl Expanded {
    fn new(prf: Prf, key: &[u8]) -> Self {
        match prf {
            Prf::HmacSha1 => Self::HmacSha1(HmacKey::new(key)),
            Prf::HmacSha256 => Self::HmacSha256(HmacKey::new(key)),
            Prf::HmacSha384 => Self::HmacSha384(HmacKey::new(key)),
            Prf::HmacSha512 => Self::HmacSha512(HmacKey::new(key)),
            Prf::AesXcbc => Self::cbc_mac(CbcMacKey::xcbc, &xcbc_key(key)),
            Prf::AesCmac => Self::cbc_mac(CbcMacKey::cmac, &cmac_key(key)),
        }
    }

    fn cbc_mac(expand: fn(&[u8]) -> Option<CbcMacKey>, key: &[u8; AES_KEY_BYTES]) -> Self {
        // INVARIANT: both take every key of 16 bytes.
        Self::CbcMac(Box::new(expand(key).expect("a key of AES-128")))
    }

    fn sign(&self, message: &[&[u8]], output: &mut [u8]) {
        match self {
            Self::HmacSha1(key) => fill(output, &key.sign(message)),
            Self::HmacSha256(key) => fill(output, &key.sign(message)),
            Self::HmacSha384(key) => fill(output, &key.sign(message)),
            Self::HmacSha512(key) => fill(output, &key.sign(message)),
            Self::CbcMac(key) => fill(output, &key.sign(message)),
        }
    }
}

/// RFC 4434 2: a key that is too short ends in zeroes, one that is too long is hashed by AES-XCBC with a key of zeroes.
fn xcbc_key(key: &[u8]) -> Zeroizing<[u8; AES_KEY_BYTES]> {
    if key.len() > AES_KEY_BYTES {
        return hashed(CbcMacKey::xcbc, key);
    }
    let mut padded = Zeroizing::new([0; AES_KEY_BYTES]);
    padded[..key.len()].copy_from_slice(key);
    padded
}

/// RFC 4615 3: a key of any length but 16 bytes is hashed by AES-CMAC with a key of zeroes.
fn cmac_key(key: &[u8]) -> Zeroizing<[u8; AES_KEY_BYTES]> {
    match key.try_into() {
        Ok(key) => Zeroizing::new(key),
        Err(_) => hashed(CbcMacKey::cmac, key),
    }
}

fn hashed(expand: fn(&[u8]) -> Option<CbcMacKey>, key: &[u8]) -> Zeroizing<[u8; AES_KEY_BYTES]> {
    let zeroes = expand(&[0; AES_KEY_BYTES]).expect("a key of AES-128");
    Zeroizing::new(zeroes.sign(&[key]))
}

fn fill(output: &mut [u8], mac: &[u8]) {
    output.copy_from_slice(&mac[..output.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    /// RFC 4434 2 and RFC 4615 4 give answers for keys of 16, 10 and 18 bytes over the same message of 20 bytes.
    #[test]
    fn prfs_of_aes_take_keys_of_any_length_as_their_rfcs_print_them() {
        let message: Vec<u8> = (0..20).collect();
        let key: Vec<u8> = (0..16).chain([0xed, 0xcb]).collect();
        let cases = [
            (Prf::AesXcbc, 16, "47f51b4564966215b8985c63055ed308"),
            (Prf::AesXcbc, 10, "0fa087af7d866e7653434e602fdde835"),
            (Prf::AesXcbc, 18, "8cd3c93ae598a9803006ffb67c40e9e4"),
            (Prf::AesCmac, 18, "84a348a4a45d235babfffc0d2b4da09a"),
            (Prf::AesCmac, 16, "980ae87b5f4c9c5214f5b6a8455e4c2d"),
            (Prf::AesCmac, 10, "290d9e112edb09ee141fcf64c0b72f3d"),
        ];
        for (prf, len, expected) in cases {
            let output = PrfKey::new(prf, &key[..len]).compute(&[&message[..7], &message[7..]]);
            assert_eq!(output[..], bytes(expected), "{prf:?}, key of {len} bytes");
        }
    }

    /// RFC 4231 4.3 and 4.7, RFC 2202 3: a short key and one that is longer than a block.
    #[test]
    fn hmacs_are_not_truncated_and_take_keys_of_any_length() {
        let (key, question) = (
            b"Jefe".as_slice(),
            b"what do ya want for nothing?".as_slice(),
        );
        let (long, test) = (
            [0xaa; 131].as_slice(),
            b"Test Using Larger Than Block-Size Key - Hash Key First".as_slice(),
        );
        let cases = [
            (
                Prf::HmacSha1,
                key,
                question,
                "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            ),
            (
                Prf::HmacSha1,
                &long[..80],
                test,
                "aa4ae5e15272d00e95705637ce8a3b55ed402112",
            ),
            (
                Prf::HmacSha256,
                key,
                question,
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                Prf::HmacSha256,
                long,
                test,
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
            (
                Prf::HmacSha384,
                key,
                question,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Prf::HmacSha384,
                long,
                test,
                "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952",
            ),
            (
                Prf::HmacSha512,
                key,
                question,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
            (
                Prf::HmacSha512,
                long,
                test,
                "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f3526b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
            ),
        ];
        for (prf, key, message, expected) in cases {
            let output = PrfKey::new(prf, key).compute(&[message]);
            assert_eq!(output[..], bytes(expected), "{prf:?}");
            assert_eq!(output.len(), prf.output_len());
        }
    }
}
