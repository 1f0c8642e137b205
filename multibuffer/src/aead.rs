//! Ciphers that authenticate as well: AES-GCM, ChaCha20-Poly1305, AES-CCM, and GMAC, which only authenticates.
//!
//! All of them take `salt ++ iv` as nonce. The explicit IV is whatever the caller passes: with implicit IVs
//! (RFC 8750) it never stood in the packet.

mod ccm;

use std::cell::RefCell;

use crate::{
    Iv,
    compare::same,
    kernels::{
        aws_lc::{Aead, AeadAlgorithm},
        lanes::{ChaChaKey, GcmKey},
        nonce::Nonce,
    },
};

pub(crate) use ccm::{Ccm, Desk};

/// Bytes of ICV of GMAC and ChaCha20-Poly1305, which have no shorter forms in IPsec.
pub(crate) const FULL_ICV: usize = 16;

const SALT: usize = 4;

/// AES-GCM (RFC 4106) or ChaCha20-Poly1305 (RFC 7634).
pub(crate) struct Sealing {
    library: Aead,
    /// Our own GCM, where the processor has the instructions.
    gcm: Option<Box<GcmKey>>,
    /// Our own ChaCha20-Poly1305 for many packets at once, where the processor has the instructions.
    chacha: Option<Box<ChaChaKey>>,
    salt: [u8; SALT],
}

impl Sealing {
    /// Expands a key that ends in the salt; `None` if the algorithm takes none of this length.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8], icv_len: usize) -> Option<Self> {
        let (key, salt) = key.split_last_chunk()?;
        let (gcm, chacha) = match algorithm {
            AeadAlgorithm::AesGcm => (GcmKey::new(key), None),
            AeadAlgorithm::ChaCha20Poly1305 => (None, ChaChaKey::new(key)),
        };
        Some(Self {
            library: Aead::new(algorithm, key, icv_len)?,
            gcm: gcm.map(Box::new),
            chacha: chacha.map(Box::new),
            salt: *salt,
        })
    }

    /// Leaves everything to the library.
    pub(crate) fn forget_kernels(&mut self) {
        self.gcm = None;
        self.chacha = None;
    }

    /// The key and nonce of one packet for kernels that take many, if there are any for this algorithm.
    pub(crate) fn in_lanes(&self, iv: &Iv) -> Option<(&ChaChaKey, Nonce)> {
        let key = self.chacha.as_deref()?;
        Some((key, nonce(&self.salt, iv)))
    }

    /// Whether [`Sealing::in_lanes`] gives a key.
    pub(crate) fn has_lanes(&self) -> bool {
        self.chacha.is_some()
    }

    /// Encrypts `input` into `text`, which is as long, and writes its ICV.
    pub(crate) fn seal(
        &self,
        iv: &Iv,
        aad: &[u8],
        input: [&[u8]; 3],
        text: &mut [u8],
        icv: &mut [u8],
    ) {
        let nonce = nonce(&self.salt, iv);
        if let Some(gcm) = self.kernel(text.len()) {
            let tag = gcm.seal(nonce, aad, input, text);
            icv.copy_from_slice(&tag[..icv.len()]);
        } else {
            gather(input, text);
            self.library.seal(&nonce.to_bytes(), aad, text, icv);
        }
    }

    /// Decrypts `text` in place; says whether the ICV was right. A plaintext that proves false is wiped.
    #[must_use]
    pub(crate) fn open(&self, iv: &Iv, aad: &[u8], text: &mut [u8], icv: &[u8]) -> bool {
        let nonce = nonce(&self.salt, iv);
        let Some(gcm) = self.kernel(text.len()) else {
            return self.library.open(&nonce.to_bytes(), aad, text, icv);
        };
        let tag = gcm.open(nonce, aad, text);
        let genuine = same(&tag[..icv.len()], icv);
        if !genuine {
            text.fill(0);
        }
        genuine
    }

    fn kernel(&self, len: usize) -> Option<&GcmKey> {
        self.gcm.as_deref().filter(|gcm| gcm.pays_for(len))
    }
}

/// AES-GMAC (RFC 4543): GCM of an empty plaintext.
pub(crate) struct Gmac {
    library: Aead,
    /// As in [`Sealing`].
    gcm: Option<Box<GcmKey>>,
    salt: [u8; SALT],
}

impl Gmac {
    /// Expands a key that ends in the salt; `None` if AES takes none of this length.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let (key, salt) = key.split_last_chunk()?;
        Some(Self {
            library: Aead::new(AeadAlgorithm::AesGcm, key, FULL_ICV)?,
            gcm: GcmKey::new(key).map(Box::new),
            salt: *salt,
        })
    }

    /// Leaves everything to the library.
    pub(crate) fn forget_kernel(&mut self) {
        self.gcm = None;
    }

    /// Writes the ICV over `parts` in order.
    pub(crate) fn sign(&self, iv: &Iv, parts: [&[u8]; 3], icv: &mut [u8]) {
        let nonce = nonce(&self.salt, iv);
        match &self.gcm {
            Some(gcm) => icv.copy_from_slice(&gcm.sign(nonce, parts)[..icv.len()]),
            None => joined(parts, |message| {
                self.library.seal(&nonce.to_bytes(), message, &mut [], icv);
            }),
        }
    }

    /// Whether `icv` is right for `parts` in order.
    #[must_use]
    pub(crate) fn verify(&self, iv: &Iv, parts: [&[u8]; 3], icv: &[u8]) -> bool {
        let mut expected = [0; FULL_ICV];
        self.sign(iv, parts, &mut expected);
        same(&expected, icv)
    }
}

/// Copies the parts into `text`, which is as long as they are together, where a cipher then works in place.
pub(crate) fn gather(parts: [&[u8]; 3], text: &mut [u8]) {
    let mut at = 0;
    for part in parts {
        text[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

fn nonce(salt: &[u8; SALT], iv: &Iv) -> Nonce {
    let iv = iv.as_bytes().try_into();
    Nonce::new(*salt, iv.expect("the IV's length was checked"))
}

/// Runs `then` on `parts` as one range. The library takes associated data in one piece only, so several are copied
/// together into a buffer that each thread keeps.
fn joined(parts: [&[u8]; 3], then: impl FnOnce(&[u8])) {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    /// As large as a datagram can be with its headers; a buffer this large is never grown again.
    const ROOM: usize = 1 << 17;
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        buffer.reserve(ROOM);
        parts.iter().for_each(|part| buffer.extend_from_slice(part));
        then(buffer);
    });
}
