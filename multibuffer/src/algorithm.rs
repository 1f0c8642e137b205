//! Which ciphers and integrity algorithms there are. Names, key lengths on the wire and identifiers belong to the
//! table in the `ipsec` crate; here is only what a kernel must know.

/// An encryption algorithm, key size left to the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cipher {
    /// No encryption (RFC 2410).
    Null,
    /// DES in CBC mode (RFC 2405). Broken; for old peers and studies.
    DesCbc,
    /// Triple DES in CBC mode (RFC 2451).
    TripleDesCbc,
    /// AES in CBC mode (RFC 3602).
    AesCbc,
    /// AES in counter mode; the last 4 key bytes are the nonce (RFC 3686).
    AesCtr,
    /// AES in Galois counter mode with an ICV of 8, 12 or 16 bytes; the last 4 key bytes are the salt (RFC 4106).
    AesGcm {
        /// Bytes of ICV: 8, 12 or 16.
        icv_len: u8,
    },
    /// AES-GCM used to authenticate only (RFC 4543): what looks like plaintext is authenticated, not encrypted.
    AesGmac,
    /// AES in counter with CBC-MAC mode; the last 3 key bytes are the salt (RFC 4309).
    AesCcm {
        /// Bytes of ICV: 8, 12 or 16.
        icv_len: u8,
    },
    /// ChaCha20-Poly1305; the last 4 key bytes are the salt (RFC 7634).
    ChaCha20Poly1305,
    /// Camellia in CBC mode (RFC 4312).
    CamelliaCbc,
    /// Blowfish in CBC mode (RFC 2451).
    BlowfishCbc,
    /// CAST-128 in CBC mode (RFC 2144, 2451).
    Cast128Cbc,
}

impl Cipher {
    /// Whether the cipher authenticates too, so that it must not be combined with an integrity algorithm.
    pub fn is_aead(self) -> bool {
        matches!(
            self,
            Self::AesGcm { .. } | Self::AesGmac | Self::AesCcm { .. } | Self::ChaCha20Poly1305
        )
    }

    /// The library that computes it where this crate has no kernel.
    pub fn library(self) -> &'static str {
        match self {
            Self::CamelliaCbc | Self::BlowfishCbc | Self::Cast128Cbc => "RustCrypto",
            _ => "AWS-LC",
        }
    }
}

/// An integrity algorithm. How many bytes of its output travel is given to [`Key::new`](crate::Key::new).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Integrity {
    /// No integrity algorithm: an AEAD cipher, or (unwisely) none at all.
    None,
    /// HMAC-MD5 (RFC 2403).
    HmacMd5,
    /// HMAC-SHA1 (RFC 2404).
    HmacSha1,
    /// HMAC-RIPEMD-160 (RFC 2857).
    HmacRipemd160,
    /// HMAC-SHA-256 (RFC 4868).
    HmacSha256,
    /// HMAC-SHA-384 (RFC 4868).
    HmacSha384,
    /// HMAC-SHA-512 (RFC 4868).
    HmacSha512,
    /// AES-XCBC-MAC (RFC 3566).
    AesXcbc,
    /// AES-CMAC (RFC 4494).
    AesCmac,
    /// AES-GMAC (RFC 4543 4), without a cipher; the last 4 key bytes are the salt, and each packet has an IV.
    AesGmac,
}

impl Integrity {
    /// Bytes of output before truncation.
    pub(crate) fn output_len(self) -> usize {
        match self {
            Self::None => 0,
            Self::HmacMd5 | Self::AesXcbc | Self::AesCmac | Self::AesGmac => 16,
            Self::HmacSha1 | Self::HmacRipemd160 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }
}
