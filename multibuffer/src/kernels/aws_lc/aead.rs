//! AES-GCM with any tag length, and ChaCha20-Poly1305.

use std::{mem::MaybeUninit, ptr};

use aws_lc_sys::{
    EVP_AEAD, EVP_AEAD_CTX, EVP_AEAD_CTX_cleanup, EVP_AEAD_CTX_init, EVP_AEAD_CTX_open_gather,
    EVP_AEAD_CTX_seal_scatter, EVP_aead_aes_128_gcm, EVP_aead_aes_192_gcm, EVP_aead_aes_256_gcm,
    EVP_aead_chacha20_poly1305,
};
use zeroize::Zeroize;

use super::init;

/// Which AEAD; AES takes its size from the key.
#[derive(Clone, Copy)]
pub(crate) enum AeadAlgorithm {
    AesGcm,
    ChaCha20Poly1305,
}

impl AeadAlgorithm {
    fn descriptor(self, key_len: usize) -> Option<*const EVP_AEAD> {
        // SAFETY: each of these returns a pointer to a constant.
        unsafe {
            match (self, key_len) {
                (Self::AesGcm, 16) => Some(EVP_aead_aes_128_gcm()),
                (Self::AesGcm, 24) => Some(EVP_aead_aes_192_gcm()),
                (Self::AesGcm, 32) => Some(EVP_aead_aes_256_gcm()),
                (Self::ChaCha20Poly1305, 32) => Some(EVP_aead_chacha20_poly1305()),
                _ => None,
            }
        }
    }
}

/// An expanded AEAD key with 12-byte nonces and a fixed tag length.
///
/// INVARIANT: the context is initialised and never moves; the library keeps an alignment inside it.
pub(crate) struct Aead {
    context: Box<EVP_AEAD_CTX>,
}

// SAFETY: after `new` the context is only read until `drop`: the library's seal and open take it by pointer to const
// and its documentation allows concurrent calls on one context.
unsafe impl Send for Aead {}
// SAFETY: as above.
unsafe impl Sync for Aead {}

impl Aead {
    /// Expands `key`; `None` if the algorithm takes none of this length. Tags are `tag_len` bytes, at most 16.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8], tag_len: usize) -> Option<Self> {
        let descriptor = algorithm.descriptor(key.len())?;
        init();
        let mut context = Box::new(MaybeUninit::<EVP_AEAD_CTX>::zeroed());
        // SAFETY: the context is writable memory, `key` is readable for its length, no engine is named.
        let status = unsafe {
            let engine = ptr::null_mut();
            EVP_AEAD_CTX_init(
                context.as_mut_ptr(),
                descriptor,
                key.as_ptr(),
                key.len(),
                tag_len,
                engine,
            )
        };
        assert_eq!(
            status, 1,
            "an AEAD key of the right length and a tag of at most 16 bytes are accepted"
        );
        // SAFETY: the context was zeroed, a valid value for plain data, and then initialised.
        let context = unsafe { context.assume_init() };
        Some(Self { context })
    }

    /// Encrypts `text` in place and writes the tag, exactly as long as the key was made for.
    pub(crate) fn seal(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8], tag: &mut [u8]) {
        let mut written = 0;
        let bytes = text.as_mut_ptr();
        // SAFETY: every pointer comes from a slice with the length beside it, input and output are the same range as
        // the library allows, and `context` is initialised.
        let status = unsafe {
            EVP_AEAD_CTX_seal_scatter(
                &raw const *self.context,
                bytes,
                tag.as_mut_ptr(),
                &raw mut written,
                tag.len(),
                nonce.as_ptr(),
                nonce.len(),
                bytes,
                text.len(),
                ptr::null(),
                0,
                aad.as_ptr(),
                aad.len(),
            )
        };
        assert!(
            status == 1 && written == tag.len(),
            "sealing fails for wrong lengths only"
        );
    }

    /// Checks `tag` over `aad` and `text`, and decrypts `text` in place. Returns whether the tag was correct.
    #[must_use]
    pub(crate) fn open(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8], tag: &[u8]) -> bool {
        let bytes = text.as_mut_ptr();
        // SAFETY: as in `seal`.
        let status = unsafe {
            EVP_AEAD_CTX_open_gather(
                &raw const *self.context,
                bytes,
                nonce.as_ptr(),
                nonce.len(),
                bytes,
                text.len(),
                tag.as_ptr(),
                tag.len(),
                aad.as_ptr(),
                aad.len(),
            )
        };
        status == 1
    }
}

impl Drop for Aead {
    fn drop(&mut self) {
        // SAFETY: the context is initialised and not used again. Cleaning leaves the key bytes in place, and the
        // state is a plain array that any bytes may overwrite.
        unsafe {
            EVP_AEAD_CTX_cleanup(&raw mut *self.context);
            self.context.state.opaque.zeroize();
        }
    }
}
