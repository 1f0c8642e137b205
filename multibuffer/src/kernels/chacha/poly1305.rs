//! Poly1305 (RFC 8439 2.5) of many packets at once: which packet stands in which lane.
//!
//! A message is associated data, text and lengths, each padded to whole blocks. A lane reads whole blocks in place, and
//! padded ones from its own buffer. All lanes advance by the shortest stretch, then those at the end of theirs get the
//! next.

pub(super) mod avx2;
pub(super) mod ifma;

use std::ptr;

use super::packet::Packet;

/// Lanes of the widest vector.
const MAX_LANES: usize = 8;
/// Bytes of a block.
const BLOCK_BYTES: usize = 16;

/// State of the lanes for a stretch of blocks. Numbers are in limbs, the lowest first.
///
/// INVARIANT: each pointer that the kernel has a lane for is to at least as many readable blocks as the stretch is
/// long.
#[repr(C, align(64))]
pub(super) struct LaneSet<const LIMBS: usize> {
    /// The sum so far; limbs may be longer than their nominal width.
    sum: [[u64; MAX_LANES]; LIMBS],
    /// The multiplier r.
    factor: [[u64; MAX_LANES]; LIMBS],
    data: [*const u8; MAX_LANES],
}

/// The packet that a lane processes.
struct Lane {
    /// Its number, if there is one.
    packet: Option<usize>,
    /// The stretches that follow: where, and how many blocks.
    stretches: [(*const u8, usize); 4],
    /// The one that is being read.
    at: usize,
    padded: PaddedBlocks,
}

/// Blocks that were assembled: padded ones, or a whole short message, because each stretch makes all lanes stop.
#[repr(C, align(16))]
struct PaddedBlocks([u8; BLOCK_BYTES * (SHORT_TEXT_BYTES / BLOCK_BYTES + 3)]);

/// The longest text whose message is assembled.
const SHORT_TEXT_BYTES: usize = 128;

