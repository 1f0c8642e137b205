//! What AES can do to the blocks of one packet side by side: counter mode, and CBC decryption.
//!
//! ```text
//!   counter mode   ████████ ████████ ████ ██ █ ▌      a text in groups of 8, 4, 2 and 1 vectors, then what is less
//!   CBC            ▌ █ ██ ████ ████████ ████████      the same backwards: the block before each is then still there
//! ```

use std::arch::x86_64::{_mm_aesimc_si128, _mm_loadu_si128, _mm_storeu_si128};

use zeroize::Zeroize;

use super::{
    aesni::RoundKeys,
    nonce::Nonce,
    wide::{AesLevel, Counters, Four, One, Schedule, Source, Two, Wide},
};

/// Counter mode over `text` in place, counted from `number` on, in vectors of `level`.
///
/// # Safety
/// The processor has them.
pub(super) unsafe fn ctr_in_place_on(
    level: AesLevel,
    keys: &RoundKeys,
    nonce: Nonce,
    number: u32,
    text: &mut [u8],
) {
    let (target, len) = (text.as_mut_ptr(), text.len());
    // SAFETY: the caller answers for the processor; source and target are the text, which nothing else refers to
    // meanwhile.
    unsafe {
        let source = Source::in_place(target, len);
        let task = Ctr {
            keys,
            nonce,
            number,
            source,
            target,
        };
        on(level, task, len);
    }
}

/// Counter mode from `input` into `output`, which is as long, in vectors of `level`.
///
/// # Safety
/// The processor has them.
pub(super) unsafe fn ctr_on(
    level: AesLevel,
    keys: &RoundKeys,
    nonce: Nonce,
    number: u32,
    input: [&[u8]; 3],
    output: &mut [u8],
) {
    let given: usize = input.iter().map(|part| part.len()).sum();
    assert_eq!(given, output.len(), "as much goes in as comes out");
    let task = Ctr {
        keys,
        nonce,
        number,
        source: Source::new(input),
        target: output.as_mut_ptr(),
    };
    // SAFETY: the caller answers for the processor, and the source has as many bytes as the output.
    unsafe { on(level, task, given) }
}

/// CBC decryption of `text` in place, by keys that [`inverse`] made, in vectors of `level`.
///
/// # Safety
/// The processor has them, and `text` is whole blocks.
pub(super) unsafe fn cbc_decrypt_on(
    level: AesLevel,
    keys: &RoundKeys,
    iv: &[u8; 16],
    text: &mut [u8],
) {
    let task = CbcOpen {
        keys,
        iv,
        text: text.as_mut_ptr(),
    };
    // SAFETY: as the caller promises.
    unsafe { on(level, task, text.len()) }
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
    /// The processor has `W`, the keys as many rounds, and the text `len` bytes.
    unsafe fn run<W: Wide, const ROUNDS: usize>(self, len: usize);
}

/// # Safety
/// The processor has the vectors of the level, and the text `len` bytes.
unsafe fn on(level: AesLevel, task: impl Task, len: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        match level {
            AesLevel::One => one(task, len),
            AesLevel::Two => two(task, len),
            AesLevel::Four => four(task, len),
        }
    }
}

