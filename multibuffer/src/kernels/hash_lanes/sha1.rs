//! SHA-1 (FIPS 180-4 6.1).

use super::{Algorithm, Vector};

/// SHA-1.
pub(crate) struct Sha1;

impl Algorithm for Sha1 {
    type Element = u32;
    const STATE: usize = 5;
    const DIGEST: usize = 20;
    const BIG_ENDIAN: bool = true;

    #[inline(always)]
    fn compress<V: Vector<Element = u32>>(state: &mut [V; 8], mut w: [V; 16]) {
        let [mut a, mut b, mut c, mut d, mut e, ..] = *state;
        macro_rules! step {
            ($a:ident $b:ident $c:ident $d:ident $e:ident, $t:expr, $mix:expr, $constant:ident) => {
                let t = $t;
                if t >= 16 {
                    let mixed =
                        V::xor3(w[(t + 13) & 15], w[(t + 8) & 15], w[(t + 2) & 15]) ^ w[t & 15];
                    w[t & 15] = mixed.rotated(1);
                }
                $e = $e + $a.rotated(5) + $mix + w[t & 15] + $constant;
                $b = $b.rotated(30);
            };
        }
        macro_rules! twenty {
            ($from:literal, $constant:literal, |$x:ident, $y:ident, $z:ident| $mix:expr) => {
                let constant = V::splat($constant);
                for t in ($from..$from + 20).step_by(5) {
                    step!(a b c d e, t, { let ($x, $y, $z) = (b, c, d); $mix }, constant);
                    step!(e a b c d, t + 1, { let ($x, $y, $z) = (a, b, c); $mix }, constant);
                    step!(d e a b c, t + 2, { let ($x, $y, $z) = (e, a, b); $mix }, constant);
                    step!(c d e a b, t + 3, { let ($x, $y, $z) = (d, e, a); $mix }, constant);
                    step!(b c d e a, t + 4, { let ($x, $y, $z) = (c, d, e); $mix }, constant);
                }
            };
        }
        twenty!(0, 0x5a82_7999, |x, y, z| V::choose(x, y, z));
        twenty!(20, 0x6ed9_eba1, |x, y, z| V::xor3(x, y, z));
        twenty!(40, 0x8f1b_bcdc, |x, y, z| V::majority(x, y, z));
        twenty!(60, 0xca62_c1d6, |x, y, z| V::xor3(x, y, z));
        let [h0, h1, h2, h3, h4, rest @ ..] = *state;
        let [h5, h6, h7] = rest;
        *state = [h0 + a, h1 + b, h2 + c, h3 + d, h4 + e, h5, h6, h7];
    }
}
