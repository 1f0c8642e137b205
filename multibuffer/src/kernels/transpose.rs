//! How the words of each lane come into vectors, a word of every lane in each, and back: transpositions in registers.

use std::arch::x86_64::*;

/// Lanes of the widest vector.
pub(super) const MAX_LANES: usize = 16;

/// Reverses the bytes of each word of `size` bytes in 32 bytes.
const fn reversal(size: usize) -> [u8; 64] {
    let mut order = [0; 64];
    let mut at = 0;
    while at < 64 {
        // Byte shuffles count within 16 bytes.
        let within = at % 16;
        order[at] = (within / size * size + size - 1 - within % size) as u8;
        at += 1;
    }
    order
}

const REVERSED_32: [u8; 64] = reversal(4);
const REVERSED_64: [u8; 64] = reversal(8);

macro_rules! rows {
    ($($name:ident $vector:ident $features:literal $zero:ident $load:ident $shuffle:ident;)*) => {$(
        /// A vector from each of the first `N` pointers, `offset` bytes behind it, its bytes shuffled by `order` if one
        /// is given.
        ///
        /// # Safety
        #[doc = concat!("So many bytes are readable; the caller enables ", $features, ".")]
        #[inline(always)]
        unsafe fn $name<const N: usize>(
            data: &[*const u8; MAX_LANES],
            offset: usize,
            order: Option<&[u8; 64]>,
        ) -> [$vector; N] {
            // SAFETY: as the caller promises; an order is as long as the longest vector.
            unsafe {
                let mut rows = [$zero(); N];
                for (row, at) in rows.iter_mut().zip(data) {
                    *row = $load(at.add(offset).cast());
                    if let Some(order) = order {
                        *row = $shuffle(*row, $load(order.as_ptr().cast()));
                    }
                }
                rows
            }
        }
    )*};
}

rows! {
    rows_256 __m256i "AVX2" _mm256_setzero_si256 _mm256_loadu_si256 _mm256_shuffle_epi8;
    rows_512 __m512i "AVX-512 F and BW" _mm512_setzero_si512 _mm512_loadu_si512 _mm512_shuffle_epi8;
}

/// # Safety
/// The first 8 pointers and 64 bytes at `offset` behind them are readable; the caller enables AVX2.
#[inline(always)]
pub(in crate::kernels) unsafe fn block_8(
    data: &[*const u8; MAX_LANES],
    offset: usize,
    big_endian: bool,
) -> [__m256i; 16] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut block = [_mm256_setzero_si256(); 16];
        for half in 0..2 {
            let rows = rows_256::<8>(data, offset + 32 * half, big_endian.then_some(&REVERSED_32));
            block[8 * half..][..8].copy_from_slice(&transposed_8(rows));
        }
        block
    }
}

/// # Safety
/// The first 4 pointers and 128 bytes at `offset` behind them are readable; the caller enables AVX2.
#[inline(always)]
pub(in crate::kernels) unsafe fn block_4_long(
    data: &[*const u8; MAX_LANES],
    offset: usize,
    big_endian: bool,
) -> [__m256i; 16] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut block = [_mm256_setzero_si256(); 16];
        for quarter in 0..4 {
            let rows = rows_256::<4>(
                data,
                offset + 32 * quarter,
                big_endian.then_some(&REVERSED_64),
            );
            let (even, odd) = (
                _mm256_unpacklo_epi64(rows[0], rows[1]),
                _mm256_unpackhi_epi64(rows[0], rows[1]),
            );
            let (even2, odd2) = (
                _mm256_unpacklo_epi64(rows[2], rows[3]),
                _mm256_unpackhi_epi64(rows[2], rows[3]),
            );
            block[4 * quarter] = _mm256_permute2x128_si256::<0x20>(even, even2);
            block[4 * quarter + 1] = _mm256_permute2x128_si256::<0x20>(odd, odd2);
            block[4 * quarter + 2] = _mm256_permute2x128_si256::<0x31>(even, even2);
            block[4 * quarter + 3] = _mm256_permute2x128_si256::<0x31>(odd, odd2);
        }
        block
    }
}

/// # Safety
/// The 16 pointers and 64 bytes at `offset` behind them are readable; the caller enables AVX-512 F and BW.
#[inline(always)]
pub(in crate::kernels) unsafe fn block_16(
    data: &[*const u8; MAX_LANES],
    offset: usize,
    big_endian: bool,
) -> [__m512i; 16] {
    // SAFETY: as the caller promises.
    unsafe {
        let rows = rows_512::<16>(data, offset, big_endian.then_some(&REVERSED_32));
        transposed_16(rows)
    }
}

