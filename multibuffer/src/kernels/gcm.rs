//! AES-GCM and GMAC (SP 800-38D) in one pass over a packet, for packets of any length.
//!
//! Libraries are written for long texts: for each packet they check, copy and set up as much as a short packet costs in
//! all. Here a packet is one stretch of straight code, short enough for the processor to begin the next while this one
//! is still running, which interleaves several packets. Sealing reads the three input ranges in place.
//!
//! ```text
//!   input ranges ──► ⊕ keystream ──► output        16 vectors or less, then products with powers of H
//!                        AAD │ ciphertext │ lengths ──► Σ block·Hⁿ ──► one reduction ──► ⊕ E(J0) = ICV
//! ```

mod ghash;

use std::arch::x86_64::{__m128i, _mm_set_epi64x, _mm_setzero_si128};

use super::{
    aesni::{RoundKeys, expand},
    nonce::Nonce,
    prefetch,
    wide::{AesLevel, Counters, Four, One, Schedule, Source, Two, Wide},
};
use ghash::{Powers, Sum, VECTORS_AT_ONCE, reversed};

/// Blocks that are hashed beside the text: the associated data and the lengths.
const EXTRA_BLOCKS: usize = 2;

/// An expanded key.
pub(crate) struct GcmKey {
    keys: RoundKeys,
    powers: Powers,
    /// INVARIANT: the processor has these vectors.
    level: AesLevel,
}

/// A packet, as the kernels see it.
struct Packet<'a> {
    key: &'a GcmKey,
    nonce: Nonce,
    aad: [&'a [u8]; 3],
    source: Source,
    /// INVARIANT: good for writing `len` bytes, and the source has as many.
    target: *mut u8,
    len: usize,
}

impl GcmKey {
    /// Expands 16, 24 or 32 bytes for the vectors of `level`.
    ///
    /// # Safety
    /// The processor has them, and carry-less products.
    pub(super) unsafe fn for_level(level: AesLevel, key: &[u8]) -> Self {
        // SAFETY: the caller promises the instructions of a level, which include those of the first.
        let (keys, powers) = unsafe {
            let keys = expand(key);
            let powers = hash_key(&keys);
            (keys, powers)
        };
        Self {
            keys,
            powers,
            level,
        }
    }

    /// Whether this kernel is faster than the library for `len` bytes.
    pub(crate) fn is_faster_for(&self, len: usize) -> bool {
        self.level != AesLevel::One || len <= MAX_BYTES_WITHOUT_VAES
    }

    /// Prefetches the round keys and as many powers as a packet of `len` bytes needs.
    #[inline]
    pub(crate) fn prefetch_for(&self, len: usize) {
        prefetch(self.keys.as_blocks());
        prefetch(self.powers.for_blocks(len.div_ceil(16) + EXTRA_BLOCKS));
    }

    /// Encrypts `input` into `output`, which is as long, and returns the tag.
    #[inline]
    pub(crate) fn seal(
        &self,
        nonce: Nonce,
        aad: &[u8],
        input: [&[u8]; 3],
        output: &mut [u8],
    ) -> [u8; 16] {
        let len = output.len();
        assert_eq!(
            len,
            input.iter().map(|part| part.len()).sum::<usize>(),
            "as much goes in as comes out"
        );
        self.run::<true>(Packet {
            key: self,
            nonce,
            aad: [aad, &[], &[]],
            source: Source::new(input),
            target: output.as_mut_ptr(),
            len,
        })
    }

    /// Decrypts `text` in place and returns the tag that it ought to have.
    pub(crate) fn open(&self, nonce: Nonce, aad: &[u8], text: &mut [u8]) -> [u8; 16] {
        let (target, len) = (text.as_mut_ptr(), text.len());
        self.run::<false>(Packet {
            key: self,
            nonce,
            aad: [aad, &[], &[]],
            // SAFETY: `text` outlives the packet, and nothing else refers to it meanwhile.
            source: unsafe { Source::in_place(target, len) },
            target,
            len,
        })
    }

    /// The tag over `message` alone.
    pub(crate) fn sign(&self, nonce: Nonce, message: [&[u8]; 3]) -> [u8; 16] {
        self.run::<true>(Packet {
            key: self,
            nonce,
            aad: message,
            source: Source::new([&[]; 3]),
            target: std::ptr::null_mut(),
            len: 0,
        })
    }

    #[inline]
    fn run<const SEALING: bool>(&self, packet: Packet<'_>) -> [u8; 16] {
        // SAFETY: the processor has the vectors of its level.
        unsafe {
            match self.level {
                AesLevel::One => one::<SEALING>(packet),
                AesLevel::Two => two::<SEALING>(packet),
                AesLevel::Four => four::<SEALING>(packet),
            }
        }
    }
}

/// The longest packet for which AES-NI does better here than in the library, which has nothing to set up but is
/// written for long texts.
const MAX_BYTES_WITHOUT_VAES: usize = 256;

#[target_feature(enable = "aes,pclmulqdq,ssse3,sse4.1")]
unsafe fn hash_key(keys: &RoundKeys) -> Powers {
    let zero = _mm_setzero_si128();
    // SAFETY: the caller has the instructions.
    Powers::of(unsafe { block(keys, One(zero)) })
}

/// One block enciphered.
#[inline(always)]
unsafe fn block(keys: &RoundKeys, text: One) -> __m128i {
    let schedule = Schedule::of(keys);
    // SAFETY: the schedule is of these keys, which have as many rounds.
    let [text] = unsafe {
        match keys.rounds() {
            10 => schedule.encrypt::<One, 10, 1>([text]),
            12 => schedule.encrypt::<One, 12, 1>([text]),
            _ => schedule.encrypt::<One, 14, 1>([text]),
        }
    };
    text.0
}

