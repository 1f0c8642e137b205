//! How sixteen words of each message come into sixteen vectors: loads, byte reversals and a transposition.

use std::arch::x86_64::*;

use super::MAX_LANES;

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

/// # Safety
/// The first 8 pointers and 64 bytes at `offset` behind them are readable; the caller enables AVX2.
#[inline(always)]
pub(super) unsafe fn block_8(
    data: &[*const u8; MAX_LANES],
    offset: usize,
    big_endian: bool,
) -> [__m256i; 16] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut block = [_mm256_setzero_si256(); 16];
        for half in 0..2 {
            let mut rows = [_mm256_setzero_si256(); 8];
            for (lane, row) in rows.iter_mut().enumerate() {
                *row = _mm256_loadu_si256(data[lane].add(offset + 32 * half).cast());
                if big_endian {
                    *row =
                        _mm256_shuffle_epi8(*row, _mm256_loadu_si256(REVERSED_32.as_ptr().cast()));
                }
            }
            // After two unpackings, quad k of column j is words j and j + 4 of lanes 4k to 4k + 3.
            let mut quads = [rows; 2];
            for k in 0..2 {
                let (r0, r1, r2, r3) = (
                    rows[4 * k],
                    rows[4 * k + 1],
                    rows[4 * k + 2],
                    rows[4 * k + 3],
                );
                let (low, high) = (_mm256_unpacklo_epi32(r0, r1), _mm256_unpackhi_epi32(r0, r1));
                let (low2, high2) = (_mm256_unpacklo_epi32(r2, r3), _mm256_unpackhi_epi32(r2, r3));
                quads[k][0] = _mm256_unpacklo_epi64(low, low2);
                quads[k][1] = _mm256_unpackhi_epi64(low, low2);
                quads[k][2] = _mm256_unpacklo_epi64(high, high2);
                quads[k][3] = _mm256_unpackhi_epi64(high, high2);
            }
            for j in 0..4 {
                let (first, second) = (quads[0][j], quads[1][j]);
                block[8 * half + j] = _mm256_permute2x128_si256::<0x20>(first, second);
                block[8 * half + j + 4] = _mm256_permute2x128_si256::<0x31>(first, second);
            }
        }
        block
    }
}

/// # Safety
/// The first 4 pointers and 128 bytes at `offset` behind them are readable; the caller enables AVX2.
#[inline(always)]
pub(super) unsafe fn block_4_long(
    data: &[*const u8; MAX_LANES],
    offset: usize,
    big_endian: bool,
) -> [__m256i; 16] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut block = [_mm256_setzero_si256(); 16];
        for quarter in 0..4 {
            let mut rows = [_mm256_setzero_si256(); 4];
            for (lane, row) in rows.iter_mut().enumerate() {
                *row = _mm256_loadu_si256(data[lane].add(offset + 32 * quarter).cast());
                if big_endian {
                    *row =
                        _mm256_shuffle_epi8(*row, _mm256_loadu_si256(REVERSED_64.as_ptr().cast()));
                }
            }
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
pub(super) unsafe fn block_16(
    data: &[*const u8; MAX_LANES],
    offset: usize,
    big_endian: bool,
) -> [__m512i; 16] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut rows = [_mm512_setzero_si512(); 16];
        for (lane, row) in rows.iter_mut().enumerate() {
            *row = _mm512_loadu_si512(data[lane].add(offset).cast());
            if big_endian {
                *row = _mm512_shuffle_epi8(*row, _mm512_loadu_si512(REVERSED_32.as_ptr().cast()));
            }
        }
        // After two unpackings, quad k of column j is words j, j + 4, j + 8 and j + 12 of lanes 4k to 4k + 3.
        let mut quads = [[rows[0]; 4]; 4];
        for k in 0..4 {
            let (r0, r1, r2, r3) = (
                rows[4 * k],
                rows[4 * k + 1],
                rows[4 * k + 2],
                rows[4 * k + 3],
            );
            let (low, high) = (_mm512_unpacklo_epi32(r0, r1), _mm512_unpackhi_epi32(r0, r1));
            let (low2, high2) = (_mm512_unpacklo_epi32(r2, r3), _mm512_unpackhi_epi32(r2, r3));
            quads[k][0] = _mm512_unpacklo_epi64(low, low2);
            quads[k][1] = _mm512_unpackhi_epi64(low, low2);
            quads[k][2] = _mm512_unpacklo_epi64(high, high2);
            quads[k][3] = _mm512_unpackhi_epi64(high, high2);
        }
        let mut block = rows;
        for j in 0..4 {
            let columns = exchange(quads[0][j], quads[1][j], quads[2][j], quads[3][j]);
            for (m, column) in columns.into_iter().enumerate() {
                block[4 * m + j] = column;
            }
        }
        block
    }
}

/// # Safety
/// The first 8 pointers and 128 bytes at `offset` behind them are readable; the caller enables AVX-512 F and BW.
#[inline(always)]
pub(super) unsafe fn block_8_long(
    data: &[*const u8; MAX_LANES],
    offset: usize,
    big_endian: bool,
) -> [__m512i; 16] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut block = [_mm512_setzero_si512(); 16];
        for half in 0..2 {
            let mut rows = [_mm512_setzero_si512(); 8];
            for (lane, row) in rows.iter_mut().enumerate() {
                *row = _mm512_loadu_si512(data[lane].add(offset + 64 * half).cast());
                if big_endian {
                    *row =
                        _mm512_shuffle_epi8(*row, _mm512_loadu_si512(REVERSED_64.as_ptr().cast()));
                }
            }
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
