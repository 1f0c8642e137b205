//! MACs made of AES in CBC mode: XCBC (RFC 3566) and CMAC (RFC 4493).
//!
//! Both mask the last block with one of two subkeys, depending on whether it had to be padded; they differ only in
//! where the subkeys and the chaining key come from.

use zeroize::{Zeroize, Zeroizing};

use crate::kernels::{
    aws_lc::AesKey,
    lanes::{self, LaneKeys},
    scalar::xor,
};

/// An expanded XCBC or CMAC key.
pub(crate) struct CbcMacKey {
    aes: AesKey,
    /// For many messages at once, where the processor can.
    lanes: Option<LaneKeys>,
    /// Masks a last block that is complete.
    complete: [u8; 16],
    /// Masks a last block that was padded.
    padded: [u8; 16],
}

impl CbcMacKey {
    /// RFC 3566 4: three keys from encrypting three constants. `None` unless the key has 16 bytes.
    pub(crate) fn xcbc(key: &[u8]) -> Option<Self> {
        let key: &[u8; 16] = key.try_into().ok()?;
        let aes = AesKey::encrypting(key)?;
        let derived = |constant: u8| {
            let mut block = [constant; 16];
            aes.encrypt_block(&mut block);
            Zeroizing::new(block)
        };
        let (first, complete, padded) = (derived(1), derived(2), derived(3));
        Some(Self {
            aes: AesKey::encrypting(&*first)?,
            lanes: lanes::aes_keys(&*first),
            complete: *complete,
            padded: *padded,
        })
    }

    /// RFC 4493 2.3: two masks from doubling the encrypted zero block. `None` unless AES takes the key.
    pub(crate) fn cmac(key: &[u8]) -> Option<Self> {
        let aes = AesKey::encrypting(key)?;
        let mut zero = Zeroizing::new([0; 16]);
        aes.encrypt_block(&mut zero);
        let complete = doubled(&zero);
        Some(Self {
            aes,
            lanes: lanes::aes_keys(key),
            padded: doubled(&complete),
            complete,
        })
    }

    /// The key for lanes, if the processor has them.
    pub(crate) fn lanes(&self) -> Option<&LaneKeys> {
        self.lanes.as_ref()
    }

    /// What masks a last block that is complete, and one that was padded.
    pub(crate) fn masks(&self) -> [&[u8; 16]; 2] {
        [&self.complete, &self.padded]
    }

    /// The MAC over `message` in order.
    pub(crate) fn sign(&self, message: &[&[u8]]) -> [u8; 16] {
        let mut mac = [0; 16];
        // INVARIANT: `filled` bytes are in the current block, and a full block is only encrypted when another byte
        // follows, for the last one needs its mask first.
        let mut filled = 0;
        for mut part in message.iter().copied() {
            while !part.is_empty() {
                if filled == 16 {
                    self.aes.encrypt_block(&mut mac);
                    filled = 0;
                }
                let (now, later) = part.split_at(part.len().min(16 - filled));
                xor(&mut mac[filled..], now);
                filled += now.len();
                part = later;
            }
        }
        self.finish(mac, filled)
    }

    fn finish(&self, mut mac: [u8; 16], filled: usize) -> [u8; 16] {
        if filled == 16 {
            xor(&mut mac, &self.complete);
        } else {
            mac[filled] ^= 0x80;
            xor(&mut mac, &self.padded);
        }
        self.aes.encrypt_block(&mut mac);
        mac
    }
}

impl Drop for CbcMacKey {
    fn drop(&mut self) {
        self.complete.zeroize();
        self.padded.zeroize();
    }
}

/// Multiplication by x in GF(2^128), without a branch on the key.
fn doubled(block: &[u8; 16]) -> [u8; 16] {
    let number = u128::from_be_bytes(*block);
    let reduction = (number >> 127) * 0x87;
    ((number << 1) ^ reduction).to_be_bytes()
}
