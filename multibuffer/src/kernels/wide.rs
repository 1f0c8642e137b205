//! AES blocks side by side in a vector: one with AES-NI, two or four with VAES. What is written for [`Wide`] runs on
//! each.
//!
//! A packet is read through a [`Source`], which joins up to three ranges as it goes, so that nothing has to be copied
//! together before it is enciphered.

mod schedule;
mod source;
mod vectors;

use std::arch::x86_64::__m128i;

use crate::features::Features;
pub(super) use schedule::{Counters, Schedule};
pub(super) use source::Source;
pub(super) use vectors::{Four, One, Two};

/// Which vectors there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AesLevel {
    /// AES-NI.
    One,
    /// VAES on 256 bits.
    Two,
    /// VAES on 512 bits.
    Four,
}

impl AesLevel {
    /// The widest for AES alone.
    pub(crate) fn for_aes(features: Features) -> Option<Self> {
        match features {
            features if features.vaes && features.avx512 => Some(Self::Four),
            features if features.vaes => Some(Self::Two),
            features if features.aesni => Some(Self::One),
            _ => None,
        }
    }

    /// The widest for AES and carry-less products.
    pub(crate) fn for_gcm(features: Features) -> Option<Self> {
        let narrow = features.clmul.then_some(Self::One);
        match Self::for_aes(features)? {
            wide @ (Self::Two | Self::Four) if features.vclmul => Some(wide),
            _ => narrow,
        }
    }
}

/// Blocks as a processor has them.
///
/// # Safety
/// An implementer needs processor features, which the caller of a function that is generic over vectors must have
/// enabled; such a function is always inlined into one that enables them.
pub(super) trait Wide: Copy {
    /// Blocks in a vector.
    const BLOCKS: usize;
    /// Bytes in a vector.
    const BYTES: usize = 16 * Self::BLOCKS;

    /// All bits 0.
    fn zero() -> Self;
    /// `block` first, zeros behind it.
    fn first(block: __m128i) -> Self;
    /// `block` in every place.
    fn every(block: __m128i) -> Self;
    /// Numbers 0, 1, … in the last word of each block.
    fn numbers() -> Self;
    /// The exclusive or of all blocks.
    fn folded(self) -> __m128i;
    /// The bytes before `len`, zeros behind them.
    fn truncated(self, len: usize) -> Self;
    /// Exclusive or.
    fn xor(self, other: Self) -> Self;
    /// Sums of 32-bit words.
    fn plus(self, other: Self) -> Self;
    /// The bytes of each block in the order given by the indices in `order`.
    fn shuffled(self, order: __m128i) -> Self;
    /// The halves of each block exchanged.
    fn turned(self) -> Self;
    /// The carry-less product of a half of each block with a half of each in `other`.
    fn product<const HALVES: i32>(self, other: Self) -> Self;
    /// A round of AES.
    fn encrypt(self, key: Self) -> Self;
    /// The last round.
    fn encrypt_last(self, key: Self) -> Self;
    /// A round of AES backwards.
    fn decrypt(self, key: Self) -> Self;
    /// The last round backwards.
    fn decrypt_last(self, key: Self) -> Self;

    /// # Safety
    /// `at` is good for reading [`Wide::BYTES`].
    unsafe fn load(at: *const u8) -> Self;

    /// # Safety
    /// `at` is good for writing [`Wide::BYTES`].
    unsafe fn store(self, at: *mut u8);

    /// Stores the first `len` bytes.
    ///
    /// # Safety
    /// `at` is good for writing `len` bytes, and a vector has as many.
    unsafe fn store_some(self, at: *mut u8, len: usize);

    /// The bytes of the ranges one behind the other, then zeros.
    ///
    /// # Safety
    /// The ranges are readable and together at most as long as a vector.
    unsafe fn joined(ranges: [(*const u8, usize); 3]) -> Self;

    /// A block from each place, `offset` bytes behind it.
    ///
    /// # Safety
    /// There are as many places as blocks, and a readable block at each.
    unsafe fn collected(places: &[*mut u8], offset: usize) -> Self;

    /// The reverse of [`Wide::collected`].
    ///
    /// # Safety
    /// There are as many places as blocks, and a writable block at each.
    unsafe fn scattered(self, places: &[*mut u8], offset: usize);
}