/// Writes the tag of every packet. `run` advances the `lanes` lanes by a number of blocks, in limbs of `BITS` bits.
pub(super) fn authenticate<const LIMBS: usize, const BITS: u32>(
    lanes: usize,
    packets: &mut [Packet<'_>],
    run: impl Fn(&mut LaneSet<LIMBS>, usize),
) {
    let mut lane_set = LaneSet::<LIMBS> {
        sum: [[0; MAX_LANES]; LIMBS],
        factor: [[0; MAX_LANES]; LIMBS],
        data: [ptr::null(); MAX_LANES],
    };
    let mut active = [const { Lane::IDLE }; MAX_LANES];
    let mut next = 0;
    loop {
        let mut shortest = usize::MAX;
        let mut readable = ptr::null();
        for (at, lane) in active[..lanes].iter_mut().enumerate() {
            if lane.is_through()
                && let Some(number) = lane.packet.take()
            {
                let sum = lane_set.sum.map(|row| row[at]);
                finish(sum, BITS, &mut packets[number]);
            }
            if lane.packet.is_none() && next < packets.len() {
                lane_set.take_on(at, BITS, &packets[next]);
                lane.take_on(next, &packets[next]);
                next += 1;
            }
            if lane.packet.is_some() {
                let (data, blocks) = lane.stretches[lane.at];
                shortest = shortest.min(blocks);
                (readable, lane_set.data[at]) = (data, data);
            }
        }
        if readable.is_null() {
            return;
        }
        for (data, lane) in lane_set.data.iter_mut().zip(&active) {
            // A lane without a packet reads the same as another; its result is not used.
            if lane.packet.is_none() {
                *data = readable;
            }
        }
        run(&mut lane_set, shortest);
        for lane in &mut active[..lanes] {
            lane.go_on(shortest);
        }
    }
}

impl<const LIMBS: usize> LaneSet<LIMBS> {
    fn take_on(&mut self, at: usize, bits: u32, packet: &Packet<'_>) {
        let factor = packet.one_time.first_chunk().expect("16 of 32 bytes");
        // RFC 8439 2.5: these bits are cleared.
        let factor = u128::from_le_bytes(*factor) & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
        let limb = |number: usize| (factor >> (bits * number as u32)) as u64 & ((1 << bits) - 1);
        for (number, (sum, row)) in self.sum.iter_mut().zip(&mut self.factor).enumerate() {
            (sum[at], row[at]) = (0, limb(number));
        }
    }
}

impl Lane {
    const IDLE: Self = Self {
        packet: None,
        stretches: [(ptr::null(), 0); 4],
        at: 4,
        padded: PaddedBlocks([0; BLOCK_BYTES * (SHORT_TEXT_BYTES / BLOCK_BYTES + 3)]),
    };

    fn is_through(&self) -> bool {
        self.at == self.stretches.len()
    }

    /// RFC 8439 2.8: associated data, text, and how long each is.
    fn take_on(&mut self, number: usize, packet: &Packet<'_>) {
        // SAFETY: the text is readable, and written again only when the tag is known.
        let text = unsafe { std::slice::from_raw_parts(packet.target, packet.len) };
        let lengths = u128::from(packet.len as u64) << 64 | u128::from(packet.aad.len() as u64);
        let lengths = lengths.to_le_bytes();
        self.stretches = if text.len() <= SHORT_TEXT_BYTES && packet.aad.len() <= BLOCK_BYTES {
            self.padded.whole(packet.aad, text, lengths)
        } else {
            self.padded.ends(packet.aad, text, lengths)
        };
        self.packet = Some(number);
        self.at = 0;
        self.go_on(0);
    }

    /// Skips `blocks` blocks of the stretch, and empty stretches after it.
    fn go_on(&mut self, blocks: usize) {
        if self.is_through() {
            return;
        }
        let (data, left) = &mut self.stretches[self.at];
        *data = data.wrapping_add(BLOCK_BYTES * blocks);
        *left -= blocks;
        while !self.is_through() && self.stretches[self.at].1 == 0 {
            self.at += 1;
        }
    }
}

impl PaddedBlocks {
    /// The whole of a message.
    fn whole(
        &mut self,
        aad: &[u8],
        text: &[u8],
        lengths: [u8; BLOCK_BYTES],
    ) -> [(*const u8, usize); 4] {
        let mut held = 0;
        if !aad.is_empty() {
            self.put(&mut held, filled_up(aad));
        }
        let (whole, rest) = text.as_chunks::<BLOCK_BYTES>();
        for block in whole {
            self.put(&mut held, *block);
        }
        if !rest.is_empty() {
            self.put(&mut held, filled_up(rest));
        }
        self.put(&mut held, lengths);
        let none = (ptr::null(), 0);
        [(self.0.as_ptr(), held / BLOCK_BYTES), none, none, none]
    }

    /// The padded blocks; whole blocks are read in place.
    fn ends(
        &mut self,
        aad: &[u8],
        text: &[u8],
        lengths: [u8; BLOCK_BYTES],
    ) -> [(*const u8, usize); 4] {
        let ((aad, aad_rest), (text, text_rest)) = (
            aad.as_chunks::<BLOCK_BYTES>(),
            text.as_chunks::<BLOCK_BYTES>(),
        );
        let mut held = 0;
        self.put(&mut held, filled_up(aad_rest));
        if !text_rest.is_empty() {
            self.put(&mut held, filled_up(text_rest));
        }
        self.put(&mut held, lengths);
        let padded = self.0.as_ptr();
        [
            (aad.as_ptr().cast(), aad.len()),
            (padded, usize::from(!aad_rest.is_empty())),
            (text.as_ptr().cast(), text.len()),
            (padded.wrapping_add(BLOCK_BYTES), held / BLOCK_BYTES - 1),
        ]
    }

    #[inline(always)]
    fn put(&mut self, held: &mut usize, block: [u8; BLOCK_BYTES]) {
        self.0[*held..*held + BLOCK_BYTES].copy_from_slice(&block);
        *held += BLOCK_BYTES;
    }
}

/// At most a block, and zeros behind it. In words that may overlap, for a copy of any length costs a short packet much.
fn filled_up(bytes: &[u8]) -> [u8; BLOCK_BYTES] {
    let len = bytes.len();
    let filled = if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        u128::from(first) | u128::from(last) << (8 * (len - 8))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        u128::from(first) | u128::from(last) << (8 * (len - 4))
    } else {
        let byte = |filled, byte: &u8| filled << 8 | u128::from(*byte);
        bytes.iter().rev().fold(0, byte)
    };
    filled.to_le_bytes()
}

/// RFC 8439 2.5.1: the sum modulo 2¹³⁰ - 5, plus the other avx2 of the key.
fn finish<const LIMBS: usize>(sum: [u64; LIMBS], bits: u32, packet: &mut Packet<'_>) {
    // The sum is `low` and 2¹²⁸ times `high`.
    let (mut low, mut high) = (0_u128, 0_u64);
    for (number, limb) in sum.into_iter().enumerate() {
        let (shift, limb) = (bits * number as u32, u128::from(limb));
        let (sum, carry) = low.overflowing_add(limb << shift);
        low = sum;
        high += u64::from(carry) + limb.checked_shr(128 - shift).unwrap_or(0) as u64;
    }
    // 2¹³⁰ is 5. The second time is for the carry of the first.
    for _ in 0..2 {
        let (sum, carry) = low.overflowing_add(5 * u128::from(high >> 2));
        (low, high) = (sum, (high & 3) + u64::from(carry));
    }
    let (less, carry) = low.overflowing_add(5);
    let is_more = (high + u64::from(carry)) >> 2;
    let mask = 0_u128.wrapping_sub(is_more.into());
    let added = packet.one_time.last_chunk().expect("16 of 32 bytes");
    let tag = (low & !mask | less & mask).wrapping_add(u128::from_le_bytes(*added));
    *packet.tag = tag.to_le_bytes();
}
