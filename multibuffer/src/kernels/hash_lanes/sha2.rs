//! SHA-256, SHA-384 and SHA-512 (FIPS 180-4 6.2 to 6.5).

use super::{Algorithm, Vector};

/// SHA-256.
pub(crate) struct Sha256;
/// SHA-384: SHA-512 from another start, cut short.
pub(crate) struct Sha384;
/// SHA-512.
pub(crate) struct Sha512;

macro_rules! sha2 {
    ($name:ident, $element:ty, $digest:literal, $constants:expr, $rounds:literal,
     $big0:expr, $big1:expr, $small0:expr, $small1:expr) => {
        impl Algorithm for $name {
            type Element = $element;
            const STATE: usize = 8;
            const DIGEST: usize = $digest;
            const BIG_ENDIAN: bool = true;

            #[inline(always)]
            fn compress<V: Vector<Element = $element>>(state: &mut [V; 8], mut w: [V; 16]) {
                let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
                macro_rules! sigma {
                    ($x:expr, rotate $parts:expr) => {{
                        const PARTS: [u32; 3] = $parts;
                        let (x, size) = ($x, 8 * size_of::<$element>() as u32);
                        let [p, q, r] = PARTS;
                        V::xor3(x.rotated(size - p), x.rotated(size - q), x.rotated(size - r))
                    }};
                    ($x:expr, shift $parts:expr) => {{
                        const PARTS: [u32; 3] = $parts;
                        let (x, size) = ($x, 8 * size_of::<$element>() as u32);
                        let [p, q, r] = PARTS;
                        V::xor3(x.rotated(size - p), x.rotated(size - q), x.shifted_down(r))
                    }};
                }
                // Places in `w` are literals, so that all of it stays in registers where there are enough of them.
                macro_rules! step {
                    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident,
                     $from:ident $later:literal $t:literal) => {
                        if $later {
                            let early = sigma!(w[($t + 1) & 15], shift $small0);
                            let late = sigma!(w[($t + 14) & 15], shift $small1);
                            w[$t] = w[$t] + early + w[($t + 9) & 15] + late;
                        }
                        let sum = $h + (w[$t] + V::splat($constants[$from + $t])) + V::choose($e, $f, $g)
                            + sigma!($e, rotate $big1);
                        $d = $d + sum;
                        $h = sum + sigma!($a, rotate $big0) + V::majority($a, $b, $c);
                    };
                }
                macro_rules! eight {
                    ($from:ident $later:literal
                     $s:literal $t:literal $u:literal $v:literal $w:literal $x:literal $y:literal $z:literal) => {
                        step!(a b c d e f g h, $from $later $s);
                        step!(h a b c d e f g, $from $later $t);
                        step!(g h a b c d e f, $from $later $u);
                        step!(f g h a b c d e, $from $later $v);
                        step!(e f g h a b c d, $from $later $w);
                        step!(d e f g h a b c, $from $later $x);
                        step!(c d e f g h a b, $from $later $y);
                        step!(b c d e f g h a, $from $later $z);
                    };
                }
                let from = 0;
                eight!(from false 0 1 2 3 4 5 6 7);
                eight!(from false 8 9 10 11 12 13 14 15);
                for from in (16..$rounds).step_by(16) {
                    eight!(from true 0 1 2 3 4 5 6 7);
                    eight!(from true 8 9 10 11 12 13 14 15);
                }
                let [h0, h1, h2, h3, h4, h5, h6, h7] = *state;
                *state = [h0 + a, h1 + b, h2 + c, h3 + d, h4 + e, h5 + f, h6 + g, h7 + h];
            }
        }
    };
}

sha2!(
    Sha256,
    u32,
    32,
    CONSTANTS_256,
    64,
    [2, 13, 22],
    [6, 11, 25],
    [7, 18, 3],
    [17, 19, 10]
);
sha2!(
    Sha384,
    u64,
    48,
    CONSTANTS_512,
    80,
    [28, 34, 39],
    [14, 18, 41],
    [1, 8, 7],
    [19, 61, 6]
);
sha2!(
    Sha512,
    u64,
    64,
    CONSTANTS_512,
    80,
    [28, 34, 39],
    [14, 18, 41],
    [1, 8, 7],
    [19, 61, 6]
);

/// The high halves of the first 64 of [`CONSTANTS_512`].
pub(super) static CONSTANTS_256: [u32; 64] = {
    let mut constants = [0; 64];
    let mut at = 0;
    while at < 64 {
        constants[at] = (CONSTANTS_512[at] >> 32) as u32;
        at += 1;
    }
    constants
};

/// The first 64 bits of the fractional parts of the cube roots of the first 80 primes.
const CONSTANTS_512: [u64; 80] = [
    0x428a_2f98_d728_ae22,
    0x7137_4491_23ef_65cd,
    0xb5c0_fbcf_ec4d_3b2f,
    0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538,
    0x59f1_11f1_b605_d019,
    0x923f_82a4_af19_4f9b,
    0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242,
    0x1283_5b01_4570_6fbe,
    0x2431_85be_4ee4_b28c,
    0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f,
    0x80de_b1fe_3b16_96b1,
    0x9bdc_06a7_25c7_1235,
    0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2,
    0xefbe_4786_384f_25e3,
    0x0fc1_9dc6_8b8c_d5b5,
    0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275,
    0x4a74_84aa_6ea6_e483,
    0x5cb0_a9dc_bd41_fbd4,
    0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab,
    0xa831_c66d_2db4_3210,
    0xb003_27c8_98fb_213f,
    0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2,
    0xd5a7_9147_930a_a725,
    0x06ca_6351_e003_826f,
    0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc,
    0x2e1b_2138_5c26_c926,
    0x4d2c_6dfc_5ac4_2aed,
    0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de,
    0x766a_0abb_3c77_b2a8,
    0x81c2_c92e_47ed_aee6,
    0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364,
    0xa81a_664b_bc42_3001,
    0xc24b_8b70_d0f8_9791,
    0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218,
    0xd699_0624_5565_a910,
    0xf40e_3585_5771_202a,
    0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8,
    0x1e37_6c08_5141_ab53,
    0x2748_774c_df8e_eb99,
    0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63,
    0x4ed8_aa4a_e341_8acb,
    0x5b9c_ca4f_7763_e373,
    0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc,
    0x78a5_636f_4317_2f60,
    0x84c8_7814_a1f0_ab72,
    0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28,
    0xa450_6ceb_de82_bde9,
    0xbef9_a3f7_b2c6_7915,
    0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c,
    0xd186_b8c7_21c0_c207,
    0xeada_7dd6_cde0_eb1e,
    0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba,
    0x0a63_7dc5_a2c8_98a6,
    0x113f_9804_bef9_0dae,
    0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84,
    0x32ca_ab7b_40c7_2493,
    0x3c9e_be0a_15c9_bebc,
    0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6,
    0x597f_299c_fc65_7e2a,
    0x5fcb_6fab_3ad6_faec,
    0x6c44_198c_4a47_5817,
];
