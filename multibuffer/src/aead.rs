//! Ciphers that authenticate as well: AES-GCM, ChaCha20-Poly1305, AES-CCM, and GMAC, which only authenticates.
//!
//! All of them take `salt ++ iv` as nonce. The explicit IV is whatever the caller passes: with implicit IVs
//! (RFC 8750) it never stood in the packet.

mod ccm;

use std::cell::RefCell;

use crate::{
    Iv,
    constant_time::constant_time_eq,
    copy::copy,
    kernels::{
        aws_lc::{Aead, AeadAlgorithm},
        lanes::{self, ChaChaKey, GcmKey},
        nonce::Nonce,
    },
};

pub(crate) use ccm::{Ccm, MacScratch};

/// Bytes of ICV of GMAC and ChaCha20-Poly1305, which have no shorter forms in IPsec.
pub(crate) const FULL_ICV_BYTES: usize = 16;

const SALT_BYTES: usize = 4;

/// AES-GCM (RFC 4106) or ChaCha20-Poly1305 (RFC 7634).
pub(crate) struct AeadKey {
    implementation: Implementation,
    salt: [u8; SALT_BYTES],
}

impl AeadKey {
    /// Expands a key that ends in the salt; `None` if the algorithm takes none of this length. With `by_library` the
    /// library computes, otherwise the fastest implementation.
    pub(crate) fn new(
        algorithm: AeadAlgorithm,
        key: &[u8],
        icv_len: usize,
        by_library: bool,
    ) -> Option<Self> {
        let (key, salt) = key.split_last_chunk()?;
        Some(Self {
            implementation: Implementation::new(algorithm, key, icv_len, by_library)?,
            salt: *salt,
        })
    }

    /// The key and nonce of one packet for kernels that take many, if there are any for this algorithm.
    pub(crate) fn in_lanes(&self, iv: &Iv) -> Option<(&ChaChaKey, Nonce)> {
        match &self.implementation {
            Implementation::ChaChaLanes(key, _) => Some((key, nonce(&self.salt, iv))),
            Implementation::OwnGcm(_)
            | Implementation::OwnGcmOrLibrary(..)
            | Implementation::Library(_) => None,
        }
    }

    /// The longest text for which those kernels are used, if there are any.
    pub(crate) fn max_lane_bytes(&self) -> Option<usize> {
        match &self.implementation {
            Implementation::ChaChaLanes(key, _) => Some(key.max_bytes()),
            Implementation::OwnGcm(_)
            | Implementation::OwnGcmOrLibrary(..)
            | Implementation::Library(_) => None,
        }
    }

    /// Whether this crate's GCM computes for packets of every length.
    pub(crate) fn uses_own_gcm_only(&self) -> bool {
        matches!(self.implementation, Implementation::OwnGcm(_))
    }

    /// Prefetches what a packet of `len` bytes needs of the key.
    #[inline]
    pub(crate) fn prefetch_for(&self, len: usize) {
        if let Implementation::OwnGcm(gcm) = &self.implementation {
            gcm.prefetch_for(len);
        }
    }

    /// Encrypts `input` into `text`, which is as long, and writes its ICV.
    #[inline]
    pub(crate) fn seal(
        &self,
        iv: &Iv,
        aad: &[u8],
        input: [&[u8]; 3],
        text: &mut [u8],
        icv: &mut [u8],
    ) {
        let nonce = nonce(&self.salt, iv);
        match self.implementation.for_len(text.len()) {
            Ok(gcm) => {
                let tag = gcm.seal(nonce, aad, input, text);
                copy(&tag[..icv.len()], icv);
            }
            Err(library) => {
                gather(input, text);
                library.seal(&nonce.to_bytes(), aad, text, icv);
            }
        }
    }

    /// Decrypts `text` in place; returns whether the ICV was right. If not, the plaintext is zeroed.
    #[must_use]
    pub(crate) fn open(&self, iv: &Iv, aad: &[u8], text: &mut [u8], icv: &[u8]) -> bool {
        let nonce = nonce(&self.salt, iv);
        let gcm = match self.implementation.for_len(text.len()) {
            Ok(gcm) => gcm,
            Err(library) => return library.open(&nonce.to_bytes(), aad, text, icv),
        };
        let tag = gcm.open(nonce, aad, text);
        let genuine = constant_time_eq(&tag[..icv.len()], icv);
        if !genuine {
            text.fill(0);
        }
        genuine
    }
}

/// AES-GMAC (RFC 4543): GCM of an empty plaintext.
pub(crate) struct Gmac {
    implementation: Implementation,
    salt: [u8; SALT_BYTES],
}