macro_rules! widths {
    ($($name:ident $vector:ident $features:literal;)*) => {$(
        #[target_feature(enable = $features)]
        unsafe fn $name(task: impl Task, len: usize) {
            // SAFETY: the caller has the instructions, and a text of so many bytes.
            unsafe {
                match task.keys().rounds() {
                    10 => task.run::<$vector, 10>(len),
                    12 => task.run::<$vector, 12>(len),
                    _ => task.run::<$vector, 14>(len),
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

/// A task on its way through its text.
trait Walk<W: Wide> {
    /// Takes the next `N` vectors, which are enciphered together to hide how long a round takes.
    ///
    /// # Safety
    /// As many are left.
    unsafe fn group<const N: usize>(&mut self);

    /// Takes the last `len` bytes, a vector or less.
    ///
    /// # Safety
    /// As many are left.
    unsafe fn rest(&mut self, len: usize);
}

/// Walks through `len` bytes in groups as large as there are, and leaves at least `margin` bytes for the rest.
///
/// # Safety
/// The text has as many, and the margin is no longer than a vector.
#[inline(always)]
unsafe fn walk<W: Wide>(mut walk: impl Walk<W>, len: usize, margin: usize) {
    let mut left = len;
    // SAFETY: as many bytes are left as each step takes.
    unsafe {
        while left >= 8 * W::BYTES + margin {
            walk.group::<8>();
            left -= 8 * W::BYTES;
        }
        if left >= 4 * W::BYTES + margin {
            walk.group::<4>();
            left -= 4 * W::BYTES;
        }
        if left >= 2 * W::BYTES + margin {
            walk.group::<2>();
            left -= 2 * W::BYTES;
        }
        if left >= W::BYTES + margin {
            walk.group::<1>();
            left -= W::BYTES;
        }
        if left > 0 {
            walk.rest(left);
        }
    }
}

struct Ctr<'a> {
    keys: &'a RoundKeys,
    nonce: Nonce,
    number: u32,
    source: Source,
    target: *mut u8,
}

impl Task for Ctr<'_> {
    fn keys(&self) -> &RoundKeys {
        self.keys
    }

    #[inline(always)]
    unsafe fn run<W: Wide, const ROUNDS: usize>(self, len: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            let ctr = CtrWalk::<W, ROUNDS> {
                schedule: Schedule::of(self.keys),
                counters: Counters::from(self.nonce, self.number),
                source: self.source,
                target: self.target,
            };
            walk(ctr, len, 0);
        }
    }
}

struct CtrWalk<W, const ROUNDS: usize> {
    schedule: Schedule,
    counters: Counters<W>,
    source: Source,
    target: *mut u8,
}

impl<W: Wide, const ROUNDS: usize> Walk<W> for CtrWalk<W, ROUNDS> {
    #[inline(always)]
    unsafe fn group<const N: usize>(&mut self) {
        // SAFETY: the source has the vectors, and the target room for them.
        unsafe {
            let mut keystream = [W::zero(); N];
            for blocks in &mut keystream {
                *blocks = self.counters.next();
            }
            for keystream in self.schedule.encrypt::<W, ROUNDS, N>(keystream) {
                let text: W = self.source.whole();
                text.xor(keystream).store(self.target);
                self.target = self.target.add(W::BYTES);
            }
        }
    }

    #[inline(always)]
    unsafe fn rest(&mut self, len: usize) {
        // SAFETY: the source has the bytes, and the target room for them.
        unsafe {
            let [keystream] = self
                .schedule
                .encrypt::<W, ROUNDS, 1>([self.counters.next()]);
            let text: W = self.source.some(len);
            text.xor(keystream).store_some(self.target, len);
        }
    }
}

struct CbcOpen<'a> {
    keys: &'a RoundKeys,
    iv: &'a [u8; 16],
    text: *mut u8,
}

impl Task for CbcOpen<'_> {
    fn keys(&self) -> &RoundKeys {
        self.keys
    }

    #[inline(always)]
    unsafe fn run<W: Wide, const ROUNDS: usize>(self, len: usize) {
        // SAFETY: as the caller promises; the margin is the block before the first of a group.
        unsafe {
            let cbc = CbcWalk::<ROUNDS> {
                schedule: Schedule::of(self.keys),
                iv: self.iv.as_ptr(),
                text: self.text,
                end: self.text.add(len),
            };
            walk::<W>(cbc, len, 16);
        }
    }
}

/// Backwards through the text: what a block is mixed with, the one before it, is then still there.
struct CbcWalk<const ROUNDS: usize> {
    schedule: Schedule,
    iv: *const u8,
    text: *mut u8,
    end: *mut u8,
}

impl<W: Wide, const ROUNDS: usize> Walk<W> for CbcWalk<ROUNDS> {
    #[inline(always)]
    unsafe fn group<const N: usize>(&mut self) {
        // SAFETY: so many vectors stand before the end, and a block before them.
        unsafe {
            let from = self.end.sub(N * W::BYTES);
            self.end = from;
            let mut blocks = [W::zero(); N];
            for (at, blocks) in blocks.iter_mut().enumerate() {
                *blocks = W::load(from.add(at * W::BYTES));
            }
            blocks = self.schedule.decrypt::<W, ROUNDS, N>(blocks);
            for (at, blocks) in blocks.iter_mut().enumerate() {
                *blocks = blocks.xor(W::load(from.add(at * W::BYTES).sub(16)));
            }
            for (at, blocks) in blocks.iter().enumerate() {
                blocks.store(from.add(at * W::BYTES));
            }
        }
    }

    /// The first blocks, of which the very first is mixed with the IV.
    #[inline(always)]
    unsafe fn rest(&mut self, len: usize) {
        let (iv, text) = (self.iv, self.text.cast_const());
        // SAFETY: the rest is whole blocks, and all that is left of the text.
        unsafe {
            if W::BLOCKS == 1 {
                let [block] = self.schedule.decrypt::<W, ROUNDS, 1>([W::load(text)]);
                return block.xor(W::load(iv)).store(self.text);
            }
            let blocks = W::joined([(text, len), (text, 0), (text, 0)]);
            let chain = W::joined([(iv, 16), (text, len - 16), (text, 0)]);
            let [blocks] = self.schedule.decrypt::<W, ROUNDS, 1>([blocks]);
            blocks.xor(chain).store_some(self.text, len);
        }
    }
}
