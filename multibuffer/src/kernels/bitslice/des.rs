//! DES on bit planes (FIPS 46-3). Permutations cost nothing here: they only change which plane is read.

use super::{sboxes, word::Word};

/// Plane *n* holds bit *n* of every block, where a block is a big-endian number: what the standard calls bit 1 is
/// bit 63 here.
pub(super) type Planes<W> = [W; 64];

/// Encrypts or decrypts all lanes; `key` holds the planes of the lanes' keys.
#[inline(always)]
pub(super) fn des<W: Word>(planes: &mut Planes<W>, key: &Planes<W>, decrypting: bool) {
    let mut left: [W; 32] = [W::splat(0); 32];
    let mut right = left;
    for at in 0..32 {
        left[at] = planes[64 - INITIAL[at] as usize];
        right[at] = planes[64 - INITIAL[at + 32] as usize];
    }
    for pair in 0..8 {
        let (first, second) = if decrypting {
            (15 - 2 * pair, 14 - 2 * pair)
        } else {
            (2 * pair, 2 * pair + 1)
        };
        round(&mut left, &right, key, &SCHEDULE[first]);
        round(&mut right, &left, key, &SCHEDULE[second]);
    }
    // The halves leave in exchanged order, through the inverse of the initial permutation.
    for at in 0..32 {
        planes[64 - INITIAL[at] as usize] = right[at];
        planes[64 - INITIAL[at + 32] as usize] = left[at];
    }
}

/// `left ^= f(right, key)`.
#[inline(always)]
fn round<W: Word>(left: &mut [W; 32], right: &[W; 32], key: &Planes<W>, schedule: &[u8; 48]) {
    // A macro, because vector operations inside a closure would not be compiled with the caller's instructions.
    macro_rules! sbox {
        ($($number:literal $circuit:ident)*) => {$(
            let output = sboxes::$circuit([
                sbox!(@input $number, 0), sbox!(@input $number, 1), sbox!(@input $number, 2),
                sbox!(@input $number, 3), sbox!(@input $number, 4), sbox!(@input $number, 5),
            ]);
            sbox!(@output $number, 0, output);
            sbox!(@output $number, 1, output);
            sbox!(@output $number, 2, output);
            sbox!(@output $number, 3, output);
        )*};
        (@input $number:literal, $bit:literal) => {
            right[(4 * $number + $bit + 31) % 32] ^ key[schedule[6 * $number + $bit] as usize & 63]
        };
        (@output $number:literal, $bit:literal, $output:ident) => {{
            const TO: usize = PERMUTED[4 * $number + $bit] as usize;
            left[TO] = left[TO] ^ $output[$bit];
        }};
    }
    sbox!(0 s1 1 s2 2 s3 3 s4 4 s5 5 s6 6 s7 7 s8);
}

/// Exchanges rows and columns of each 64 × 64 matrix of bits: blocks to planes, and planes to blocks.
#[inline(always)]
pub(super) fn transpose<W: Word>(rows: &mut Planes<W>) {
    exchange::<W, 32>(rows, 0x0000_0000_ffff_ffff);
    exchange::<W, 16>(rows, 0x0000_ffff_0000_ffff);
    exchange::<W, 8>(rows, 0x00ff_00ff_00ff_00ff);
    exchange::<W, 4>(rows, 0x0f0f_0f0f_0f0f_0f0f);
    exchange::<W, 2>(rows, 0x3333_3333_3333_3333);
    exchange::<W, 1>(rows, 0x5555_5555_5555_5555);
}

/// Exchanges the off-diagonal quarters of each square of `2 * BY` rows and columns.
#[inline(always)]
fn exchange<W: Word, const BY: u32>(rows: &mut Planes<W>, low: u64) {
    let (low, by) = (W::splat(low), BY as usize);
    for square in (0..64).step_by(2 * by) {
        for row in square..square + by {
            let differing = (rows[row].down::<BY>() ^ rows[row + by]) & low;
            rows[row] = rows[row] ^ differing.up::<BY>();
            rows[row + by] = rows[row + by] ^ differing;
        }
    }
}

/// IP of the standard: which bit (1 to 64) comes first, second, …
const INITIAL: [u8; 64] = {
    let mut table = [0; 64];
    let mut at = 0;
    while at < 64 {
        // Even bits from 58 down by eights, then the odd ones; each row of eight starts two higher.
        let (row, column) = (at / 8, at % 8);
        let start = if row < 4 {
            58 + 2 * row
        } else {
            57 + 2 * (row - 4)
        };
        table[at] = (start - 8 * column) as u8;
        at += 1;
    }
    table
};

/// P of the standard.
const P: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19,
    13, 30, 6, 22, 11, 4, 25,
];

/// Where each output bit of the S-boxes goes: P read backwards, counted from 0.
const PERMUTED: [u8; 32] = {
    let mut table = [0; 32];
    let mut at = 0;
    while at < 32 {
        table[P[at] as usize - 1] = at as u8;
        at += 1;
    }
    table
};

/// PC-1 of the standard.
const CHOICE_1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60,
    52, 44, 36, 63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29,
    21, 13, 5, 28, 20, 12, 4,
];

/// PC-2 of the standard.
const CHOICE_2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2, 41, 52,
    31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];

/// Which key plane each S-box input bit of each round is mixed with.
const SCHEDULE: [[u8; 48]; 16] = {
    let mut schedule = [[0; 48]; 16];
    let mut rotation = 0;
    let mut round = 0;
    while round < 16 {
        rotation += if matches!(round, 0 | 1 | 8 | 15) {
            1
        } else {
            2
        };
        let mut at = 0;
        while at < 48 {
            let chosen = CHOICE_2[at] as usize - 1;
            let (half, place) = (chosen / 28, chosen % 28);
            schedule[round][at] = 64 - CHOICE_1[28 * half + (place + rotation) % 28];
            at += 1;
        }
        round += 1;
    }
    schedule
};

#[cfg(test)]
mod tests {
    use super::*;

    fn encrypt(key: u64, block: u64, decrypting: bool) -> u64 {
        let planes = |number: u64| {
            std::array::from_fn(|bit| if number >> bit & 1 == 1 { u64::MAX } else { 0 })
        };
        let mut text: Planes<u64> = planes(block);
        des(&mut text, &planes(key), decrypting);
        text.iter()
            .enumerate()
            .fold(0, |number, (bit, plane)| number | (plane & 1) << bit)
    }

    #[test]
    fn the_answer_of_fips_81_comes_out_and_goes_back() {
        let (key, plain, sealed) = (
            0x0123_4567_89ab_cdef,
            0x4e6f_7720_6973_2074,
            0x3fa4_0e8a_984d_4815,
        );
        assert_eq!(encrypt(key, plain, false), sealed);
        assert_eq!(encrypt(key, sealed, true), plain);
    }

    #[test]
    fn transposition_exchanges_rows_and_columns() {
        let mut rows: Planes<u64> =
            std::array::from_fn(|row| (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let before = rows;
        transpose(&mut rows);
        for (row, bits) in rows.iter().enumerate() {
            for (column, original) in before.iter().enumerate() {
                assert_eq!(bits >> column & 1, original >> row & 1);
            }
        }
    }
}