impl Gmac {
    /// Expands a key that ends in the salt; `None` if AES takes none of this length. With `by_library` the library
    /// computes, otherwise the fastest implementation.
    pub(crate) fn new(key: &[u8], by_library: bool) -> Option<Self> {
        let (key, salt) = key.split_last_chunk()?;
        Some(Self {
            implementation: Implementation::new(
                AeadAlgorithm::AesGcm,
                key,
                FULL_ICV_BYTES,
                by_library,
            )?,
            salt: *salt,
        })
    }

    /// Writes the ICV over `parts` in order.
    pub(crate) fn sign(&self, iv: &Iv, parts: [&[u8]; 3], icv: &mut [u8]) {
        let nonce = nonce(&self.salt, iv);
        match self.implementation.for_signing() {
            Ok(gcm) => icv.copy_from_slice(&gcm.sign(nonce, parts)[..icv.len()]),
            Err(library) => joined(parts, |message| {
                library.seal(&nonce.to_bytes(), message, &mut [], icv);
            }),
        }
    }

    /// Whether `icv` is right for `parts` in order.
    #[must_use]
    pub(crate) fn verify(&self, iv: &Iv, parts: [&[u8]; 3], icv: &[u8]) -> bool {
        let mut expected = [0; FULL_ICV_BYTES];
        self.sign(iv, parts, &mut expected);
        constant_time_eq(&expected, icv)
    }
}

/// Which implementation computes. A gateway may hold tens of thousands of keys, none of which is in a cache when its
/// packet comes: so only what is used is stored, and the keys of this crate's GCM lie in the key itself, where they can
/// be prefetched.
#[expect(
    clippy::large_enum_variant,
    reason = "a pointer would be one more thing to wait for"
)]
enum Implementation {
    /// This crate's GCM, for packets of every length.
    OwnGcm(GcmKey),
    /// This crate's GCM for short packets and for signing, the library for long ones.
    OwnGcmOrLibrary(Box<GcmKey>, Aead),
    /// This crate's ChaCha20-Poly1305 for many packets at once, the library for a single one.
    ChaChaLanes(Box<ChaChaKey>, Aead),
    Library(Aead),
}

impl Implementation {
    fn new(algorithm: AeadAlgorithm, key: &[u8], icv_len: usize, by_library: bool) -> Option<Self> {
        let library = || Aead::new(algorithm, key, icv_len);
        if by_library {
            return library().map(Self::Library);
        }
        let (gcm, chacha) = match algorithm {
            AeadAlgorithm::AesGcm => (lanes::gcm_key(key), None),
            AeadAlgorithm::ChaCha20Poly1305 => (None, lanes::chacha_key(key)),
        };
        Some(match (gcm, chacha) {
            (Some(gcm), _) if gcm.is_faster_for(usize::MAX) => Self::OwnGcm(gcm),
            (Some(gcm), _) => Self::OwnGcmOrLibrary(Box::new(gcm), library()?),
            (None, Some(chacha)) => Self::ChaChaLanes(Box::new(chacha), library()?),
            (None, None) => Self::Library(library()?),
        })
    }

    fn for_len(&self, len: usize) -> Result<&GcmKey, &Aead> {
        match self {
            Self::OwnGcm(gcm) => Ok(gcm),
            Self::OwnGcmOrLibrary(gcm, _) if gcm.is_faster_for(len) => Ok(gcm),
            Self::OwnGcmOrLibrary(_, library)
            | Self::ChaChaLanes(_, library)
            | Self::Library(library) => Err(library),
        }
    }

    fn for_signing(&self) -> Result<&GcmKey, &Aead> {
        match self {
            Self::OwnGcm(gcm) => Ok(gcm),
            Self::OwnGcmOrLibrary(gcm, _) => Ok(gcm),
            Self::ChaChaLanes(_, library) | Self::Library(library) => Err(library),
        }
    }
}

/// Copies the parts into `text`, which is as long as they are together, where a cipher then works in place.
pub(crate) fn gather(parts: [&[u8]; 3], text: &mut [u8]) {
    let mut at = 0;
    for part in parts {
        copy(part, &mut text[at..at + part.len()]);
        at += part.len();
    }
}

fn nonce(salt: &[u8; SALT_BYTES], iv: &Iv) -> Nonce {
    let iv = iv.as_bytes().try_into();
    Nonce::new(*salt, iv.expect("the IV's length was checked"))
}

/// Runs `then` on `parts` as one range. The library takes associated data in one piece only, so several are copied
/// together into a buffer that each thread keeps.
fn joined(parts: [&[u8]; 3], then: impl FnOnce(&[u8])) {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    /// As large as a datagram with its headers; a buffer of this size never grows again.
    const JOIN_BUFFER_BYTES: usize = 1 << 17;
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        buffer.reserve(JOIN_BUFFER_BYTES);
        parts.iter().for_each(|part| buffer.extend_from_slice(part));
        then(buffer);
    });
}
