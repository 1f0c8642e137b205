//! Advances the lanes by some blocks: AES in vectors of one, two or four blocks, each of another packet.

use super::{CbcJob, CbcMacJob, LaneSet, encrypt, mac::sign};
use crate::kernels::wide::{AesLevel, Four, One, Two, Wide};

/// Encrypts all jobs; their keys have `rounds` rounds.
///
/// # Safety
/// The processor has the vectors of `level`.
pub(crate) unsafe fn cbc_encrypt<'a>(
    level: AesLevel,
    rounds: usize,
    jobs: impl Iterator<Item = CbcJob<'a>>,
) {
    // SAFETY: the caller answers for the processor, and the lane set's pointers are good for `blocks` blocks.
    match level {
        AesLevel::One => encrypt::<8>(rounds, jobs, |lane_set, blocks| {
            // SAFETY: as above.
            unsafe { one::<true>(rounds, lane_set, blocks) };
        }),
        AesLevel::Two => encrypt::<16>(rounds, jobs, |lane_set, blocks| {
            // SAFETY: as above.
            unsafe { two::<true>(rounds, lane_set, blocks) };
        }),
        AesLevel::Four => encrypt::<16>(rounds, jobs, |lane_set, blocks| {
            // SAFETY: as above.
            unsafe { four::<true>(rounds, lane_set, blocks) };
        }),
    }
}

/// Signs all jobs with XCBC or CMAC; their keys have `rounds` rounds.
///
/// # Safety
/// The processor has the vectors of `level`.
pub(crate) unsafe fn cbc_mac<'a>(
    level: AesLevel,
    rounds: usize,
    jobs: impl Iterator<Item = CbcMacJob<'a>>,
) {
    // SAFETY: as above.
    match level {
        AesLevel::One => sign::<8>(rounds, jobs, |lane_set, blocks| {
            // SAFETY: as above.
            unsafe { one::<false>(rounds, lane_set, blocks) };
        }),
        AesLevel::Two => sign::<16>(rounds, jobs, |lane_set, blocks| {
            // SAFETY: as above.
            unsafe { two::<false>(rounds, lane_set, blocks) };
        }),
        AesLevel::Four => sign::<16>(rounds, jobs, |lane_set, blocks| {
            // SAFETY: as above.
            unsafe { four::<false>(rounds, lane_set, blocks) };
        }),
    }
}

macro_rules! widths {
    ($($name:ident $vector:ident $lanes:literal $vectors:literal $features:literal;)*) => {$(
        /// # Safety
        /// The caller has the instructions, and the lane set's pointers are good for `blocks` blocks.
        #[target_feature(enable = $features)]
        unsafe fn $name<const STORE: bool>(rounds: usize, lane_set: &mut LaneSet<$lanes>, blocks: usize) {
            // SAFETY: as the caller promises.
            unsafe {
                match (rounds, lane_set.uniform) {
                    (10, true) => run::<$vector, $lanes, $vectors, 10, STORE, true>(lane_set, blocks),
                    (10, false) => run::<$vector, $lanes, $vectors, 10, STORE, false>(lane_set, blocks),
                    (12, true) => run::<$vector, $lanes, $vectors, 12, STORE, true>(lane_set, blocks),
                    (12, false) => run::<$vector, $lanes, $vectors, 12, STORE, false>(lane_set, blocks),
                    (_, true) => run::<$vector, $lanes, $vectors, 14, STORE, true>(lane_set, blocks),
                    (_, false) => run::<$vector, $lanes, $vectors, 14, STORE, false>(lane_set, blocks),
                }
            }
        }
    )*};
}

widths! {
    one One 8 8 "aes,ssse3,sse4.1";
    two Two 16 8 "aes,vaes,avx2";
    four Four 16 4 "aes,vaes,avx2,avx512f,avx512bw,avx512vl";
}

/// Advances each lane by `blocks` blocks; the text is replaced by its ciphertext if `STORE`, else only read. All lanes
/// have the first one's key if `UNIFORM`, which then is read once for all of them.
///
/// # Safety
/// The processor has `W`; each `text` of the lane set is valid for reading `blocks` blocks, and for writing them if
/// `STORE`.
#[inline(always)]
unsafe fn run<
    W: Wide,
    const LANES: usize,
    const VECTORS: usize,
    const ROUNDS: usize,
    const STORE: bool,
    const UNIFORM: bool,
>(
    lane_set: &mut LaneSet<LANES>,
    blocks: usize,
) {
    let lanes = lane_set.text;
    // SAFETY: `chain` is LANES blocks and `keys` LANES blocks for each round; `text` as the caller promises.
    unsafe {
        let mut state = [W::zero(); VECTORS];
        for (at, state) in state.iter_mut().enumerate() {
            *state = W::load(lane_set.chain[at * W::BLOCKS].as_ptr());
        }
        for block in 0..blocks {
            for (at, state) in state.iter_mut().enumerate() {
                let plain = W::collected(&lanes[at * W::BLOCKS..], 16 * block);
                *state = state
                    .xor(plain)
                    .xor(key::<W, LANES, UNIFORM>(lane_set, 0, at));
            }
            for round in 1..ROUNDS {
                for (at, state) in state.iter_mut().enumerate() {
                    *state = state.encrypt(key::<W, LANES, UNIFORM>(lane_set, round, at));
                }
            }
            for (at, state) in state.iter_mut().enumerate() {
                *state = state.encrypt_last(key::<W, LANES, UNIFORM>(lane_set, ROUNDS, at));
                if STORE {
                    state.scattered(&lanes[at * W::BLOCKS..], 16 * block);
                }
            }
        }
        for (at, state) in state.iter().enumerate() {
            state.store(lane_set.chain[at * W::BLOCKS].as_mut_ptr());
        }
    }
}

/// The keys of a round for the lanes of one vector.
///
/// # Safety
/// The processor has `W`.
#[inline(always)]
unsafe fn key<W: Wide, const LANES: usize, const UNIFORM: bool>(
    lane_set: &LaneSet<LANES>,
    round: usize,
    vector: usize,
) -> W {
    let keys = &lane_set.keys[round];
    // SAFETY: a round has LANES keys, which are VECTORS vectors.
    unsafe {
        if UNIFORM {
            W::every(One::load(keys[0].as_ptr()).0)
        } else {
            W::load(keys[vector * W::BLOCKS].as_ptr())
        }
    }
}
