//! AWS-LC, one packet after the other, with contexts that were made beforehand.

use std::{ptr, ptr::null_mut};

use aws_lc_sys::*;
use multibuffer::{Cipher, Integrity};

use crate::{AAD, Rival, suites::Suite};

pub fn rival(suite: &Suite) -> Option<Box<dyn Rival>> {
    if suite.cipher.is_aead() {
        return aead(suite);
    }
    if suite.integrity == Integrity::AesXcbc {
        return None;
    }
    composed(suite)
}

struct Aead {
    context: Box<EVP_AEAD_CTX>,
    salt: Vec<u8>,
}

fn aead(suite: &Suite) -> Option<Box<dyn Rival>> {
    // SAFETY: each returns a pointer to a constant.
    let algorithm = unsafe {
        match (suite.cipher, suite.key_len) {
            (Cipher::AesGcm { .. }, 20) => EVP_aead_aes_128_gcm(),
            (Cipher::AesGcm { .. }, 28) => EVP_aead_aes_192_gcm(),
            (Cipher::AesGcm { .. }, 36) => EVP_aead_aes_256_gcm(),
            (Cipher::ChaCha20Poly1305, _) => EVP_aead_chacha20_poly1305(),
            _ => return None,
        }
    };
    let (key, salt) = suite.split_key();
    // SAFETY: zeros are a valid value, and the key is as long as said.
    let context = unsafe {
        let mut context: Box<EVP_AEAD_CTX> = Box::new(std::mem::zeroed());
        let done = EVP_AEAD_CTX_init(
            &mut *context,
            algorithm,
            key.as_ptr(),
            key.len(),
            16,
            null_mut(),
        );
        assert_eq!(done, 1);
        context
    };
    Some(Box::new(Aead { context, salt }))
}

impl Aead {
    fn nonce(&self, packet: &[u8]) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&packet[AAD..AAD + 8]);
        nonce
    }
}

impl Rival for Aead {
    fn name(&self) -> &'static str {
        "aws-lc"
    }

    fn seal(&mut self, packets: &mut [Vec<u8>], len: usize) {
        for packet in packets {
            let (nonce, mut tag_len) = (self.nonce(packet), 0);
            let at = packet.as_mut_ptr();
            // SAFETY: the packet holds header, IV, text and tag.
            let done = unsafe {
                let text = at.add(AAD + 8);
                EVP_AEAD_CTX_seal_scatter(
                    &*self.context,
                    text,
                    text.add(len),
                    &mut tag_len,
                    16,
                    nonce.as_ptr(),
                    12,
                    text,
                    len,
                    ptr::null(),
                    0,
                    at,
                    AAD,
                )
            };
            assert_eq!(done, 1);
        }
    }

    fn open(&mut self, packets: &mut [Vec<u8>], len: usize) -> bool {
        packets.iter_mut().all(|packet| {
            let nonce = self.nonce(packet);
            let at = packet.as_mut_ptr();
            // SAFETY: as above.
            unsafe {
                let text = at.add(AAD + 8);
                EVP_AEAD_CTX_open_gather(
                    &*self.context,
                    text,
                    nonce.as_ptr(),
                    12,
                    text,
                    len,
                    text.add(len),
                    16,
                    at,
                    AAD,
                ) == 1
            }
        })
    }
}

struct Composed {
    seal: *mut EVP_CIPHER_CTX,
    open: *mut EVP_CIPHER_CTX,
    hmac: *mut HMAC_CTX,
    cmac: *mut CMAC_CTX,
    salt: Vec<u8>,
    iv_len: usize,
    icv_len: usize,
    counter: bool,
}

