//! Comparison of ICVs in a time that does not depend on where they differ.
//!
//! Eight bytes at a time: byte by byte the comparison would cost a short packet as much as its encryption.

use std::hint::black_box;

/// Whether `found` equals `expected`; their lengths are not secret.
#[must_use]
#[inline]
pub fn constant_time_eq(expected: &[u8], found: &[u8]) -> bool {
    if expected.len() != found.len() {
        return false;
    }
    let ((whole, rest), (found, found_rest)) = (expected.as_chunks::<8>(), found.as_chunks::<8>());
    let words = whole.iter().zip(found);
    let mut different = words.fold(0, |different, (expected, found)| {
        different | (u64::from_ne_bytes(*expected) ^ u64::from_ne_bytes(*found))
    });
    for (expected, found) in rest.iter().zip(found_rest) {
        different |= u64::from(expected ^ found);
    }
    // Hides from the compiler that only zero or not is tested, or it might stop early.
    let different = black_box(different);
    #[cfg(feature = "memcheck")]
    crate::memcheck::publish(&different);
    different == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_anywhere_makes_a_difference_and_so_does_a_byte_more() {
        for len in 0..=64 {
            let icv: Vec<u8> = (0..len as u8).collect();
            assert!(constant_time_eq(&icv, &icv.clone()));
            assert!(!constant_time_eq(&icv, &[icv.as_slice(), &[0]].concat()));
            for bit in 0..8 * len {
                let mut other = icv.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!constant_time_eq(&icv, &other), "bit {bit} of {len} bytes");
            }
        }
    }
}
