//! An expanded key: cipher and integrity of one security association, ready to use.

use std::{error::Error, fmt, ptr};

use crate::{
    Cipher, Integrity,
    aead::{AeadKey, Ccm, FULL_ICV_BYTES, Gmac},
    batch::size::WINDOW_JOBS,
    cbc::CipherKey,
    kernels::{aws_lc::AeadAlgorithm, prefetch},
    mac::MacKey,
};

/// The shortest ICV that is accepted (RFC 4106, 4309: 8 bytes; HMACs in IPsec have 12 and more).
const MIN_ICV_BYTES: usize = 8;

/// The expanded keys of one security association. Shared by all threads, zeroed when dropped, never printed.
// The order in memory is fixed: the fields that are read first lie beside the first round keys.
#[repr(C)]
pub struct Key {
    cipher: Cipher,
    cipher_key_len: u8,
    integrity: Integrity,
    icv_len: u8,
    by_library: bool,
    pub(crate) transform: Transform,
}

/// How a packet is protected: by one algorithm that does both, or encrypt-then-MAC.
pub(crate) enum Transform {
    Aead(AeadKey),
    Ccm(Ccm),
    Gmac(Gmac),
    EncryptThenMac { cipher: CipherKey, mac: MacKey },
}

/// Why key bytes do not make a [`Key`]. It contains none of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// The cipher takes no key of this many bytes (salt or nonce included).
    CipherKeyLength(usize),
    /// The integrity algorithm takes no key of this many bytes.
    IntegrityKeyLength(usize),
    /// An AEAD cipher was combined with an integrity algorithm.
    AeadWithIntegrity,
    /// AES-GMAC as an integrity algorithm was combined with a cipher.
    GmacWithCipher,
    /// The ICV is longer than the algorithm's output, or shorter than 8 bytes; without integrity it must be 0, and
    /// an AEAD's is the one that the cipher names.
    IcvLength(usize),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CipherKeyLength(len) => write!(f, "the cipher takes no key of {len} bytes"),
            Self::IntegrityKeyLength(len) => {
                write!(f, "the integrity algorithm takes no key of {len} bytes")
            }
            Self::AeadWithIntegrity => write!(
                f,
                "the cipher authenticates by itself and takes no other algorithm for it"
            ),
            Self::GmacWithCipher => {
                write!(f, "AES-GMAC as an integrity algorithm takes no cipher")
            }
            Self::IcvLength(len) => write!(f, "the algorithm gives no ICV of {len} bytes"),
        }
    }
}

impl Error for KeyError {}

impl Key {
    /// Expands the keys. `cipher_key` includes the trailing salt or nonce of counter modes. `icv_len` is the
    /// number of ICV bytes on the wire: the truncation of `integrity`, the AEAD's own length, or 0 for none.
    pub fn new(
        cipher: Cipher,
        cipher_key: &[u8],
        integrity: Integrity,
        integrity_key: &[u8],
        icv_len: usize,
    ) -> Result<Self, KeyError> {
        let keys = (cipher_key, integrity_key);
        Self::expand(cipher, integrity, keys, icv_len, false)
    }

    fn expand(
        cipher: Cipher,
        integrity: Integrity,
        (cipher_key, integrity_key): (&[u8], &[u8]),
        icv_len: usize,
        by_library: bool,
    ) -> Result<Self, KeyError> {
        if cipher.is_aead() && integrity != Integrity::None {
            return Err(KeyError::AeadWithIntegrity);
        }
        if !icv_fits(cipher, integrity, icv_len) {
            return Err(KeyError::IcvLength(icv_len));
        }
        let bad_integrity_key = KeyError::IntegrityKeyLength(integrity_key.len());
        let transform = if integrity == Integrity::AesGmac {
            if cipher != Cipher::Null || !cipher_key.is_empty() {
                return Err(KeyError::GmacWithCipher);
            }
            let key = Gmac::new(integrity_key, by_library);
            key.map(Transform::Gmac).ok_or(bad_integrity_key)?
        } else {
            let mac = MacKey::new(integrity, integrity_key).ok_or(bad_integrity_key)?;
            Transform::new(cipher, cipher_key, mac, icv_len, by_library)
                .ok_or(KeyError::CipherKeyLength(cipher_key.len()))?
        };
        Ok(Self {
            cipher,
            cipher_key_len: cipher_key.len() as u8,
            integrity,
            icv_len: icv_len as u8,
            by_library,
            transform,
        })
    }

    /// The same key for the libraries only, one packet after the other, without the kernels of this crate: the
    /// reference for measurements, and the fallback where a kernel is suspected.
    pub fn by_library(
        cipher: Cipher,
        cipher_key: &[u8],
        integrity: Integrity,
        integrity_key: &[u8],
        icv_len: usize,
    ) -> Result<Self, KeyError> {
        let keys = (cipher_key, integrity_key);
        let mut key = Self::expand(cipher, integrity, keys, icv_len, true)?;
        key.transform.use_library_only();
        Ok(key)
    }

