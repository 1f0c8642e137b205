//! AWS-LC, one packet after the other, with contexts that were made beforehand.

use std::{ptr, ptr::null_mut};

use aws_lc_sys::*;
use multibuffer::{Cipher, Integrity};

use crate::{AAD, Rival, suites::Suite};

pub fn rival(suite: &Suite) -> Option<Box<dyn Rival>> {
    if suite.cipher.is_aead() {
        return aead(suite);
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
    // SAFETY: zeros are a valid value, and the key has the length passed.
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
    mac: Mac,
    salt: Vec<u8>,
    iv_len: usize,
    icv_len: usize,
    counter: bool,
}

fn composed(suite: &Suite) -> Option<Box<dyn Rival>> {
    let (key, salt) = suite.split_key();
    let cipher = cipher(suite.evp)?;
    Some(Box::new(Composed {
        seal: context(cipher, &key, 1),
        open: context(cipher, &key, 0),
        mac: Mac::new(suite)?,
        salt,
        iv_len: crate::ours::Ours::new(suite).iv_len(),
        icv_len: suite.icv_len,
        counter: suite.cipher == Cipher::AesCtr,
    }))
}

/// The cipher of this name, null for none; `None` if this library has it not.
fn cipher(name: &str) -> Option<*const EVP_CIPHER> {
    // SAFETY: each returns a pointer to a constant.
    Some(unsafe {
        match name {
            "" => ptr::null(),
            "AES-128-CBC" => EVP_aes_128_cbc(),
            "AES-256-CBC" => EVP_aes_256_cbc(),
            "AES-128-CTR" => EVP_aes_128_ctr(),
            "DES-CBC" => EVP_des_cbc(),
            "DES-EDE3-CBC" => EVP_des_ede3_cbc(),
            _ => return None,
        }
    })
}

/// A context that encrypts if `sealing` is 1, decrypts if it is 0.
fn context(cipher: *const EVP_CIPHER, key: &[u8], sealing: i32) -> *mut EVP_CIPHER_CTX {
    if cipher.is_null() {
        return null_mut();
    }
    let (key, no_iv) = (key.as_ptr(), ptr::null());
    // SAFETY: the key has the length that is part of the cipher's name.
    unsafe {
        let context = EVP_CIPHER_CTX_new();
        let done = EVP_CipherInit_ex(context, cipher, null_mut(), key, no_iv, sealing);
        assert_eq!(done, 1);
        EVP_CIPHER_CTX_set_padding(context, 0);
        context
    }
}

/// A context of what computes the ICV.
enum Mac {
    None,
    Hmac(*mut HMAC_CTX),
    Cmac(*mut CMAC_CTX),
}

impl Mac {
    /// `None` if this library has not the algorithm.
    fn new(suite: &Suite) -> Option<Self> {
        let key = suite.mac_key();
        // SAFETY: each returns a pointer to a constant.
        let digest = unsafe {
            match suite.integrity {
                Integrity::None => return Some(Self::None),
                Integrity::HmacMd5 => EVP_md5(),
                Integrity::HmacSha1 => EVP_sha1(),
                Integrity::HmacSha256 => EVP_sha256(),
                Integrity::HmacSha384 => EVP_sha384(),
                Integrity::HmacSha512 => EVP_sha512(),
                Integrity::AesCmac => return Some(Self::cmac(&key)),
                Integrity::HmacRipemd160 | Integrity::AesXcbc | Integrity::AesGmac => return None,
            }
        };
        Some(Self::hmac(digest, &key))
    }

    fn hmac(digest: *const EVP_MD, key: &[u8]) -> Self {
        // SAFETY: the key has the length passed.
        unsafe {
            let context = HMAC_CTX_new();
            let key_at = key.as_ptr().cast();
            let done = HMAC_Init_ex(context, key_at, key.len(), digest, null_mut());
            assert_eq!(done, 1);
            Self::Hmac(context)
        }
    }

    fn cmac(key: &[u8]) -> Self {
        // SAFETY: the key has the length passed.
        unsafe {
            let context = CMAC_CTX_new();
            let (key_at, cipher) = (key.as_ptr().cast(), EVP_aes_128_cbc());
            let done = CMAC_Init(context, key_at, key.len(), cipher, null_mut());
            assert_eq!(done, 1);
            Self::Cmac(context)
        }
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut mac = [0; 64];
        let (message, len, out) = (message.as_ptr(), message.len(), mac.as_mut_ptr());
        // SAFETY: the message has the length passed, and a MAC has at most 64 bytes.
        unsafe {
            match *self {
                Self::None => {}
                Self::Hmac(context) => {
                    HMAC_Init_ex(context, ptr::null(), 0, ptr::null(), null_mut());
                    HMAC_Update(context, message, len);
                    HMAC_Final(context, out, &mut 0);
                }
                Self::Cmac(context) => {
                    CMAC_Reset(context);
                    CMAC_Update(context, message, len);
                    CMAC_Final(context, out, &mut 0);
                }
            }
        }
        mac
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
        let (same, key, iv) = (ptr::null(), ptr::null(), iv.as_ptr());
        // SAFETY: the text is `len` bytes, whole blocks.
        unsafe {
            let done = EVP_CipherInit_ex(context, same, null_mut(), key, iv, -1);
            assert_eq!(done, 1);
            let done = EVP_CipherUpdate(context, text, &mut 0, text, len as i32);
            assert_eq!(done, 1);
        }
    }

    fn mac(&self, packet: &[u8], len: usize) -> [u8; 64] {
        self.mac.sign(&packet[..AAD + self.iv_len + len])
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
