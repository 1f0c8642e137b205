//! AES blocks side by side in a vector: one with AES-NI, two or four with VAES. What is written for [`Wide`] runs on each.
//!
//! A packet is read through a [`Source`], which joins up to three ranges as it goes, so that nothing has to be copied
//! together before it is enciphered.

use std::arch::x86_64::*;

use super::aesni::RoundKeys;
use crate::detect::Features;

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
    /// The bytes of each block in the order that those of `order` say.
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

/// One block.
#[derive(Clone, Copy)]
pub(super) struct One(pub(super) __m128i);

/// Two blocks.
#[derive(Clone, Copy)]
pub(super) struct Two(__m256i);

/// Four blocks.
#[derive(Clone, Copy)]
pub(super) struct Four(__m512i);

macro_rules! operations {
    ($($name:ident($($argument:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $argument: Self)*) -> Self {
            // SAFETY: whoever made a vector has its instructions.
            Self(unsafe { $intrinsic(self.0 $(, $argument.0)*) })
        }
    )*};
}

/// 32 bytes of ones, then 32 of zeros: read from `32 - n` on, a mask of the first `n` bytes.
static MASKS: [u8; 64] = {
    let mut masks = [0; 64];
    let mut at = 0;
    while at < 32 {
        masks[at] = 0xff;
        at += 1;
    }
    masks
};

/// Stores and joins by way of a buffer, where there are no masks for single bytes.
macro_rules! by_buffer {
    () => {
        #[inline(always)]
        unsafe fn store_some(self, at: *mut u8, len: usize) {
            let mut buffer = [0_u8; 32];
            // SAFETY: the buffer is as long as the longest vector here, and `at` as the caller promises.
            unsafe {
                self.store(buffer.as_mut_ptr());
                std::ptr::copy_nonoverlapping(buffer.as_ptr(), at, len);
            }
        }

        #[inline(always)]
        unsafe fn joined(ranges: [(*const u8, usize); 3]) -> Self {
            let (mut buffer, mut held) = ([0_u8; 32], 0);
            for (at, len) in ranges {
                // SAFETY: the caller promises that the ranges are readable and fit.
                unsafe { std::ptr::copy_nonoverlapping(at, buffer.as_mut_ptr().add(held), len) };
                held += len;
            }
            // SAFETY: the buffer is as long as the longest vector here.
            unsafe { Self::load(buffer.as_ptr()) }
        }
    };
}

impl Wide for One {
    const BLOCKS: usize = 1;

    operations! {
        xor(other) = _mm_xor_si128;
        plus(other) = _mm_add_epi32;
        encrypt(key) = _mm_aesenc_si128;
        encrypt_last(key) = _mm_aesenclast_si128;
        decrypt(key) = _mm_aesdec_si128;
        decrypt_last(key) = _mm_aesdeclast_si128;
    }

