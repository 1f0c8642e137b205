//! DES and Triple DES in CBC mode.

use std::ffi::c_int;

use aws_lc_sys::{
    DES_DECRYPT, DES_ENCRYPT, DES_cblock, DES_ede3_cbc_encrypt, DES_key_schedule, DES_ncbc_encrypt,
    DES_set_key_unchecked,
};
use zeroize::Zeroize;

use super::init;

/// An expanded DES key. Parity bits are ignored, weak keys taken: a peer may insist on either.
pub(crate) struct DesKey(DES_key_schedule);

impl DesKey {
    /// Expands 8 key bytes.
    pub(crate) fn new(key: &[u8; 8]) -> Self {
        init();
        let mut schedule = DES_key_schedule {
            subkeys: [[0; 2]; 16],
        };
        let mut bytes = DES_cblock { bytes: *key };
        // SAFETY: both pointers are valid for the whole call.
        unsafe { DES_set_key_unchecked(&raw const bytes, &raw mut schedule) };
        bytes.bytes.zeroize();
        Self(schedule)
    }

    /// Encrypts `text`, whole blocks, in place.
    pub(crate) fn cbc_encrypt(&self, iv: &[u8; 8], text: &mut [u8]) {
        self.cbc(iv, text, DES_ENCRYPT);
    }

    /// Decrypts `text`, whole blocks, in place.
    pub(crate) fn cbc_decrypt(&self, iv: &[u8; 8], text: &mut [u8]) {
        self.cbc(iv, text, DES_DECRYPT);
    }

    fn cbc(&self, iv: &[u8; 8], text: &mut [u8], direction: c_int) {
        assert!(text.len().is_multiple_of(8), "CBC text is whole blocks");
        let mut chain = DES_cblock { bytes: *iv };
        let bytes = text.as_mut_ptr();
        // SAFETY: `bytes` is `text.len()` readable and writable bytes, whole blocks, each read before it is written;
        // the schedule and the chaining block live through the call.
        unsafe {
            DES_ncbc_encrypt(
                bytes,
                bytes,
                text.len(),
                &raw const self.0,
                &raw mut chain,
                direction,
            );
        }
    }
}

impl Drop for DesKey {
    fn drop(&mut self) {
        self.0.subkeys.zeroize();
    }
}

/// Three expanded DES keys: encrypt with the first, decrypt with the second, encrypt with the third.
pub(crate) struct TripleDesKey([DesKey; 3]);

impl TripleDesKey {
    /// Expands 24 key bytes.
    pub(crate) fn new(key: &[u8; 24]) -> Self {
        let (thirds, _) = key.as_chunks::<8>();
        Self([
            DesKey::new(&thirds[0]),
            DesKey::new(&thirds[1]),
            DesKey::new(&thirds[2]),
        ])
    }

    /// Encrypts `text`, whole blocks, in place.
    pub(crate) fn cbc_encrypt(&self, iv: &[u8; 8], text: &mut [u8]) {
        self.cbc(iv, text, DES_ENCRYPT);
    }

    /// Decrypts `text`, whole blocks, in place.
    pub(crate) fn cbc_decrypt(&self, iv: &[u8; 8], text: &mut [u8]) {
        self.cbc(iv, text, DES_DECRYPT);
    }

    fn cbc(&self, iv: &[u8; 8], text: &mut [u8], direction: c_int) {
        assert!(text.len().is_multiple_of(8), "CBC text is whole blocks");
        let mut chain = DES_cblock { bytes: *iv };
        let bytes = text.as_mut_ptr();
        let [first, second, third] = self.0.each_ref().map(|key| &raw const key.0);
        // SAFETY: `bytes` is `text.len()` readable and writable bytes, whole blocks, each read before it is written;
        // the schedules and the chaining block live through the call.
        unsafe {
            let chain = &raw mut chain;
            DES_ede3_cbc_encrypt(
                bytes,
                bytes,
                text.len(),
                first,
                second,
                third,
                chain,
                direction,
            );
        }
    }
}
