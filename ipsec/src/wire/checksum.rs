//! The Internet checksum (RFC 1071): over pieces, over a pseudo-header, and mended in place (RFC 1624).
//!
//! A ones' complement sum does not care about byte order until its end (RFC 1071 2(B)), so words are added as the
//! machine reads them, and swapped and folded to 16 bits once.

use multibuffer::word_sum;
use std::net::IpAddr;

/// A ones' complement sum that grows piece by piece; a piece may have an odd length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// In the machine's byte order, not folded to the end.
    ///
    /// INVARIANT: each piece adds less than 2^34, so that 2^30 pieces would fit.
    words: u64,
    /// Whether an odd number of bytes went in, so that the next piece is shifted by one byte.
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    pub const fn new() -> Self {
        Self {
            words: 0,
            odd: false,
        }
    }

    /// Adds the bytes that follow those added before.
    #[must_use]
    pub fn bytes(self, piece: &[u8]) -> Self {
        let sum = self.plus(word_sum(piece));
        Self {
            odd: self.odd ^ (piece.len() % 2 == 1),
            ..sum
        }
    }

    /// Adds the sum of whole words.
    fn plus(self, sum: u64) -> Self {
        let aligned = if self.odd {
            fold(sum).swap_bytes().into()
        } else {
            (sum & 0xffff_ffff) + (sum >> 32)
        };
        Self {
            words: self.words + aligned,
            ..self
        }
    }

    /// Adds one 16-bit word of the header.
    #[must_use]
    pub fn word(self, word: u16) -> Self {
        self.plus(word.to_be().into())
    }

    /// Adds the pseudo-header of TCP, UDP and ICMPv6 (RFC 9293 3.1, RFC 8200 8.1). Both addresses are of one family.
    #[must_use]
    pub fn pseudo_header(
        self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        upper_len: usize,
    ) -> Self {
        let len = u32::try_from(upper_len).unwrap_or(u32::MAX);
        let numbers = u64::from(len.to_be()) + u64::from(u32::from(protocol).to_be());
        self.plus(numbers + address_sum(source) + address_sum(destination))
    }

    /// The sum itself, not complemented: what a kernel expects in the checksum field of a packet with checksum offload.
    pub fn unfinished(self) -> u16 {
        u16::from_be(self.folded())
    }

    /// The checksum: the complement of the sum. Over a packet whose checksum is in place it is 0.
    pub fn finish(self) -> u16 {
        !self.unfinished()
    }

    /// The checksum for a UDP header, where 0 means "none" and 0xffff replaces 0 (RFC 768).
    pub fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            sum => sum,
        }
    }

    fn folded(self) -> u16 {
        fold(self.words)
    }
}

/// The checksum over pieces that follow each other.
pub fn over(pieces: &[&[u8]]) -> u16 {
    pieces
        .iter()
        .fold(Sum::new(), |sum, piece| sum.bytes(piece))
        .finish()
}

/// Mends a checksum after one aligned 16-bit word of what it covers changed (RFC 1624 3, equation 3).
#[must_use]
pub fn mend(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u64::from(!checksum) + u64::from(!old) + u64::from(new);
    !fold(sum)
}

/// The words of an address, in the machine's order.
fn address_sum(address: IpAddr) -> u64 {
    let bytes = match &address {
        IpAddr::V4(v4) => return u64::from(u32::from_ne_bytes(v4.octets())),
        IpAddr::V6(v6) => v6.octets(),
    };
    let (words, _) = bytes.as_chunks::<4>();
    words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum()
}

/// Adds carries back until 16 bits are left.
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 as it reads: pairs of bytes in network order, one by one.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071_sums_to_ddf2() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::new().bytes(&bytes).unfinished(), 0xddf2);
        assert_eq!(over(&[&bytes]), 0x220d);
    }

    #[test]
    fn the_example_of_rfc_1624_is_mended_to_zero() {
        assert_eq!(mend(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn the_largest_packet_of_ones_does_not_overflow() {
        let ones = vec![0xff; 65535];
        assert_eq!(over(&[&ones]), naive(&ones));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_have_the_sum_of_rfc_1071(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.sort_unstable();
            at.push(bytes.len());
            let mut start = 0;
            let mut sum = Sum::new();
            for end in at {
                sum = sum.bytes(&bytes[start..end]);
                start = end;
            }
            prop_assert_eq!(sum.finish(), naive(&bytes));
        }

        #[test]
        fn a_mended_checksum_verifies_like_one_computed_anew(
            mut bytes in proptest::collection::vec(any::<u8>(), 4..200),
            at in any::<prop::sample::Index>(),
            new in any::<u16>(),
        ) {
            bytes.truncate(bytes.len() / 2 * 2);
            let at = at.index(bytes.len() / 2) * 2;
            let before = over(&[&bytes]);
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            let mended = mend(before, old, new);
            prop_assert_eq!(Sum::new().bytes(&bytes).word(mended).finish(), 0);
        }
    }
}