fn composed(suite: &Suite) -> Option<Box<dyn Rival>> {
    let (key, salt) = suite.split_key();
    let mac_key = suite.mac_key();
    // SAFETY: each returns a pointer to a constant; contexts are made with keys of the right length.
    unsafe {
        let cipher = match suite.evp {
            "" => ptr::null(),
            "AES-128-CBC" => EVP_aes_128_cbc(),
            "AES-256-CBC" => EVP_aes_256_cbc(),
            "AES-128-CTR" => EVP_aes_128_ctr(),
            "DES-CBC" => EVP_des_cbc(),
            "DES-EDE3-CBC" => EVP_des_ede3_cbc(),
            _ => return None,
        };
        let (hmac, cmac) = match suite.integrity {
            Integrity::None => (ptr::null(), false),
            Integrity::HmacMd5 => (EVP_md5(), false),
            Integrity::HmacSha1 => (EVP_sha1(), false),
            Integrity::HmacRipemd160 => return None,
            Integrity::HmacSha256 => (EVP_sha256(), false),
            Integrity::HmacSha384 => (EVP_sha384(), false),
            Integrity::HmacSha512 => (EVP_sha512(), false),
            _ => (ptr::null(), true),
        };
        let context = |sealing: i32| {
            if cipher.is_null() {
                return null_mut();
            }
            let context = EVP_CIPHER_CTX_new();
            assert_eq!(
                EVP_CipherInit_ex(
                    context,
                    cipher,
                    null_mut(),
                    key.as_ptr(),
                    ptr::null(),
                    sealing
                ),
                1
            );
            EVP_CIPHER_CTX_set_padding(context, 0);
            context
        };
        let mut rival = Composed {
            seal: context(1),
            open: context(0),
            hmac: null_mut(),
            cmac: null_mut(),
            salt,
            iv_len: crate::ours::Ours::new(suite).iv_len(),
            icv_len: suite.icv_len,
            counter: suite.cipher == Cipher::AesCtr,
        };
        if !hmac.is_null() {
            rival.hmac = HMAC_CTX_new();
            assert_eq!(
                HMAC_Init_ex(
                    rival.hmac,
                    mac_key.as_ptr().cast(),
                    mac_key.len(),
                    hmac,
                    null_mut()
                ),
                1
            );
        }
        if cmac {
            rival.cmac = CMAC_CTX_new();
            assert_eq!(
                CMAC_Init(
                    rival.cmac,
                    mac_key.as_ptr().cast(),
                    16,
                    EVP_aes_128_cbc(),
                    null_mut()
                ),
                1
            );
        }
        Some(Box::new(rival))
    }
}

impl Composed {
    fn encipher(&self, context: *mut EVP_CIPHER_CTX, packet: &mut [u8], len: usize) {
        if context.is_null() {
            return;
        }
        let mut iv = [0; 16];
        let held = self.salt.len() + self.iv_len;
        iv[..self.salt.len()].copy_from_slice(&self.salt);
        iv[self.salt.len()..held].copy_from_slice(&packet[AAD..AAD + self.iv_len]);
        if self.counter {
            iv[15] = 1;
        }
        let text = packet[AAD + self.iv_len..][..len].as_mut_ptr();
        let mut written = 0;
        // SAFETY: the text is `len` bytes, whole blocks.
        unsafe {
            assert_eq!(
                EVP_CipherInit_ex(
                    context,
                    ptr::null(),
                    null_mut(),
                    ptr::null(),
                    iv.as_ptr(),
                    -1
                ),
                1
            );
            assert_eq!(
                EVP_CipherUpdate(context, text, &mut written, text, len as i32),
                1
            );
        }
    }

    fn mac(&self, packet: &[u8], len: usize) -> [u8; 64] {
        let (mut mac, mut written) = ([0; 64], 0);
        let message = &packet[..AAD + self.iv_len + len];
        // SAFETY: the message is as long as said, and a MAC has at most 64 bytes.
        unsafe {
            if !self.hmac.is_null() {
                HMAC_Init_ex(self.hmac, ptr::null(), 0, ptr::null(), null_mut());
                HMAC_Update(self.hmac, message.as_ptr(), message.len());
                HMAC_Final(self.hmac, mac.as_mut_ptr(), &mut written);
            } else if !self.cmac.is_null() {
                let mut written = 0;
                CMAC_Reset(self.cmac);
                CMAC_Update(self.cmac, message.as_ptr(), message.len());
                CMAC_Final(self.cmac, mac.as_mut_ptr(), &mut written);
            }
        }
        mac
    }
}

impl Rival for Composed {
    fn name(&self) -> &'static str {
        "aws-lc"
    }

    fn seal(&mut self, packets: &mut [Vec<u8>], len: usize) {
        for packet in packets {
            self.encipher(self.seal, packet, len);
            let mac = self.mac(packet, len);
            packet[AAD + self.iv_len + len..].copy_from_slice(&mac[..self.icv_len]);
        }
    }

    fn open(&mut self, packets: &mut [Vec<u8>], len: usize) -> bool {
        packets.iter_mut().all(|packet| {
            let mac = self.mac(packet, len);
            let icv = &packet[AAD + self.iv_len + len..];
            // SAFETY: both are as long.
            let genuine =
                unsafe { CRYPTO_memcmp(icv.as_ptr().cast(), mac.as_ptr().cast(), icv.len()) == 0 };
            self.encipher(self.open, packet, len);
            genuine
        })
    }
}
