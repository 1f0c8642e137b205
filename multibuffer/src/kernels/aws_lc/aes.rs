//! AES: single blocks, CBC and counter mode.

use std::ffi::{c_int, c_uint};

use aws_lc_sys::{
    AES_DECRYPT, AES_ENCRYPT, AES_KEY, AES_cbc_encrypt, AES_ctr128_encrypt, AES_encrypt,
    AES_set_decrypt_key, AES_set_encrypt_key,
};
use zeroize::Zeroize;

use super::init;

/// An expanded AES key for one direction, in the library's own layout.
pub(crate) struct AesKey {
    schedule: AES_KEY,
    direction: c_int,
}

impl AesKey {
    /// A key for encryption and for the counter modes; `None` unless it has 16, 24 or 32 bytes.
    pub(crate) fn encrypting(key: &[u8]) -> Option<Self> {
        Self::expand(key, AES_ENCRYPT, AES_set_encrypt_key)
    }

    /// A key for CBC decryption; `None` unless it has 16, 24 or 32 bytes.
    pub(crate) fn decrypting(key: &[u8]) -> Option<Self> {
        Self::expand(key, AES_DECRYPT, AES_set_decrypt_key)
    }

    fn expand(
        key: &[u8],
        direction: c_int,
        set: unsafe extern "C" fn(*const u8, c_uint, *mut AES_KEY) -> c_int,
    ) -> Option<Self> {
        if !matches!(key.len(), 16 | 24 | 32) {
            return None;
        }
        init();
        let mut schedule = AES_KEY::default();
        // SAFETY: `key` has as many bits as passed, and `schedule` is writable for the whole call.
        let status = unsafe { set(key.as_ptr(), key.len() as c_uint * 8, &raw mut schedule) };
        assert_eq!(status, 0, "AES key expansion fails for wrong lengths only");
        Some(Self {
            schedule,
            direction,
        })
    }

    /// Encrypts one block in place.
    pub(crate) fn encrypt_block(&self, block: &mut [u8; 16]) {
        debug_assert_eq!(self.direction, AES_ENCRYPT);
        let text = block.as_mut_ptr();
        // SAFETY: `text` is 16 readable and writable bytes; the function allows input and output to be the same.
        unsafe { AES_encrypt(text, text, &raw const self.schedule) }
    }

    /// CBC over `text`, whole blocks, in place, in the direction of this key.
    pub(crate) fn cbc(&self, iv: &[u8; 16], text: &mut [u8]) {
        assert!(text.len().is_multiple_of(16), "CBC text is whole blocks");
        let mut chain = *iv;
        let bytes = text.as_mut_ptr();
        // SAFETY: `bytes` is `text.len()` readable and writable bytes, whole blocks, and input and output may be the
        // same; `chain` is one block; the schedule was expanded for `direction`.
        unsafe {
            let schedule = &raw const self.schedule;
            AES_cbc_encrypt(
                bytes,
                bytes,
                text.len(),
                schedule,
                chain.as_mut_ptr(),
                self.direction,
            );
        }
    }

    /// Counter mode over `text` in place, beginning at the counter block `counter`.
    pub(crate) fn ctr(&self, counter: &[u8; 16], text: &mut [u8]) {
        debug_assert_eq!(self.direction, AES_ENCRYPT);
        let (mut counter, mut keystream, mut used) = (*counter, [0; 16], 0);
        let bytes = text.as_mut_ptr();
        // SAFETY: `bytes` is `text.len()` readable and writable bytes and input and output may be the same; the other
        // pointers are to one block each and to a number below 16.
        unsafe {
            let schedule = &raw const self.schedule;
            let (counter, keystream) = (counter.as_mut_ptr(), keystream.as_mut_ptr());
            AES_ctr128_encrypt(
                bytes,
                bytes,
                text.len(),
                schedule,
                counter,
                keystream,
                &raw mut used,
            );
        }
    }
}

impl Drop for AesKey {
    fn drop(&mut self) {
        self.schedule.rd_key.zeroize();
    }
}
