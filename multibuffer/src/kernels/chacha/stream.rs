//! ChaCha20 (RFC 8439 2.3, 2.4): the blocks of all packets in one row, as many at a time as there are lanes, and then
//! each packet's text mixed with its own.

use std::{arch::x86_64::*, ptr};

use super::{
    packet::Packet,
    words::{MAX_LANES, Words},
};
use crate::kernels::wide::{Four, Two, Wide};

/// Bytes of a block.
const BLOCK_BYTES: usize = 64;

/// "expand 32-byte k"
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

macro_rules! widths {
    ($($name:ident $vector:ident $features:literal;)*) => {$(
        /// Computes block 0 of every packet if `KEYS`, and the blocks of its text if `TEXTS`.
        ///
        /// # Safety
        /// The processor has the instructions.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name<const KEYS: bool, const TEXTS: bool>(packets: &mut [Packet<'_>]) {
            // SAFETY: the caller has the instructions.
            unsafe { run::<$vector, KEYS, TEXTS>(packets) }
        }
    )*};
}

widths! {
    half Two "avx2";
    full Four "avx2,avx512f,avx512bw,avx512vl";
}

/// Blocks of keystream, computed ahead of their use.
#[repr(C, align(64))]
struct Keystream<const KEYS: bool, const TEXTS: bool> {
    bytes: [u8; BLOCK_BYTES * MAX_LANES],
    /// How many there are, and how many of them were taken.
    filled: usize,
    taken: usize,
    /// What the blocks after these start from, lined up early: what was written in small pieces takes a while until it
    /// can be read in large ones.
    start: Start,
    /// Whose block is lined up next: packet and number.
    packet: usize,
    number: u32,
}

/// What the lanes start from.
///
/// INVARIANT: every key is readable.
#[repr(C)]
struct Start {
    /// Number and nonce. Numbers that are branched on stand well behind, so that no load for vectors reaches them.
    last: [__m128i; MAX_LANES],
    keys: [*const u8; MAX_LANES],
    /// The key of the first lane.
    key: *const u8,
    /// How many lanes have a block that is used.
    count: usize,
    /// Whether all of those have one key.
    uniform: bool,
}

/// # Safety
/// The processor has `W`.
#[inline(always)]
unsafe fn run<W: Words, const KEYS: bool, const TEXTS: bool>(packets: &mut [Packet<'_>]) {
    let Some(first) = packets.first() else {
        return;
    };
    let mut keystream = Keystream::<KEYS, TEXTS>::new(first.key.bytes.as_ptr());
    keystream.line_up::<W>(packets);
    for at in 0..packets.len() {
        let mut wants_key = KEYS;
        let mut left = if TEXTS { packets[at].len } else { 0 };
        while wants_key || left > 0 {
            // SAFETY: the caller has the instructions; as many blocks are there as are taken.
            unsafe {
                let wanted = usize::from(wants_key) + left.div_ceil(BLOCK_BYTES);
                let (mut blocks, mut count) = keystream.next::<W>(packets, wanted);
                if wants_key {
                    let key = packets[at].one_time.as_mut_ptr();
                    ptr::copy_nonoverlapping(blocks, key, 32);
                    (blocks, count, wants_key) = (blocks.add(BLOCK_BYTES), count - 1, false);
                }
                let now = left.min(BLOCK_BYTES * count);
                packets[at].mix::<W::Text>(blocks, now);
                left -= now;
            }
        }
    }
}

impl Packet<'_> {
    /// Mixes the next `len` bytes of the text with a keystream.
    ///
    /// # Safety
    /// As many are left, the keystream has whole vectors for them, and the processor has `V`.
    #[inline(always)]
    unsafe fn mix<V: Wide>(&mut self, mut keystream: *const u8, len: usize) {
        let mut left = len;
        // The target moves only here: it is wanted whole for Poly1305.
        let mut target = self.done();
        // SAFETY: as the caller promises.
        unsafe {
            while left >= V::BYTES {
                let text: V = self.source.whole();
                text.xor(V::load(keystream)).store(target);
                (keystream, target) = (keystream.add(V::BYTES), target.add(V::BYTES));
                left -= V::BYTES;
            }
            if left > 0 {
                let text: V = self.source.some(left);
                text.xor(V::load(keystream)).store_some(target, left);
            }
        }
    }

    /// Where the text goes on that the source still has.
    #[inline(always)]
    fn done(&self) -> *mut u8 {
        self.target.wrapping_add(self.len - self.source.left())
    }
}

impl<const KEYS: bool, const TEXTS: bool> Keystream<KEYS, TEXTS> {
    /// The number of a packet's first block that is needed: block 0 yields the Poly1305 key, block 1 begins the text.
    const FIRST: u32 = if KEYS { 0 } else { 1 };

    #[inline(always)]
    fn new(any_key: *const u8) -> Self {
        Self {
            bytes: [0; BLOCK_BYTES * MAX_LANES],
            filled: 0,
            taken: 0,
            start: Start {
                last: [row(0); MAX_LANES],
                keys: [any_key; MAX_LANES],
                key: any_key,
                count: 0,
                uniform: true,
            },
            packet: 0,
            number: Self::FIRST,
        }
    }

