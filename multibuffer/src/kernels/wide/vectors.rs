//! The vectors: registers of 128, 256 and 512 bits as one, two and four blocks.

use std::arch::x86_64::*;

use super::Wide;

/// One block.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct One(pub(in crate::kernels) __m128i);

/// Two blocks.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Two(pub(in crate::kernels) __m256i);

/// Four blocks.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Four(pub(in crate::kernels) __m512i);

macro_rules! operations {
    ($($name:ident($($argument:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $argument: Self)*) -> Self {
            // SAFETY: a vector exists only where its instructions do.
            Self(unsafe { $intrinsic(self.0 $(, $argument.0)*) })
        }
    )*};
}

/// What differs by no more than an instruction's name, and is no mere operation.
macro_rules! alike {
    (zero = $zero:ident; load = $load:ident; store = $store:ident;
     shuffled = $shuffle:ident; turned = $turn:ident; product = $product:ident;) => {
        #[inline(always)]
        fn zero() -> Self {
            // SAFETY: the contract of `Wide`.
            Self(unsafe { $zero() })
        }

        #[inline(always)]
        unsafe fn load(at: *const u8) -> Self {
            // SAFETY: the caller promises the bytes.
            Self(unsafe { $load(at.cast()) })
        }

        #[inline(always)]
        unsafe fn store(self, at: *mut u8) {
            // SAFETY: the caller promises the bytes.
            unsafe { $store(at.cast(), self.0) }
        }

        #[inline(always)]
        fn shuffled(self, order: __m128i) -> Self {
            // SAFETY: a vector exists only where its instructions do.
            Self(unsafe { $shuffle(self.0, Self::every(order).0) })
        }

        #[inline(always)]
        fn turned(self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $turn::<0x4e>(self.0) })
        }

        #[inline(always)]
        fn product<const HALVES: i32>(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $product::<HALVES>(self.0, other.0) })
        }
    };
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

    alike! {
        zero = _mm_setzero_si128;
        load = _mm_loadu_si128;
        store = _mm_storeu_si128;
        shuffled = _mm_shuffle_epi8;
        turned = _mm_shuffle_epi32;
        product = _mm_clmulepi64_si128;
    }

    by_buffer!();

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

    alike! {
        zero = _mm256_setzero_si256;
        load = _mm256_loadu_si256;
        store = _mm256_storeu_si256;
        shuffled = _mm256_shuffle_epi8;
        turned = _mm256_shuffle_epi32;
        product = _mm256_clmulepi64_epi128;
    }

    by_buffer!();

    #[inline(always)]
    fn first(block: __m128i) -> Self {
        // SAFETY: the contract of `Wide`.
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

    alike! {
        zero = _mm512_setzero_si512;
        load = _mm512_loadu_si512;
        store = _mm512_storeu_si512;
        shuffled = _mm512_shuffle_epi8;
        turned = _mm512_shuffle_epi32;
        product = _mm512_clmulepi64_epi128;
    }

    #[inline(always)]
    fn first(block: __m128i) -> Self {
        // SAFETY: the contract of `Wide`.
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
        // SAFETY: a vector exists only where its instructions do.
        Self(unsafe { _mm512_maskz_mov_epi8(first_bytes(len), self.0) })
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
