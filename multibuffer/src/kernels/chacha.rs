//! ChaCha20-Poly1305 (RFC 8439) over many packets at once.
//!
//! A block of ChaCha20 depends on no other, so it does not matter whose blocks are computed side by side: a long packet
//! fills the lanes by itself, and short ones fill them together. Poly1305 is a chain, of which every packet has its
//! own: there a lane is a packet.
//!
//! ```text
//!   ChaCha20   ┌ key of p │ p p p p p │ key of q │ q q q q q │ key of r │ r r ┐   8 or 16 blocks at once
//!   Poly1305   lane 0  AAD │ p p p p p │ lengths │ next packet …                  4 or 8 packets at once
//!              lane 1  AAD │ q q q q q │ lengths │ …
//! ```

mod packet;
mod poly1305;
mod stream;
mod words;

use std::{marker::PhantomData, mem::MaybeUninit};

use super::{nonce::Nonce, wide::Source};
use packet::Packet;
pub(crate) use packet::{ChaChaKey, ChaChaLevel};

/// Packets that are computed together: few lanes stay empty at their end, and texts stay in a near cache between
/// passes.
///
/// MEASURED: against 16, up to 5 % more at 64 and 494 bytes, and against 64 the same (Xeon, family 6 model 207;
/// `--example versus -- chacha`).
const MAX_PACKETS: usize = 32;

/// Packets that are computed together; their keys were all made for one level.
pub(crate) struct ChaChaPackets<'a> {
    /// INVARIANT: the first `count` are there.
    packets: [MaybeUninit<Packet<'a>>; MAX_PACKETS],
    count: usize,
}

impl<'a> ChaChaPackets<'a> {
    /// How many there can be.
    pub(crate) const MAX_PACKETS: usize = MAX_PACKETS;

    /// None yet.
    pub(crate) fn none() -> Self {
        Self {
            packets: [const { MaybeUninit::uninit() }; MAX_PACKETS],
            count: 0,
        }
    }

    /// Adds a packet whose text comes from `input` and goes to `output`, which is as long.
    ///
    /// # Panics
    /// If there are [`ChaChaPackets::MAX_PACKETS`] already, or lengths differ.
    pub(crate) fn add(
        &mut self,
        key: &'a ChaChaKey,
        (nonce, aad): (Nonce, &'a [u8]),
        input: [&'a [u8]; 3],
        output: &'a mut [u8],
        tag: &'a mut [u8; 16],
    ) {
        let given: usize = input.iter().map(|part| part.len()).sum();
        assert_eq!(given, output.len(), "as much goes in as comes out");
        self.push(key, (nonce, aad), Source::new(input), output, tag);
    }

    /// Adds a packet whose text is changed in place.
    ///
    /// # Panics
    /// If there are [`ChaChaPackets::MAX_PACKETS`] already.
    pub(crate) fn add_in_place(
        &mut self,
        key: &'a ChaChaKey,
        (nonce, aad): (Nonce, &'a [u8]),
        text: &'a mut [u8],
        tag: &'a mut [u8; 16],
    ) {
        // SAFETY: the packet holds the text as long as the source is read.
        let source = unsafe { Source::in_place(text.as_ptr(), text.len()) };
        self.push(key, (nonce, aad), source, text, tag);
    }

    fn push(
        &mut self,
        key: &'a ChaChaKey,
        (nonce, aad): (Nonce, &'a [u8]),
        source: Source,
        text: &'a mut [u8],
        tag: &'a mut [u8; 16],
    ) {
        self.packets[self.count].write(Packet {
            key,
            nonce,
            aad,
            source,
            len: text.len(),
            target: text.as_mut_ptr(),
            one_time: [0; 32],
            tag,
            text: PhantomData,
        });
        self.count += 1;
    }

    /// Encrypts every text and writes the tags.
    pub(crate) fn seal(&mut self) {
        self.run::<true, true>();
        self.authenticate();
    }

    /// Writes the tag that each text, which is left as it is, ought to have.
    pub(crate) fn sign(&mut self) {
        self.run::<true, false>();
        self.authenticate();
    }

    /// Encrypts or decrypts every text; tags are left alone.
    pub(crate) fn apply(&mut self) {
        self.run::<false, true>();
    }

    fn packets(&mut self) -> (Option<ChaChaLevel>, &mut [Packet<'a>]) {
        // SAFETY: so many were written.
        let packets = unsafe { self.packets[..self.count].assume_init_mut() };
        (packets.first().map(|packet| packet.key.level), packets)
    }

    /// Computes the keys for Poly1305, the texts, or both.
    fn run<const KEYS: bool, const TEXTS: bool>(&mut self) {
        match self.packets() {
            // SAFETY: the processor has the vectors of a key's level.
            (Some(ChaChaLevel::Avx2), packets) => unsafe { stream::half::<KEYS, TEXTS>(packets) },
            // SAFETY: as above.
            (Some(_), packets) => unsafe { stream::full::<KEYS, TEXTS>(packets) },
            (None, _) => {}
        }
    }

    fn authenticate(&mut self) {
        match self.packets() {
            (Some(ChaChaLevel::Avx512Ifma), packets) => {
                poly1305::authenticate::<3, 44>(
                    poly1305::ifma::LANES,
                    packets,
                    |lane_set, blocks| {
                        // SAFETY: as above, and `authenticate` keeps the lane set's invariant.
                        unsafe { poly1305::ifma::run(lane_set, blocks) };
                    },
                );
            }
            (Some(_), packets) => {
                poly1305::authenticate::<5, 26>(
                    poly1305::avx2::LANES,
                    packets,
                    |lane_set, blocks| {
                        // SAFETY: as above.
                        unsafe { poly1305::avx2::run(lane_set, blocks) };
                    },
                );
            }
            (None, _) => {}
        }
    }
}