macro_rules! widths {
    ($($name:ident $vector:ident $features:literal;)*) => {$(
        #[target_feature(enable = $features)]
        unsafe fn $name<const SEALING: bool>(packet: Packet<'_>) -> [u8; 16] {
            // SAFETY: the caller has the instructions, and the packet keeps its invariants.
            unsafe {
                match packet.key.keys.rounds() {
                    10 => crypt::<$vector, 10, SEALING>(packet),
                    12 => crypt::<$vector, 12, SEALING>(packet),
                    _ => crypt::<$vector, 14, SEALING>(packet),
                }
            }
        }
    )*};
}

widths! {
    one One "aes,pclmulqdq,ssse3,sse4.1";
    two Two "aes,pclmulqdq,vaes,vpclmulqdq,avx2";
    four Four "aes,pclmulqdq,vaes,vpclmulqdq,avx2,avx512f,avx512bw,avx512vl";
}

/// # Safety
/// The processor has `W`, and the key as many rounds.
#[inline(always)]
unsafe fn crypt<W: Wide, const ROUNDS: usize, const SEALING: bool>(packet: Packet<'_>) -> [u8; 16] {
    let Packet {
        key,
        nonce,
        aad,
        mut source,
        mut target,
        len,
    } = packet;
    let (schedule, powers) = (Schedule::of(&key.keys), &key.powers);
    let together = VECTORS_AT_ONCE * W::BYTES;
    let aad_len: usize = aad.iter().map(|part| part.len()).sum();
    // SAFETY: the schedule is of a key with as many rounds; the source has `len` bytes and `target` room for them; and
    // the powers reach as far as there are blocks in a stretch with the two around it.
    unsafe {
        let mut counters = Counters::<W>::from(nonce, 2);
        let mut hash = Hash::begin::<W>(powers, Source::new(aad), aad_len);
        let mut left = len;
        while left >= together {
            let keystream = [
                counters.next(),
                counters.next(),
                counters.next(),
                counters.next(),
            ];
            let keystream = schedule.encrypt::<W, ROUNDS, VECTORS_AT_ONCE>(keystream);
            let mut sum = Sum::<W>::nothing();
            let before = W::first(hash.settled(powers));
            for (at, keystream) in keystream.iter().enumerate() {
                let text: W = source.whole();
                let result = text.xor(*keystream);
                result.store(target.add(at * W::BYTES));
                let sealed = reversed(if SEALING { result } else { text });
                let sealed = if at == 0 { sealed.xor(before) } else { sealed };
                sum.add(sealed, powers.from((VECTORS_AT_ONCE - at) * W::BLOCKS));
            }
            hash = Hash::Settled(sum.reduced());
            target = target.add(together);
            left -= together;
        }
        // The rest, and the lengths behind it.
        let blocks = left.div_ceil(16);
        let mut sum = Sum::<W>::nothing();
        hash.add_to(&mut sum, powers, blocks + 1);
        let lengths = _mm_set_epi64x(8 * aad_len as i64, 8 * len as i64);
        sum.add(W::first(lengths), powers.from(1));
        let mut next = blocks + 1;
        while left > 0 {
            let [keystream] = schedule.encrypt::<W, ROUNDS, 1>([counters.next()]);
            let now = left.min(W::BYTES);
            let text: W = if now == W::BYTES {
                source.whole()
            } else {
                source.some(now)
            };
            let result = text.xor(keystream);
            let sealed = if now == W::BYTES {
                result.store(target);
                if SEALING { result } else { text }
            } else {
                result.store_some(target, now);
                if SEALING { result.truncated(now) } else { text }
            };
            sum.add(reversed(sealed), powers.from(next));
            // Past the last block it is no longer read from.
            next = next.saturating_sub(W::BLOCKS);
            target = target.add(now);
            left -= now;
        }
        let [mask] = schedule.encrypt::<One, ROUNDS, 1>([Counters::<One>::from(nonce, 1).next()]);
        let mut tag = [0; 16];
        reversed(One(sum.reduced()))
            .xor(mask)
            .store(tag.as_mut_ptr());
        tag
    }
}

/// What has been hashed.
#[derive(Clone, Copy)]
enum Hash {
    /// Everything so far; it goes into the next block.
    Settled(__m128i),
    /// One block, not yet multiplied, so that this can be done together with what follows.
    Pending(__m128i),
}

impl Hash {
    /// Hashes the associated data.
    ///
    /// # Safety
    /// The processor has `W`, and the source `len` bytes.
    #[inline(always)]
    unsafe fn begin<W: Wide>(powers: &Powers, mut aad: Source, len: usize) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            match len {
                0 => Self::Settled(_mm_setzero_si128()),
                1..=16 => Self::Pending(reversed::<One>(aad.some(len)).0),
                _ => Self::Settled(ghash::absorb::<W>(powers, aad, len)),
            }
        }
    }

    /// What is to be added to the next block.
    #[inline(always)]
    fn settled(self, powers: &Powers) -> __m128i {
        match self {
            Self::Settled(hash) => hash,
            Self::Pending(block) => {
                let mut sum = Sum::<One>::nothing();
                sum.add(One(block), powers.from(1));
                sum.reduced()
            }
        }
    }

    /// Adds the hash to the sum of `blocks` more.
    #[inline(always)]
    fn add_to<W: Wide>(self, sum: &mut Sum<W>, powers: &Powers, blocks: usize) {
        match self {
            Self::Settled(hash) => sum.add(W::first(hash), powers.from(blocks)),
            Self::Pending(block) => sum.add(W::first(block), powers.from(blocks + 1)),
        }
    }
}
