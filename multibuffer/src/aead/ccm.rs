//! AES in counter with CBC-MAC mode (RFC 3610) as ESP uses it (RFC 4309): an 11-byte nonce, a 4-byte length.

use crate::{
    Iv,
    compare::same,
    kernels::{aws_lc::AesKey, scalar::xor},
};

const SALT: usize = 3;

/// An expanded AES-CCM key.
pub(crate) struct Ccm {
    aes: AesKey,
    salt: [u8; SALT],
    icv_len: u8,
}

impl Ccm {
    /// Expands a key that ends in the salt; `None` if AES takes none of this length.
    pub(crate) fn new(key: &[u8], icv_len: usize) -> Option<Self> {
        let (key, salt) = key.split_last_chunk()?;
        Some(Self {
            aes: AesKey::encrypting(key)?,
            salt: *salt,
            icv_len: icv_len as u8,
        })
    }

    /// Encrypts `text` in place and writes its ICV.
    pub(crate) fn seal(&self, iv: &Iv, aad: &[u8], text: &mut [u8], icv: &mut [u8]) {
        let tag = self.tag(iv, aad, text);
        self.aes.ctr(&self.block(3, iv, 1), text);
        icv.copy_from_slice(&tag[..icv.len()]);
    }

    /// Decrypts `text` in place; says whether the ICV was right. CCM authenticates the plaintext, so it must
    /// decrypt first; a plaintext that proves false is wiped.
    #[must_use]
    pub(crate) fn open(&self, iv: &Iv, aad: &[u8], text: &mut [u8], icv: &[u8]) -> bool {
        self.aes.ctr(&self.block(3, iv, 1), text);
        let tag = self.tag(iv, aad, text);
        let genuine = same(&tag[..icv.len()], icv);
        if !genuine {
            text.fill(0);
        }
        genuine
    }

    /// The encrypted CBC-MAC over lengths, `aad` and plaintext (RFC 3610 2.2 and 2.3).
    fn tag(&self, iv: &Iv, aad: &[u8], text: &[u8]) -> [u8; 16] {
        // RFC 3610 2.2: bit 6 tells of associated data, bits 5..3 hold (icv_len - 2) / 2, bits 2..0 hold L - 1 = 3.
        let flags = 0x40 * u8::from(!aad.is_empty()) + (self.icv_len - 2) / 2 * 8 + 3;
        let mut mac = self.block(flags, iv, text.len() as u32);
        self.aes.encrypt_block(&mut mac);
        if !aad.is_empty() {
            self.absorb_aad(&mut mac, aad);
        }
        self.absorb(&mut mac, text);
        let mut mask = self.block(3, iv, 0);
        self.aes.encrypt_block(&mut mask);
        xor(&mut mac, &mask);
        mac
    }

    /// The associated data behind their length in two bytes; [`crate::seal`] sees to it that it fits.
    fn absorb_aad(&self, mac: &mut [u8; 16], aad: &[u8]) {
        xor(mac, &(aad.len() as u16).to_be_bytes());
        let (first, rest) = aad.split_at(aad.len().min(14));
        xor(&mut mac[2..], first);
        self.aes.encrypt_block(mac);
        self.absorb(mac, rest);
    }

    fn absorb(&self, mac: &mut [u8; 16], bytes: &[u8]) {
        for block in bytes.chunks(16) {
            xor(mac, block);
            self.aes.encrypt_block(mac);
        }
    }

    /// RFC 4309 4: flags, salt, IV and a 32-bit number.
    fn block(&self, flags: u8, iv: &Iv, number: u32) -> [u8; 16] {
        let mut block = [flags; 16];
        block[1..4].copy_from_slice(&self.salt);
        block[4..12].copy_from_slice(iv.as_bytes());
        block[12..].copy_from_slice(&number.to_be_bytes());
        block
    }
}
