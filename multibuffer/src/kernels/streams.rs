//! What AES can do to the blocks of one packet side by side: counter mode, and CBC decryption.

use std::arch::x86_64::{__m128i, _mm_aesimc_si128, _mm_loadu_si128, _mm_storeu_si128};

use zeroize::Zeroize;

use super::{
    aesni::RoundKeys,
    wide::{Counters, Four, Level, One, Schedule, Source, Two, Wide},
};
use crate::detect::features;

/// Vectors that are enciphered together: enough to hide how long one round takes.
const TOGETHER: usize = 8;

/// Counter mode over `text` in place: 12 bytes that stay the same, then a number that begins at `number`.
pub(crate) fn ctr(keys: &RoundKeys, nonce: &[u8; 12], number: u32, text: &mut [u8]) {
    // SAFETY: the processor has the features.
    unsafe { ctr_on(level(), keys, nonce, number, text) }
}

/// Counter mode in vectors of `level`.
///
/// # Safety
/// The processor has them.
pub(super) unsafe fn ctr_on(
    level: Level,
    keys: &RoundKeys,
    nonce: &[u8; 12],
    number: u32,
    text: &mut [u8],
) {
    // SAFETY: as the caller promises.
    unsafe { on(level, Ctr(keys, nonce, number), text) }
}

/// CBC decryption of `text`, whole blocks, in place, by keys that [`inverse`] made.
pub(crate) fn cbc_decrypt(keys: &RoundKeys, iv: &[u8; 16], text: &mut [u8]) {
    assert!(text.len().is_multiple_of(16), "CBC text is whole blocks");
    // SAFETY: the processor has the features.
    unsafe { cbc_decrypt_on(level(), keys, iv, text) }
}

/// CBC decryption in vectors of `level`.
///
/// # Safety
/// The processor has them, and `text` is whole blocks.
pub(super) unsafe fn cbc_decrypt_on(
    level: Level,
    keys: &RoundKeys,
    iv: &[u8; 16],
    text: &mut [u8],
) {
    // SAFETY: as the caller promises.
    unsafe { on(level, CbcOpen(keys, iv), text) }
}

fn level() -> Level {
    Level::for_aes(features()).expect("round keys exist only where there are instructions for them")
}

/// The keys for decryption (FIPS 197 5.3.5).
pub(crate) fn inverse(keys: &RoundKeys) -> RoundKeys {
    let mut blocks = [[0; 16]; super::aesni::MAX_ROUND_KEYS];
    for (to, from) in blocks.iter_mut().zip(keys.as_blocks().iter().rev()) {
        *to = *from;
    }
    for block in &mut blocks[1..keys.rounds()] {
        // SAFETY: round keys exist only where AES-NI does.
        unsafe { mix(block) };
    }
    let inverse = keys.with_blocks(blocks);
    blocks.zeroize();
    inverse
}

#[target_feature(enable = "aes")]
unsafe fn mix(block: &mut [u8; 16]) {
    // SAFETY: a block is as long as the vector.
    unsafe {
        let mixed = _mm_aesimc_si128(_mm_loadu_si128(block.as_ptr().cast()));
        _mm_storeu_si128(block.as_mut_ptr().cast(), mixed);
    }
}

/// Something that is done to a text.
trait Task {
    fn keys(&self) -> &RoundKeys;

    /// # Safety
    /// The processor has `W`, and the keys as many rounds.
    unsafe fn run<W: Wide, const ROUNDS: usize>(self, text: &mut [u8]);
}

/// # Safety
/// The processor has the vectors of the level.
unsafe fn on(level: Level, task: impl Task, text: &mut [u8]) {
    // SAFETY: as the caller promises.
    unsafe {
        match level {
            Level::One => one(task, text),
            Level::Two => two(task, text),
            Level::Four => four(task, text),
        }
    }
}

