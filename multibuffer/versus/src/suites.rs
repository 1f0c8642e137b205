//! The suites, as each library calls them.

use multibuffer::{Cipher, Integrity};

/// A suite and its names.
pub struct Suite {
    pub name: &'static str,
    pub cipher: Cipher,
    /// Salt or nonce included.
    pub key_len: usize,
    pub integrity: Integrity,
    pub mac_key_len: usize,
    pub icv_len: usize,
    /// What OpenSSL and AWS-LC call the cipher.
    pub evp: &'static str,
    /// What the multi-buffer library calls cipher and hash: places in the tables of `rivals.c`; -1 if it has none.
    pub imb: (i32, i32),
}

const fn suite(
    name: &'static str,
    (cipher, key_len, evp, imb_cipher): (Cipher, usize, &'static str, i32),
    (integrity, mac_key_len, icv_len, imb_hash): (Integrity, usize, usize, i32),
) -> Suite {
    Suite {
        name,
        cipher,
        key_len,
        integrity,
        mac_key_len,
        icv_len,
        evp,
        imb: (imb_cipher, imb_hash),
    }
}

type C = (Cipher, usize, &'static str, i32);
type M = (Integrity, usize, usize, i32);

const NULL: C = (Cipher::Null, 0, "", 0);
const CBC128: C = (Cipher::AesCbc, 16, "AES-128-CBC", 1);
const CBC256: C = (Cipher::AesCbc, 32, "AES-256-CBC", 1);
const CTR128: C = (Cipher::AesCtr, 20, "AES-128-CTR", 2);
const GCM128: C = (GCM, 20, "AES-128-GCM", 3);
const GCM192: C = (GCM, 28, "AES-192-GCM", 3);
const GCM256: C = (GCM, 36, "AES-256-GCM", 3);
const CCM128: C = (CCM, 19, "AES-128-CCM", 4);
const CCM256: C = (CCM, 35, "AES-256-CCM", 4);
const CHACHA20: C = (Cipher::ChaCha20Poly1305, 36, "ChaCha20-Poly1305", 5);
const DES: C = (Cipher::DesCbc, 8, "DES-CBC", 6);
const DES3: C = (Cipher::TripleDesCbc, 24, "DES-EDE3-CBC", 7);
const CAMELLIA128: C = (Cipher::CamelliaCbc, 16, "CAMELLIA-128-CBC", -1);
const BLOWFISH128: C = (Cipher::BlowfishCbc, 16, "BF-CBC", -1);
const CAST128: C = (Cipher::Cast128Cbc, 16, "CAST5-CBC", -1);

const GCM: Cipher = Cipher::AesGcm { icv_len: 16 };
const CCM: Cipher = Cipher::AesCcm { icv_len: 16 };

const NONE: M = (Integrity::None, 0, 0, 0);
const MD5: M = (Integrity::HmacMd5, 16, 12, 1);
const SHA1: M = (Integrity::HmacSha1, 20, 12, 2);
const SHA256: M = (Integrity::HmacSha256, 32, 16, 3);
const SHA384: M = (Integrity::HmacSha384, 48, 24, 4);
const SHA512: M = (Integrity::HmacSha512, 64, 32, 5);
const XCBC: M = (Integrity::AesXcbc, 16, 12, 6);
const CMAC: M = (Integrity::AesCmac, 16, 12, 7);
const RIPEMD160: M = (Integrity::HmacRipemd160, 20, 12, -1);
/// What an AEAD does for integrity.
const BY_GCM: M = (Integrity::None, 0, 16, 8);
const BY_CCM: M = (Integrity::None, 0, 16, 9);
const BY_POLY1305: M = (Integrity::None, 0, 16, 10);

pub const SUITES: &[Suite] = &[
    suite("aes128-gcm", GCM128, BY_GCM),
    suite("aes192-gcm", GCM192, BY_GCM),
    suite("aes256-gcm", GCM256, BY_GCM),
    suite("chacha20-poly1305", CHACHA20, BY_POLY1305),
    suite("aes128-ccm", CCM128, BY_CCM),
    suite("aes256-ccm", CCM256, BY_CCM),
    suite("aes128-cbc", CBC128, NONE),
    suite("aes256-cbc", CBC256, NONE),
    suite("aes128-ctr", CTR128, NONE),
    suite("aes128-cbc+md5", CBC128, MD5),
    suite("aes128-cbc+sha1", CBC128, SHA1),
    suite("aes128-cbc+sha256", CBC128, SHA256),
    suite("aes256-cbc+sha384", CBC256, SHA384),
    suite("aes256-cbc+sha512", CBC256, SHA512),
    suite("aes128-cbc+xcbc", CBC128, XCBC),
    suite("aes128-ctr+sha1", CTR128, SHA1),
    suite("null+md5", NULL, MD5),
    suite("null+sha1", NULL, SHA1),
    suite("null+ripemd160", NULL, RIPEMD160),
    suite("null+sha256", NULL, SHA256),
    suite("null+sha384", NULL, SHA384),
    suite("null+sha512", NULL, SHA512),
    suite("null+xcbc", NULL, XCBC),
    suite("null+cmac", NULL, CMAC),
    suite("des-cbc", DES, NONE),
    suite("3des-cbc", DES3, NONE),
    suite("3des-cbc+sha1", DES3, SHA1),
    suite("camellia128-cbc", CAMELLIA128, NONE),
    suite("blowfish128-cbc", BLOWFISH128, NONE),
    suite("cast128-cbc", CAST128, NONE),
];

impl Suite {
    pub fn salt_len(&self) -> usize {
        match self.cipher {
            Cipher::AesCcm { .. } => 3,
            cipher if cipher == Cipher::AesCtr || cipher.is_aead() => 4,
            _ => 0,
        }
    }

    /// The cipher's key, and the salt behind it.
    pub fn key(&self) -> Vec<u8> {
        (0..self.key_len).map(|at| (7 * at + 1) as u8).collect()
    }

    pub fn split_key(&self) -> (Vec<u8>, Vec<u8>) {
        let mut key = self.key();
        let salt = key.split_off(self.key_len - self.salt_len());
        (key, salt)
    }

    pub fn mac_key(&self) -> Vec<u8> {
        (0..self.mac_key_len).map(|at| (5 * at + 3) as u8).collect()
    }
}