    by_buffer!();

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: every x86-64 processor has these instructions.
        Self(unsafe { _mm_setzero_si128() })
    }

    #[inline(always)]
    fn first(block: __m128i) -> Self {
        Self(block)
    }

    #[inline(always)]
    fn every(block: __m128i) -> Self {
        Self(block)
    }

    #[inline(always)]
    fn numbers() -> Self {
        Self::zero()
    }

    #[inline(always)]
    fn folded(self) -> __m128i {
        self.0
    }

    #[inline(always)]
    fn truncated(self, len: usize) -> Self {
        // SAFETY: `len` is at most 16, so the mask lies inside the table.
        Self(unsafe { _mm_and_si128(self.0, _mm_loadu_si128(MASKS.as_ptr().add(32 - len).cast())) })
    }

    #[inline(always)]
    fn shuffled(self, order: __m128i) -> Self {
        // SAFETY: whoever made a vector has its instructions.
        Self(unsafe { _mm_shuffle_epi8(self.0, order) })
    }

    #[inline(always)]
    fn turned(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_shuffle_epi32::<0x4e>(self.0) })
    }

    #[inline(always)]
    fn product<const HALVES: i32>(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_clmulepi64_si128::<HALVES>(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: the caller promises the bytes.
        Self(unsafe { _mm_loadu_si128(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: the caller promises the bytes.
        unsafe { _mm_storeu_si128(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn collected(places: &[*mut u8], offset: usize) -> Self {
        // SAFETY: the caller promises the blocks.
        unsafe { Self::load(places[0].add(offset)) }
    }

    #[inline(always)]
    unsafe fn scattered(self, places: &[*mut u8], offset: usize) {
        // SAFETY: the caller promises the blocks.
        unsafe { self.store(places[0].add(offset)) }
    }
}

impl Wide for Two {
    const BLOCKS: usize = 2;

    operations! {
        xor(other) = _mm256_xor_si256;
        plus(other) = _mm256_add_epi32;
        encrypt(key) = _mm256_aesenc_epi128;
        encrypt_last(key) = _mm256_aesenclast_epi128;
        decrypt(key) = _mm256_aesdec_epi128;
        decrypt_last(key) = _mm256_aesdeclast_epi128;
    }

    by_buffer!();

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: the contract of `Wide`.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    fn first(block: __m128i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_zextsi128_si256(block) })
    }

    #[inline(always)]
    fn every(block: __m128i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_broadcastsi128_si256(block) })
    }

    #[inline(always)]
    fn numbers() -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_set_epi32(1, 0, 0, 0, 0, 0, 0, 0) })
    }

    #[inline(always)]
    fn folded(self) -> __m128i {
        // SAFETY: as above.
        unsafe {
            _mm_xor_si128(
                _mm256_castsi256_si128(self.0),
                _mm256_extracti128_si256::<1>(self.0),
            )
        }
    }

    #[inline(always)]
    fn truncated(self, len: usize) -> Self {
        // SAFETY: `len` is at most 32, so the mask lies inside the table.
        Self(unsafe {
            _mm256_and_si256(
                self.0,
                _mm256_loadu_si256(MASKS.as_ptr().add(32 - len).cast()),
            )
        })
    }

    #[inline(always)]
    fn shuffled(self, order: __m128i) -> Self {
        // SAFETY: whoever made a vector has its instructions.
        Self(unsafe { _mm256_shuffle_epi8(self.0, _mm256_broadcastsi128_si256(order)) })
    }

    #[inline(always)]
    fn turned(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_shuffle_epi32::<0x4e>(self.0) })
    }

    #[inline(always)]
    fn product<const HALVES: i32>(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_clmulepi64_epi128::<HALVES>(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: the caller promises the bytes.
        Self(unsafe { _mm256_loadu_si256(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: the caller promises the bytes.
        unsafe { _mm256_storeu_si256(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn collected(places: &[*mut u8], offset: usize) -> Self {
        // SAFETY: the caller promises the blocks.
        unsafe {
            let low = _mm_loadu_si128(places[0].add(offset).cast());
            let high = _mm_loadu_si128(places[1].add(offset).cast());
            Self(_mm256_set_m128i(high, low))
        }
    }

    #[inline(always)]
    unsafe fn scattered(self, places: &[*mut u8], offset: usize) {
        // SAFETY: the caller promises the blocks.
        unsafe {
            One(_mm256_castsi256_si128(self.0)).store(places[0].add(offset));
            One(_mm256_extracti128_si256::<1>(self.0)).store(places[1].add(offset));
        }
    }
}

impl Wide for Four {
    const BLOCKS: usize = 4;

    operations! {
        xor(other) = _mm512_xor_si512;
        plus(other) = _mm512_add_epi32;
        encrypt(key) = _mm512_aesenc_epi128;
        encrypt_last(key) = _mm512_aesenclast_epi128;
        decrypt(key) = _mm512_aesdec_epi128;
        decrypt_last(key) = _mm512_aesdeclast_epi128;
    }

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: the contract of `Wide`.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    fn first(block: __m128i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_zextsi128_si512(block) })
    }

    #[inline(always)]
    fn every(block: __m128i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_broadcast_i32x4(block) })
    }

    #[inline(always)]
    fn numbers() -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_set_epi32(3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0) })
    }

    #[inline(always)]
    fn folded(self) -> __m128i {
        // SAFETY: as above.
        Two(unsafe {
            _mm256_xor_si256(
                _mm512_castsi512_si256(self.0),
                _mm512_extracti64x4_epi64::<1>(self.0),
            )
        })
        .folded()
    }

    #[inline(always)]
    fn truncated(self, len: usize) -> Self {
        // SAFETY: whoever made a vector has its instructions.
        Self(unsafe { _mm512_maskz_mov_epi8(first_bytes(len), self.0) })
    }

    #[inline(always)]
    fn shuffled(self, order: __m128i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_shuffle_epi8(self.0, _mm512_broadcast_i32x4(order)) })
    }

    #[inline(always)]
    fn turned(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_shuffle_epi32::<0x4e>(self.0) })
    }

    #[inline(always)]
    fn product<const HALVES: i32>(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_clmulepi64_epi128::<HALVES>(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: the caller promises the bytes.
        Self(unsafe { _mm512_loadu_si512(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: the caller promises the bytes.
        unsafe { _mm512_storeu_si512(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_some(self, at: *mut u8, len: usize) {
        // SAFETY: only the bytes that the mask names are written, which the caller promises.
        unsafe { _mm512_mask_storeu_epi8(at.cast(), first_bytes(len), self.0) }
    }

    #[inline(always)]
    unsafe fn joined(ranges: [(*const u8, usize); 3]) -> Self {
        let (mut whole, mut held) = (Self::zero(), 0_usize);
        for (at, len) in ranges {
            let mask = first_bytes(held + len) & !first_bytes(held);
            // SAFETY: only the bytes that the mask names are read, and they are those of the range, wherever a vector
            // with the range in its place would begin.
            whole = whole.xor(Self(unsafe {
                _mm512_maskz_loadu_epi8(mask, at.wrapping_sub(held).cast())
            }));
            held += len;
        }
        whole
    }

    #[inline(always)]
    unsafe fn collected(places: &[*mut u8], offset: usize) -> Self {
        // SAFETY: the caller promises the blocks.
        unsafe {
            let (low, high) = places.split_at(2);
            let (low, high) = (Two::collected(low, offset), Two::collected(high, offset));
            Self(_mm512_inserti64x4::<1>(
                _mm512_castsi256_si512(low.0),
                high.0,
            ))
        }
    }

    #[inline(always)]
    unsafe fn scattered(self, places: &[*mut u8], offset: usize) {
        // SAFETY: the caller promises the blocks.
        unsafe {
            let (low, high) = places.split_at(2);
            Two(_mm512_castsi512_si256(self.0)).scattered(low, offset);
            Two(_mm512_extracti64x4_epi64::<1>(self.0)).scattered(high, offset);
        }
    }
}

/// A mask of the first `len` of 64 bytes.
#[inline(always)]
fn first_bytes(len: usize) -> u64 {
    u64::MAX.checked_shr(64 - len as u32).unwrap_or(0)
}

/// Which vectors there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// AES-NI.
    One,
    /// VAES on 256 bits.
    Two,
    /// VAES on 512 bits.
    Four,
}

impl Level {
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

/// What is left to read of a packet.
pub(super) struct Source {
    /// INVARIANT: what is left of each range is readable; a range before one with bytes has bytes itself.
    parts: [(*const u8, usize); 3],
}

impl Source {
    /// Reads `parts` in order.
    pub(super) fn new(parts: [&[u8]; 3]) -> Self {
        let [first, second, third] = parts;
        let mut source = Self {
            parts: [
                (first.as_ptr(), first.len()),
                (second.as_ptr(), second.len()),
                (third.as_ptr(), third.len()),
            ],
        };
        source.close_up();
        source
    }

    /// Reads `len` bytes in place, which are written behind the reader's back.
    ///
    /// # Safety
    /// The bytes stay readable as long as the source is read.
    pub(super) unsafe fn in_place(at: *const u8, len: usize) -> Self {
        Self {
            parts: [(at, len), (at, 0), (at, 0)],
        }
    }

    #[inline(always)]
    fn close_up(&mut self) {
        for _ in 0..2 {
            if self.parts[0].1 == 0 {
                self.parts = [self.parts[1], self.parts[2], (self.parts[2].0, 0)];
            }
        }
    }

    /// The next whole vector.
    ///
    /// # Safety
    /// As many bytes are left, and the processor has `W`.
    #[inline(always)]
    pub(super) unsafe fn whole<W: Wide>(&mut self) -> W {
        let (at, len) = self.parts[0];
        // SAFETY: what is left of a range is readable.
        unsafe {
            if len >= W::BYTES {
                self.parts[0] = (at.add(W::BYTES), len - W::BYTES);
                return W::load(at);
            }
            self.some(W::BYTES)
        }
    }

    /// The next `wanted` bytes and zeros behind them.
    ///
    /// # Safety
    /// As many bytes are left, a vector has as many, and the processor has `W`.
    #[inline(always)]
    pub(super) unsafe fn some<W: Wide>(&mut self, wanted: usize) -> W {
        self.close_up();
        let mut taken = self.parts;
        let mut missing = wanted;
        for (now, left) in taken.iter_mut().zip(&mut self.parts) {
            now.1 = left.1.min(missing);
            missing -= now.1;
            // SAFETY: no further than the end of the range.
            *left = (unsafe { left.0.add(now.1) }, left.1 - now.1);
        }
        self.close_up();
        // SAFETY: what was left of the ranges is readable, and no more than a vector was taken.
        unsafe { W::joined(taken) }
    }
}

/// The round keys of AES, wherever a vector wants them.
#[derive(Clone, Copy)]
pub(super) struct Schedule(*const u8);

impl Schedule {
    pub(super) fn of(keys: &RoundKeys) -> Self {
        Self(keys.as_blocks().as_ptr().cast())
    }

    /// A round key in every block.
    ///
    /// # Safety
    /// The keys live, have that many rounds, and the processor has `W`.
    #[inline(always)]
    pub(super) unsafe fn key<W: Wide>(self, round: usize) -> W {
        // SAFETY: the caller promises as many round keys.
        W::every(unsafe { _mm_loadu_si128(self.0.add(16 * round).cast()) })
    }

    /// Encrypts every block of every vector.
    ///
    /// # Safety
    /// The keys live and have `ROUNDS` rounds, and the processor has `W`.
    #[inline(always)]
    pub(super) unsafe fn encrypt<W: Wide, const ROUNDS: usize, const N: usize>(
        self,
        mut text: [W; N],
    ) -> [W; N] {
        // SAFETY: the caller promises as many round keys.
        unsafe {
            for vector in &mut text {
                *vector = vector.xor(self.key(0));
            }
            for round in 1..ROUNDS {
                let key = self.key(round);
                for vector in &mut text {
                    *vector = vector.encrypt(key);
                }
            }
            for vector in &mut text {
                *vector = vector.encrypt_last(self.key(ROUNDS));
            }
        }
        text
    }

    /// Decrypts every block of every vector, by keys that were turned round.
    ///
    /// # Safety
    /// As for [`Schedule::encrypt`].
    #[inline(always)]
    pub(super) unsafe fn decrypt<W: Wide, const ROUNDS: usize, const N: usize>(
        self,
        mut text: [W; N],
    ) -> [W; N] {
        // SAFETY: the caller promises as many round keys.
        unsafe {
            for vector in &mut text {
                *vector = vector.xor(self.key(0));
            }
            for round in 1..ROUNDS {
                let key = self.key(round);
                for vector in &mut text {
                    *vector = vector.decrypt(key);
                }
            }
            for vector in &mut text {
                *vector = vector.decrypt_last(self.key(ROUNDS));
            }
        }
        text
    }
}

/// Counter blocks: the number in the last word, in the processor's own order until it is enciphered.
#[derive(Clone, Copy)]
pub(super) struct Counters<W>(W);

impl<W: Wide> Counters<W> {
    /// Counts from `number` on behind 12 bytes that stay the same.
    ///
    /// # Safety
    /// The processor has `W`.
    #[inline(always)]
    pub(super) unsafe fn from(nonce: &[u8; 12], number: u32) -> Self {
        let mut block = [0; 16];
        block[..12].copy_from_slice(nonce);
        block[12..].copy_from_slice(&number.to_le_bytes());
        // SAFETY: a block is as long as the vector.
        Self(W::every(unsafe { _mm_loadu_si128(block.as_ptr().cast()) }).plus(W::numbers()))
    }

    /// The next blocks, as many as a vector has.
    #[inline(always)]
    pub(super) fn next(&mut self) -> W {
        // SAFETY: every x86-64 processor has these instructions.
        let (order, step) = unsafe {
            (
                _mm_set_epi8(12, 13, 14, 15, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                _mm_set_epi32(W::BLOCKS as i32, 0, 0, 0),
            )
        };
        let blocks = self.0.shuffled(order);
        self.0 = self.0.plus(W::every(step));
        blocks
    }
}