    /// Prefetches what is read before any kernel begins. The kernels' callers prefetch the rest.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(&self.cipher);
    }

    /// Prefetches what a packet of `len` bytes needs of the key. Where many keys are in use, none is in a cache.
    #[inline]
    pub(crate) fn prefetch_for(&self, len: usize) {
        match &self.transform {
            Transform::Aead(key) => key.prefetch_for(len),
            Transform::Ccm(_) | Transform::Gmac(_) | Transform::EncryptThenMac { .. } => {
                prefetch(self);
            }
        }
    }

    /// How many jobs of this key are sealed fastest together, as long as their bytes stay in a cache: 64 fill the lanes
    /// of every kernel but bitsliced DES, of which a pass takes the same time for one packet and for 256.
    pub fn jobs_at_once(&self) -> usize {
        match &self.transform {
            Transform::EncryptThenMac { cipher, .. } if cipher.prefers_many() => WINDOW_JOBS,
            _ => 64,
        }
    }

    /// Bytes of explicit IV in each packet.
    pub fn iv_len(&self) -> usize {
        match self.cipher {
            Cipher::Null if self.integrity == Integrity::AesGmac => 8,
            Cipher::Null => 0,
            Cipher::AesCbc | Cipher::CamelliaCbc => 16,
            Cipher::DesCbc | Cipher::TripleDesCbc | Cipher::BlowfishCbc | Cipher::Cast128Cbc => 8,
            Cipher::AesCtr | Cipher::AesGcm { .. } | Cipher::AesGmac => 8,
            Cipher::AesCcm { .. } | Cipher::ChaCha20Poly1305 => 8,
        }
    }

    /// Plaintext is padded to a multiple of this many bytes (1 for stream modes).
    pub fn block_len(&self) -> usize {
        match self.cipher {
            Cipher::AesCbc | Cipher::CamelliaCbc => 16,
            Cipher::DesCbc | Cipher::TripleDesCbc | Cipher::BlowfishCbc | Cipher::Cast128Cbc => 8,
            Cipher::Null | Cipher::AesCtr | Cipher::AesGcm { .. } | Cipher::AesGmac => 1,
            Cipher::AesCcm { .. } | Cipher::ChaCha20Poly1305 => 1,
        }
    }

    /// Bytes of ICV behind the ciphertext.
    pub fn icv_len(&self) -> usize {
        usize::from(self.icv_len)
    }

    /// Whether the explicit IV must be a never-repeating counter rather than unpredictable.
    pub fn iv_is_counter(&self) -> bool {
        self.cipher == Cipher::AesCtr
            || self.cipher.is_aead()
            || self.integrity == Integrity::AesGmac
    }

    /// Whether both can go through one kernel together: the same algorithms with the same length of key.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let suite = |key: &Self| {
            (
                key.cipher,
                key.cipher_key_len,
                key.integrity,
                key.by_library,
            )
        };
        ptr::eq(self, other) || suite(self) == suite(other)
    }

    /// Whether kernels copy keys to the stack: into their lanes, or because there are too few registers. Those of
    /// AES-GCM read every round key in place, and NULL without integrity has no key.
    pub(crate) fn leaves_copies(&self) -> bool {
        match &self.transform {
            Transform::Aead(key) => !key.uses_own_gcm_only(),
            Transform::Ccm(_) | Transform::Gmac(_) => true,
            Transform::EncryptThenMac { .. } => {
                (self.cipher, self.integrity) != (Cipher::Null, Integrity::None)
            }
        }
    }

    /// Whether the libraries alone compute with this key, packet by packet.
    pub(crate) fn is_by_library(&self) -> bool {
        self.by_library
    }

    /// The cipher.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The integrity algorithm.
    pub fn integrity(&self) -> Integrity {
        self.integrity
    }
}

impl Transform {
    /// `None` if the cipher takes no key of this length.
    fn new(
        cipher: Cipher,
        key: &[u8],
        mac: MacKey,
        icv_len: usize,
        by_library: bool,
    ) -> Option<Self> {
        let aead = |algorithm| {
            let key = AeadKey::new(algorithm, key, icv_len, by_library);
            key.map(Self::Aead)
        };
        let cipher = match cipher {
            Cipher::AesGcm { .. } => return aead(AeadAlgorithm::AesGcm),
            Cipher::ChaCha20Poly1305 => return aead(AeadAlgorithm::ChaCha20Poly1305),
            Cipher::AesCcm { .. } => return Ccm::new(key, icv_len).map(Self::Ccm),
            Cipher::AesGmac => return Gmac::new(key, by_library).map(Self::Gmac),
            Cipher::Null => CipherKey::null(key)?,
            Cipher::DesCbc => CipherKey::des(key)?,
            Cipher::TripleDesCbc => CipherKey::triple_des(key)?,
            Cipher::AesCbc => CipherKey::aes_cbc(key)?,
            Cipher::AesCtr => CipherKey::aes_ctr(key)?,
            Cipher::CamelliaCbc => CipherKey::camellia(key)?,
            Cipher::BlowfishCbc => CipherKey::blowfish(key)?,
            Cipher::Cast128Cbc => CipherKey::cast128(key)?,
        };
        Some(Self::EncryptThenMac { cipher, mac })
    }

    /// Disables this crate's kernels for single packets, so that the libraries compute.
    fn use_library_only(&mut self) {
        match self {
            // Made without one.
            Self::Aead(_) | Self::Gmac(_) => {}
            Self::Ccm(key) => key.use_library_only(),
            Self::EncryptThenMac { cipher, .. } => cipher.use_library_only(),
        }
    }
}

fn icv_fits(cipher: Cipher, integrity: Integrity, icv_len: usize) -> bool {
    match cipher {
        Cipher::AesGcm { icv_len: named } | Cipher::AesCcm { icv_len: named } => {
            matches!(icv_len, 8 | 12 | 16) && icv_len == usize::from(named)
        }
        Cipher::ChaCha20Poly1305 | Cipher::AesGmac => icv_len == FULL_ICV_BYTES,
        _ if integrity == Integrity::None => icv_len == 0,
        // RFC 4543 3.4: never truncated.
        _ if integrity == Integrity::AesGmac => icv_len == FULL_ICV_BYTES,
        _ => (MIN_ICV_BYTES..=integrity.output_len()).contains(&icv_len),
    }
}
