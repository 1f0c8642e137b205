//! AES in counter with CBC-MAC mode (RFC 3610) as ESP uses it (RFC 4309): an 11-byte nonce, a 4-byte length.

use crate::{
    Iv,
    constant_time::constant_time_eq,
    kernels::{
        aws_lc::AesKey,
        lanes::{self, CbcMacJob, LaneKeys},
        nonce::Nonce,
        scalar::xor,
    },
};

const SALT_BYTES: usize = 3;

/// The longest associated data that lanes take: three blocks with its length.
const MAX_LANE_AAD_BYTES: usize = 46;

/// Buffers for what a lane signs: everything but the whole blocks of the text.
pub(crate) struct MacScratch {
    head: [u8; 64],
    tail: [u8; 16],
    /// The MAC.
    pub(crate) tag: [u8; 16],
}

impl MacScratch {
    pub(crate) const EMPTY: Self = Self {
        head: [0; 64],
        tail: [0; 16],
        tag: [0; 16],
    };

    /// The first block, and the associated data behind their length; returns how many bytes they take.
    fn lay_out(&mut self, first: [u8; 16], aad: &[u8]) -> usize {
        self.head = [0; 64];
        self.head[..16].copy_from_slice(&first);
        if aad.is_empty() {
            return 16;
        }
        self.head[16..18].copy_from_slice(&(aad.len() as u16).to_be_bytes());
        self.head[18..18 + aad.len()].copy_from_slice(aad);
        (18 + aad.len()).next_multiple_of(16)
    }
}

/// An expanded AES-CCM key.
pub(crate) struct Ccm {
    aes: AesKey,
    /// For many packets at once, where the processor can.
    lanes: Option<LaneKeys>,
    salt: [u8; SALT_BYTES],
    icv_len: u8,
}

impl Ccm {
    /// Expands a key that ends in the salt; `None` if AES takes none of this length.
    pub(crate) fn new(key: &[u8], icv_len: usize) -> Option<Self> {
        let (key, salt) = key.split_last_chunk()?;
        Some(Self {
            aes: AesKey::encrypting(key)?,
            lanes: lanes::aes_keys(key),
            salt: *salt,
            icv_len: icv_len as u8,
        })
    }

    /// Disables this crate's kernels, so that the library computes.
    pub(crate) fn use_library_only(&mut self) {
        self.lanes = None;
    }

    /// The keys for many packets at once, if there are such kernels and they take associated data of this length.
    pub(crate) fn lanes(&self, aad_len: usize) -> Option<&LaneKeys> {
        self.lanes
            .as_ref()
            .filter(|_| aad_len <= MAX_LANE_AAD_BYTES)
    }

    /// What the MAC of a packet in lanes covers; its keys are those of [`Ccm::lanes`]. The plaintext is read, and the
    /// MAC written behind it in `scratch`.
    pub(crate) fn message<'a>(
        &self,
        keys: &'a LaneKeys,
        (iv, aad): (&Iv, &[u8]),
        text: &'a [u8],
        scratch: &'a mut MacScratch,
    ) -> CbcMacJob<'a> {
        let head_len = scratch.lay_out(self.first_block(iv, aad, text.len()), aad);
        let (whole, rest) = text.split_at(text.len() / 16 * 16);
        scratch.tail = [0; 16];
        scratch.tail[..rest.len()].copy_from_slice(rest);
        let tail_len = rest.len().next_multiple_of(16);
        CbcMacJob {
            keys,
            // Whole blocks throughout, and no mask: a plain CBC-MAC.
            complete: &[0; 16],
            padded: &[0; 16],
            message: [
                &scratch.head[..head_len],
                whole,
                &scratch.tail[..tail_len],
                &[],
            ],
            icv: &mut scratch.tag,
        }
    }

    /// Encrypts or decrypts `text`, and encrypts the MAC of the lanes.
    pub(crate) fn apply(&self, keys: &LaneKeys, iv: &Iv, text: &mut [u8], tag: &mut [u8; 16]) {
        let [first, second, third] = self.salt;
        let iv = iv.as_bytes().try_into();
        let nonce = Nonce::new(
            [3, first, second, third],
            iv.expect("the IV's length was checked"),
        );
        lanes::ctr(keys, nonce, 0, tag);
        lanes::ctr(keys, nonce, 1, text);
    }

    /// Encrypts `text` in place and writes its ICV.
    pub(crate) fn seal(&self, iv: &Iv, aad: &[u8], text: &mut [u8], icv: &mut [u8]) {
        let tag = self.tag(iv, aad, text);
        self.aes.ctr(&self.block(3, iv, 1), text);
        icv.copy_from_slice(&tag[..icv.len()]);
    }

    /// Decrypts `text` in place; returns whether the ICV was right. CCM authenticates the plaintext, so it must decrypt
    /// first; if the ICV is wrong, the plaintext is zeroed.
    #[must_use]
    pub(crate) fn open(&self, iv: &Iv, aad: &[u8], text: &mut [u8], icv: &[u8]) -> bool {
        self.aes.ctr(&self.block(3, iv, 1), text);
        let tag = self.tag(iv, aad, text);
        let genuine = constant_time_eq(&tag[..icv.len()], icv);
        if !genuine {
            text.fill(0);
        }
        genuine
    }

    /// The encrypted CBC-MAC over lengths, `aad` and plaintext (RFC 3610 2.2 and 2.3).
    fn tag(&self, iv: &Iv, aad: &[u8], text: &[u8]) -> [u8; 16] {
        let mut mac = self.first_block(iv, aad, text.len());
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

    /// RFC 3610 2.2: bit 6 is set with associated data, bits 5..3 hold (icv_len - 2) / 2, bits 2..0 hold L - 1 = 3.
    fn first_block(&self, iv: &Iv, aad: &[u8], text_len: usize) -> [u8; 16] {
        let flags = 0x40 * u8::from(!aad.is_empty()) + (self.icv_len - 2) / 2 * 8 + 3;
        self.block(flags, iv, text_len as u32)
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