macro_rules! widths {
    ($($name:ident $vector:ident $features:literal;)*) => {$(
        #[target_feature(enable = $features)]
        unsafe fn $name(task: impl Task, text: &mut [u8]) {
            // SAFETY: the caller has the instructions.
            unsafe {
                match task.keys().rounds() {
                    10 => task.run::<$vector, 10>(text),
                    12 => task.run::<$vector, 12>(text),
                    _ => task.run::<$vector, 14>(text),
                }
            }
        }
    )*};
}

widths! {
    one One "aes,ssse3,sse4.1";
    two Two "aes,vaes,avx2";
    four Four "aes,vaes,avx2,avx512f,avx512bw,avx512vl";
}

struct Ctr<'a>(&'a RoundKeys, &'a [u8; 12], u32);

impl Task for Ctr<'_> {
    fn keys(&self) -> &RoundKeys {
        self.0
    }

    #[inline(always)]
    unsafe fn run<W: Wide, const ROUNDS: usize>(self, text: &mut [u8]) {
        let schedule = Schedule::of(self.0);
        let (mut at, mut left) = (text.as_mut_ptr(), text.len());
        // SAFETY: `at` is good for `left` bytes, and the schedule lives.
        unsafe {
            let mut counters = Counters::<W>::from(self.1, self.2);
            while left >= TOGETHER * W::BYTES {
                let mut keystream = [W::zero(); TOGETHER];
                for blocks in &mut keystream {
                    *blocks = counters.next();
                }
                for keystream in schedule.encrypt::<W, ROUNDS, TOGETHER>(keystream) {
                    W::load(at).xor(keystream).store(at);
                    at = at.add(W::BYTES);
                }
                left -= TOGETHER * W::BYTES;
            }
            while left > 0 {
                let [keystream] = schedule.encrypt::<W, ROUNDS, 1>([counters.next()]);
                let now = left.min(W::BYTES);
                if now == W::BYTES {
                    W::load(at).xor(keystream).store(at);
                } else {
                    let text: W = Source::in_place(at, now).some(now);
                    text.xor(keystream).store_some(at, now);
                }
                at = at.add(now);
                left -= now;
            }
        }
    }
}

struct CbcOpen<'a>(&'a RoundKeys, &'a [u8; 16]);

impl Task for CbcOpen<'_> {
    fn keys(&self) -> &RoundKeys {
        self.0
    }

    /// Backwards through the text: what a block is mixed with, the one before it, is then still there.
    #[inline(always)]
    unsafe fn run<W: Wide, const ROUNDS: usize>(self, text: &mut [u8]) {
        let schedule = Schedule::of(self.0);
        let (start, mut end) = (text.as_mut_ptr(), text.len());
        // SAFETY: everything before `end` is readable and writable; where a vector is read a block early, there is one.
        unsafe {
            while end >= TOGETHER * W::BYTES + 16 {
                end -= TOGETHER * W::BYTES;
                let from = start.add(end);
                let mut blocks = [W::zero(); TOGETHER];
                for (at, blocks) in blocks.iter_mut().enumerate() {
                    *blocks = W::load(from.add(at * W::BYTES));
                }
                blocks = schedule.decrypt::<W, ROUNDS, TOGETHER>(blocks);
                for (at, blocks) in blocks.iter_mut().enumerate() {
                    let chain = W::load(from.add(at * W::BYTES).sub(16));
                    *blocks = blocks.xor(chain);
                }
                for (at, blocks) in blocks.iter().enumerate() {
                    blocks.store(from.add(at * W::BYTES));
                }
            }
            while end >= W::BYTES + 16 {
                end -= W::BYTES;
                let from = start.add(end);
                let [blocks] = schedule.decrypt::<W, ROUNDS, 1>([W::load(from)]);
                blocks.xor(W::load(from.sub(16))).store(from);
            }
            while end > 0 {
                end -= 16;
                let from = start.add(end);
                let [block] = schedule.decrypt::<One, ROUNDS, 1>([One::load(from)]);
                let before: *const u8 = if end == 0 {
                    self.1.as_ptr()
                } else {
                    from.sub(16)
                };
                let chain: __m128i = _mm_loadu_si128(before.cast());
                block.xor(One(chain)).store(from);
            }
        }
    }
}
