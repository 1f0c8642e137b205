//! A key for the vectors that it was made for, and a packet under it.

use std::marker::PhantomData;

use zeroize::Zeroizing;

use crate::features::Features;
use crate::kernels::{nonce::Nonce, wide::Source};

/// A key, which ChaCha20 uses without expansion.
pub(crate) struct ChaChaKey {
    pub(super) bytes: Zeroizing<[u8; 32]>,
    /// INVARIANT: the processor has the vectors.
    pub(super) level: ChaChaLevel,
}

/// Which vectors there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChaChaLevel {
    /// AVX2.
    Avx2,
    /// AVX-512 F, BW and VL, and AVX2 for Poly1305.
    Avx512,
    /// AVX-512 with products of 52 bits.
    Avx512Ifma,
}

impl ChaChaLevel {
    /// The widest, if there is any.
    pub(crate) fn best(features: Features) -> Option<Self> {
        match features {
            features if features.avx512 && features.ifma => Some(Self::Avx512Ifma),
            features if features.avx512 => Some(Self::Avx512),
            features => features.avx2.then_some(Self::Avx2),
        }
    }
}

impl ChaChaKey {
    /// The longest text for which this is faster than the library, whose AVX2 code computes the products of long texts
    /// by scalar instructions in parallel.
    pub(crate) fn max_bytes(&self) -> usize {
        match self.level {
            ChaChaLevel::Avx2 => MAX_BYTES_WITHOUT_AVX512,
            ChaChaLevel::Avx512 | ChaChaLevel::Avx512Ifma => usize::MAX,
        }
    }

    /// The key for the vectors of `level`.
    ///
    /// # Safety
    /// The processor has them.
    pub(in crate::kernels) unsafe fn for_level(level: ChaChaLevel, key: [u8; 32]) -> Self {
        let bytes = Zeroizing::new(key);
        Self { bytes, level }
    }
}

/// See [`ChaChaKey::max_bytes`].
const MAX_BYTES_WITHOUT_AVX512: usize = 256;

/// One packet's text with what authenticates it.
pub(super) struct Packet<'a> {
    pub(super) key: &'a ChaChaKey,
    pub(super) nonce: Nonce,
    pub(super) aad: &'a [u8],
    pub(super) source: Source,
    /// INVARIANT: good for reading and writing `len` bytes, and the source has as many.
    pub(super) target: *mut u8,
    pub(super) len: usize,
    /// The first half of block 0: what Poly1305 multiplies with, and what it adds.
    pub(super) one_time: [u8; 32],
    pub(super) tag: &'a mut [u8; 16],
    pub(super) text: PhantomData<&'a mut [u8]>,
}