/// # Safety
/// The first 8 pointers and 128 bytes at `offset` behind them are readable; the caller enables AVX-512 F and BW.
#[inline(always)]
pub(in crate::kernels) unsafe fn block_8_long(
    data: &[*const u8; MAX_LANES],
    offset: usize,
    big_endian: bool,
) -> [__m512i; 16] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut block = [_mm512_setzero_si512(); 16];
        for half in 0..2 {
            let rows = rows_512::<8>(data, offset + 64 * half, big_endian.then_some(&REVERSED_64));
            let mut pairs = [[rows[0]; 2]; 4];
            for k in 0..4 {
                pairs[k][0] = _mm512_unpacklo_epi64(rows[2 * k], rows[2 * k + 1]);
                pairs[k][1] = _mm512_unpackhi_epi64(rows[2 * k], rows[2 * k + 1]);
            }
            for j in 0..2 {
                let columns = exchange(pairs[0][j], pairs[1][j], pairs[2][j], pairs[3][j]);
                for (m, column) in columns.into_iter().enumerate() {
                    block[8 * half + 2 * m + j] = column;
                }
            }
        }
        block
    }
}

/// Exchanges rows and columns of words.
///
/// # Safety
/// The caller enables AVX2.
#[inline(always)]
pub(in crate::kernels) unsafe fn transposed_8(rows: [__m256i; 8]) -> [__m256i; 8] {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
    // SAFETY: as the caller promises.
    unsafe {
        // Word j of four rows: those of word j + 4 stand in the upper half.
        let (first, second) = (quads_256([r0, r1, r2, r3]), quads_256([r4, r5, r6, r7]));
        let mut columns = rows;
        for j in 0..4 {
            columns[j] = _mm256_permute2x128_si256::<0x20>(first[j], second[j]);
            columns[j + 4] = _mm256_permute2x128_si256::<0x31>(first[j], second[j]);
        }
        columns
    }
}

/// Exchanges rows and columns of words.
///
/// # Safety
/// The caller enables AVX-512 F.
#[inline(always)]
pub(in crate::kernels) unsafe fn transposed_16(rows: [__m512i; 16]) -> [__m512i; 16] {
    let mut columns = rows;
    // SAFETY: as the caller promises.
    unsafe {
        // Word j of four rows: those of words j + 4, j + 8 and j + 12 stand in the other quarters.
        let mut quads = [[rows[0]; 4]; 4];
        for (k, quad) in quads.iter_mut().enumerate() {
            *quad = quads_512([
                rows[4 * k],
                rows[4 * k + 1],
                rows[4 * k + 2],
                rows[4 * k + 3],
            ]);
        }
        for j in 0..4 {
            let quarters = exchange(quads[0][j], quads[1][j], quads[2][j], quads[3][j]);
            for (m, column) in quarters.into_iter().enumerate() {
                columns[4 * m + j] = column;
            }
        }
    }
    columns
}

macro_rules! quads {
    ($($name:ident $vector:ident $features:literal $low32:ident $high32:ident $low64:ident $high64:ident;)*) => {$(
        /// Exchanges rows and columns of words within each 16 bytes.
        ///
        /// # Safety
        #[doc = concat!("The caller enables ", $features, ".")]
        #[inline(always)]
        pub(in crate::kernels) unsafe fn $name(rows: [$vector; 4]) -> [$vector; 4] {
            let [r0, r1, r2, r3] = rows;
            // SAFETY: as the caller promises.
            unsafe {
                let (low, high) = ($low32(r0, r1), $high32(r0, r1));
                let (low2, high2) = ($low32(r2, r3), $high32(r2, r3));
                [$low64(low, low2), $high64(low, low2), $low64(high, high2), $high64(high, high2)]
            }
        }
    )*};
}

quads! {
    quads_256 __m256i "AVX2" _mm256_unpacklo_epi32 _mm256_unpackhi_epi32 _mm256_unpacklo_epi64 _mm256_unpackhi_epi64;
    quads_512 __m512i "AVX-512 F"
        _mm512_unpacklo_epi32 _mm512_unpackhi_epi32 _mm512_unpacklo_epi64 _mm512_unpackhi_epi64;
}

/// Exchanges rows and columns of a 4 × 4 matrix of quarters.
///
/// # Safety
/// The caller enables AVX-512 F.
#[inline(always)]
unsafe fn exchange(a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> [__m512i; 4] {
    // SAFETY: as the caller promises.
    unsafe {
        let (even, even2) = (
            _mm512_shuffle_i32x4::<0x88>(a, b),
            _mm512_shuffle_i32x4::<0x88>(c, d),
        );
        let (odd, odd2) = (
            _mm512_shuffle_i32x4::<0xdd>(a, b),
            _mm512_shuffle_i32x4::<0xdd>(c, d),
        );
        [
            _mm512_shuffle_i32x4::<0x88>(even, even2),
            _mm512_shuffle_i32x4::<0x88>(odd, odd2),
            _mm512_shuffle_i32x4::<0xdd>(even, even2),
            _mm512_shuffle_i32x4::<0xdd>(odd, odd2),
        ]
    }
}
