//! RIPEMD-160 (ISO/IEC 10118-3): two lines of five rounds that meet at the end.

use super::{Algorithm, Vector};

/// RIPEMD-160.
pub(crate) struct Ripemd160;

impl Algorithm for Ripemd160 {
    type Element = u32;
    const STATE: usize = 5;
    const DIGEST: usize = 20;
    const BIG_ENDIAN: bool = false;

    #[inline(always)]
    fn compress<V: Vector<Element = u32>>(state: &mut [V; 8], w: [V; 16]) {
        let [h0, h1, h2, h3, h4, h5, h6, h7] = *state;
        macro_rules! line {
            ($words:ident, $rotations:ident, $constants:ident, $($function:ident)*) => {{
                let (mut a, mut b, mut c, mut d, mut e) = (h0, h1, h2, h3, h4);
                let mut round = 0;
                $(
                    let constant = V::splat($constants[round]);
                    for at in 0..16 {
                        let word = w[$words[round][at] as usize & 15];
                        let sum = (a + $function(b, c, d) + (word + constant)).rotated($rotations[round][at] as u32);
                        (a, e, d, c, b) = (e, d, c.rotated(10), b, sum + e);
                    }
                    round += 1;
                )*
                let _ = round;
                [a, b, c, d, e]
            }};
        }
        let [a, b, c, d, e] = line!(WORDS, ROTATIONS, CONSTANTS, f1 f2 f3 f4 f5);
        let [v, x, y, z, u] = line!(WORDS_RIGHT, ROTATIONS_RIGHT, CONSTANTS_RIGHT, f5 f4 f3 f2 f1);
        *state = [
            h1 + c + z,
            h2 + d + u,
            h3 + e + v,
            h4 + a + x,
            h0 + b + y,
            h5,
            h6,
            h7,
        ];
    }
}

#[inline(always)]
fn f1<V: Vector>(x: V, y: V, z: V) -> V {
    V::xor3(x, y, z)
}

#[inline(always)]
fn f2<V: Vector>(x: V, y: V, z: V) -> V {
    V::choose(x, y, z)
}

#[inline(always)]
fn f3<V: Vector>(x: V, y: V, z: V) -> V {
    V::or_not(x, y) ^ z
}

#[inline(always)]
fn f4<V: Vector>(x: V, y: V, z: V) -> V {
    V::choose(z, x, y)
}

#[inline(always)]
fn f5<V: Vector>(x: V, y: V, z: V) -> V {
    V::or_not(y, z) ^ x
}

const CONSTANTS: [u32; 5] = [0, 0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xa953_fd4e];
const CONSTANTS_RIGHT: [u32; 5] = [0x50a2_8be6, 0x5c4d_d124, 0x6d70_3ef3, 0x7a6d_76e9, 0];

const WORDS: [[u8; 16]; 5] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [7, 4, 13, 1, 10, 6, 15, 3, 12, 0, 9, 5, 2, 14, 11, 8],
    [3, 10, 14, 4, 9, 15, 8, 1, 2, 7, 0, 6, 13, 11, 5, 12],
    [1, 9, 11, 10, 0, 8, 12, 4, 13, 3, 7, 15, 14, 5, 6, 2],
    [4, 0, 5, 9, 7, 12, 2, 10, 14, 1, 3, 8, 11, 6, 15, 13],
];
const WORDS_RIGHT: [[u8; 16]; 5] = [
    [5, 14, 7, 0, 9, 2, 11, 4, 13, 6, 15, 8, 1, 10, 3, 12],
    [6, 11, 3, 7, 0, 13, 5, 10, 14, 15, 8, 12, 4, 9, 1, 2],
    [15, 5, 1, 3, 7, 14, 6, 9, 11, 8, 12, 2, 10, 0, 4, 13],
    [8, 6, 4, 1, 3, 11, 15, 0, 5, 12, 2, 13, 9, 7, 10, 14],
    [12, 15, 10, 4, 1, 5, 8, 7, 6, 2, 13, 14, 0, 3, 9, 11],
];
const ROTATIONS: [[u8; 16]; 5] = [
    [11, 14, 15, 12, 5, 8, 7, 9, 11, 13, 14, 15, 6, 7, 9, 8],
    [7, 6, 8, 13, 11, 9, 7, 15, 7, 12, 15, 9, 11, 7, 13, 12],
    [11, 13, 6, 7, 14, 9, 13, 15, 14, 8, 13, 6, 5, 12, 7, 5],
    [11, 12, 14, 15, 14, 15, 9, 8, 9, 14, 5, 6, 8, 6, 5, 12],
    [9, 15, 5, 11, 6, 8, 13, 12, 5, 12, 13, 14, 11, 8, 5, 6],
];
const ROTATIONS_RIGHT: [[u8; 16]; 5] = [
    [8, 9, 9, 11, 13, 15, 15, 5, 7, 7, 8, 11, 14, 14, 12, 6],
    [9, 13, 15, 7, 12, 8, 9, 11, 7, 7, 12, 7, 6, 15, 13, 11],
    [9, 7, 15, 11, 8, 6, 6, 14, 12, 13, 5, 14, 13, 13, 7, 5],
    [15, 5, 8, 11, 14, 14, 6, 14, 6, 9, 12, 9, 12, 5, 15, 8],
    [8, 5, 12, 9, 12, 5, 14, 6, 8, 13, 6, 5, 15, 13, 11, 11],
];
