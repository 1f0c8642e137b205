//! HMAC (RFC 2104) from cached chaining values.
//!
//! The key's two padded blocks are hashed once, when the key is made; each packet then starts from their chaining
//! values, which saves two of the four blocks that a short packet costs.

use zeroize::{Zeroize, Zeroizing};

use crate::kernels::aws_lc::Hash;

/// The chaining values after the key's inner and outer block.
pub(crate) struct HmacKey<H: Hash> {
    inner: H::State,
    outer: H::State,
}

impl<H: Hash> HmacKey<H> {
    /// Expands a key of any length.
    pub(crate) fn new(key: &[u8]) -> Self {
        let mut block = Zeroizing::new([0; 128]);
        if key.len() <= H::BLOCK {
            block[..key.len()].copy_from_slice(key);
        } else {
            // RFC 2104 2: a key longer than a block is hashed first.
            let digest = digest::<H>(H::start(), &[key]);
            block[..H::OUTPUT].copy_from_slice(&digest[..H::OUTPUT]);
        }
        Self {
            inner: after_block::<H>(&block, 0x36),
            outer: after_block::<H>(&block, 0x5c),
        }
    }

    /// The MAC over `message` in order, in the first [`Hash::OUTPUT`] bytes.
    pub(crate) fn sign(&self, message: &[&[u8]]) -> [u8; 64] {
        let inner = digest::<H>(H::resume(&self.inner), message);
        digest::<H>(H::resume(&self.outer), &[&inner[..H::OUTPUT]])
    }
}

impl<H: Hash> HmacKey<H> {
    /// The chaining values after the key's inner and outer block.
    pub(crate) fn states(&self) -> [&H::State; 2] {
        [&self.inner, &self.outer]
    }
}

impl<H: Hash> Drop for HmacKey<H> {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}

fn after_block<H: Hash>(key: &[u8; 128], pad: u8) -> H::State {
    let block = Zeroizing::new(key.map(|byte| byte ^ pad));
    let mut context = H::start();
    H::update(&mut context, &block[..H::BLOCK]);
    H::state(&context)
}

fn digest<H: Hash>(mut context: H::Context, message: &[&[u8]]) -> [u8; 64] {
    let mut digest = [0; 64];
    message
        .iter()
        .for_each(|part| H::update(&mut context, part));
    H::finish(context, &mut digest);
    digest
}
