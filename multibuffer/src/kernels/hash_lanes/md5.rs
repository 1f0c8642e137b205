//! MD5 (RFC 1321 3.4).

use super::{Algorithm, Vector};

/// MD5.
pub(crate) struct Md5;

impl Algorithm for Md5 {
    type Element = u32;
    const STATE: usize = 4;
    const DIGEST: usize = 16;
    const BIG_ENDIAN: bool = false;

    #[inline(always)]
    fn compress<V: Vector<Element = u32>>(state: &mut [V; 8], w: [V; 16]) {
        let [mut a, mut b, mut c, mut d, ..] = *state;
        macro_rules! step {
            ($a:ident $b:ident, $mix:expr, $t:expr, $word:expr, $by:literal) => {
                let sum = $a + $mix + (w[$word & 15] + V::splat(SINES[$t]));
                $a = $b + sum.rotated($by);
            };
        }
        macro_rules! sixteen {
            ($from:literal, |$t:ident| $word:expr, $r0:literal $r1:literal $r2:literal $r3:literal,
             |$x:ident, $y:ident, $z:ident| $mix:expr) => {
                for first in ($from..$from + 16).step_by(4) {
                    step!(a b, { let ($x, $y, $z) = (b, c, d); $mix }, first, { let $t = first; $word }, $r0);
                    step!(d a, { let ($x, $y, $z) = (a, b, c); $mix }, first + 1, { let $t = first + 1; $word }, $r1);
                    step!(c d, { let ($x, $y, $z) = (d, a, b); $mix }, first + 2, { let $t = first + 2; $word }, $r2);
                    step!(b c, { let ($x, $y, $z) = (c, d, a); $mix }, first + 3, { let $t = first + 3; $word }, $r3);
                }
            };
        }
        sixteen!(0, |t| t, 7 12 17 22, |x, y, z| V::choose(x, y, z));
        sixteen!(16, |t| 5 * t + 1, 5 9 14 20, |x, y, z| V::choose(z, x, y));
        sixteen!(32, |t| 3 * t + 5, 4 11 16 23, |x, y, z| V::xor3(x, y, z));
        sixteen!(48, |t| 7 * t, 6 10 15 21, |x, y, z| V::or_not(x, z) ^ y);
        let [h0, h1, h2, h3, rest @ ..] = *state;
        let [h4, h5, h6, h7] = rest;
        *state = [h0 + a, h1 + b, h2 + c, h3 + d, h4, h5, h6, h7];
    }
}

/// The whole part of 2^32 times the absolute sine of 1 to 64.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];