    /// The next blocks, at least one and at most `wanted`.
    ///
    /// # Safety
    /// As many are left in all packets, and the processor has `W`.
    #[inline(always)]
    unsafe fn next<W: Words>(
        &mut self,
        packets: &[Packet<'_>],
        wanted: usize,
    ) -> (*const u8, usize) {
        if self.taken == self.filled {
            // SAFETY: the caller has the instructions.
            unsafe { self.refill::<W>(packets) };
        }
        let count = wanted.min(self.filled - self.taken);
        let blocks = self.bytes[BLOCK_BYTES * self.taken..].as_ptr();
        self.taken += count;
        (blocks, count)
    }

    /// # Safety
    /// The processor has `W`.
    #[inline(always)]
    unsafe fn refill<W: Words>(&mut self, packets: &[Packet<'_>]) {
        // SAFETY: the caller has the instructions, and there is room for a block of each lane.
        unsafe {
            let initial = initial::<W>(&self.start);
            (self.filled, self.taken) = (self.start.count, 0);
            self.line_up::<W>(packets);
            W::store_blocks(blocks(initial), self.bytes.as_mut_ptr());
        }
    }

    /// Assigns the next blocks to lanes. Left-over lanes repeat blocks that are not used.
    #[inline(always)]
    fn line_up<W: Words>(&mut self, packets: &[Packet<'_>]) {
        // SAFETY: every x86-64 processor has this instruction.
        let one = unsafe { _mm_set_epi32(0, 0, 0, 1) };
        let start = &mut self.start;
        (start.count, start.uniform) = (0, true);
        while start.count < W::LANES && self.packet < packets.len() {
            let packet = &packets[self.packet];
            let texts = if TEXTS {
                packet.len.div_ceil(BLOCK_BYTES) as u32
            } else {
                0
            };
            let now = (W::LANES - start.count).min((texts + 1 - self.number) as usize);
            let key = packet.key.bytes.as_ptr();
            let mut last = row(packet.nonce.with_counter_first(self.number));
            for lane in start.count..start.count + now {
                (start.keys[lane], start.last[lane]) = (key, last);
                // SAFETY: as above.
                last = unsafe { _mm_add_epi32(last, one) };
            }
            if start.count == 0 {
                start.key = key;
            }
            start.uniform &= now == 0 || ptr::eq(key, start.key);
            start.count += now;
            self.number += now as u32;
            if self.number == texts + 1 {
                (self.packet, self.number) = (self.packet + 1, Self::FIRST);
            }
        }
    }
}

#[inline(always)]
fn row(words: u128) -> __m128i {
    // SAFETY: every x86-64 processor has this instruction.
    unsafe { _mm_set_epi64x((words >> 64) as i64, words as i64) }
}

/// A block in each lane.
#[inline(always)]
fn blocks<W: Words>(initial: [W; 16]) -> [W; 16] {
    let mut state = initial;
    for _ in 0..10 {
        double_round(&mut state);
    }
    for (word, initial) in state.iter_mut().zip(initial) {
        *word = word.plus(initial);
    }
    state
}

/// RFC 8439 2.3: constants, key, number and nonce.
///
/// # Safety
/// The processor has `W`.
#[inline(always)]
unsafe fn initial<W: Words>(start: &Start) -> [W; 16] {
    let mut state = [W::splat(0); 16];
    for (word, constant) in state.iter_mut().zip(CONSTANTS) {
        *word = W::splat(constant);
    }
    // SAFETY: keys are readable, and the last row of each lane is.
    unsafe {
        if start.uniform {
            for (at, word) in state[4..12].iter_mut().enumerate() {
                *word = W::splat(start.key.cast::<u32>().add(at).read_unaligned());
            }
        } else {
            state[4..8].copy_from_slice(&W::quarter(|lane| start.keys[lane]));
            state[8..12].copy_from_slice(&W::quarter(|lane| start.keys[lane].add(16)));
        }
        state[12..].copy_from_slice(&W::quarter(|lane| ptr::from_ref(&start.last[lane]).cast()));
    }
    state
}

/// Four quarter rounds (RFC 8439 2.1) side by side. Places are literals, so that all of them stay in registers where
/// there are enough.
macro_rules! quarter_rounds {
    ($x:ident, $($a:literal $b:literal $c:literal $d:literal;)*) => {
        $($x[$a] = $x[$a].plus($x[$b]);)*
        $($x[$d] = $x[$d].xor_rotated::<16>($x[$a]);)*
        $($x[$c] = $x[$c].plus($x[$d]);)*
        $($x[$b] = $x[$b].xor_rotated::<12>($x[$c]);)*
        $($x[$a] = $x[$a].plus($x[$b]);)*
        $($x[$d] = $x[$d].xor_rotated::<8>($x[$a]);)*
        $($x[$c] = $x[$c].plus($x[$d]);)*
        $($x[$b] = $x[$b].xor_rotated::<7>($x[$c]);)*
    };
}

#[inline(always)]
fn double_round<W: Words>(x: &mut [W; 16]) {
    quarter_rounds!(x, 0 4 8 12; 1 5 9 13; 2 6 10 14; 3 7 11 15;);
    quarter_rounds!(x, 0 5 10 15; 1 6 11 12; 2 7 8 13; 3 4 9 14;);
}
