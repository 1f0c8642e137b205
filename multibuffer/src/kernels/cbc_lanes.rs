//! AES-CBC encryption of many packets at once: which packet stands in which lane. MACs that are the last block of
//! such an encryption stand in [`mac`].
//!
//! Within a packet each block depends on the one before it, so one packet alone leaves the AES unit idle most of the
//! time. Sixteen packets in parallel fill it. Lanes differ in length and key: all advance by the shortest, then its
//! lane takes the next packet.
//!
//! ```text
//!   lane 0  ████████▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌    ▌ = next packet in the same lane
//!   lane 1  ██████████████▌▌▌▌▌▌▌
//!   lane 2  ███████████████████████
//! ```

mod mac;
mod run;

pub(crate) use mac::CbcMacJob;
pub(super) use run::{cbc_encrypt, cbc_mac};

use super::aesni::{MAX_ROUND_KEYS, RoundKeys};
use crate::zeroing::zero;

/// One packet to encrypt in place.
pub(crate) struct CbcJob<'a> {
    pub(crate) keys: &'a RoundKeys,
    pub(crate) iv: [u8; 16],
    /// Whole blocks.
    pub(crate) text: &'a mut [u8],
}

/// What `N` lanes need for a stretch of blocks.
///
/// INVARIANT: each `text` pointer is to at least as many blocks as the stretch is long, writable if they are to be
/// encrypted and readable if only the last block is needed.
#[repr(C, align(64))]
struct LaneSet<const N: usize> {
    /// The round keys of the lanes, side by side.
    keys: [[[u8; 16]; N]; MAX_ROUND_KEYS],
    /// The previous ciphertext block, or the IV.
    chain: [[u8; 16]; N],
    text: [*mut u8; N],
    /// Whether no lane that carries a packet has another key than the first, which always carried one.
    uniform: bool,
}

impl<const N: usize> Drop for LaneSet<N> {
    fn drop(&mut self) {
        zero(&mut self.keys);
    }
}

/// Blocks that lanes without a packet write to.
const PARKED_BLOCKS: usize = 32;

/// Encrypts all jobs, whose keys have `rounds` rounds; `run` advances every lane by a number of blocks and leaves the
/// `text` pointers unchanged.
fn encrypt<'a, const N: usize>(
    rounds: usize,
    jobs: impl Iterator<Item = CbcJob<'a>>,
    run: impl Fn(&mut LaneSet<N>, usize),
) {
    let mut jobs = jobs.filter(|job| !job.text.is_empty());
    let mut parking = [0_u8; 16 * PARKED_BLOCKS];
    let parking = parking.as_mut_ptr();
    let mut lane_set = LaneSet::<N> {
        keys: [[[0; 16]; N]; MAX_ROUND_KEYS],
        chain: [[0; 16]; N],
        text: [parking; N],
        uniform: true,
    };
    let mut loaded: [Option<&RoundKeys>; N] = [None; N];
    // Blocks left in each lane's packet; 0 is a parked lane.
    let mut left = [0; N];
    loop {
        for (lane, left) in left.iter_mut().enumerate() {
            if *left > 0 {
                continue;
            }
            let Some(job) = jobs.next() else {
                lane_set.text[lane] = parking;
                continue;
            };
            assert!(job.text.len().is_multiple_of(16) && job.keys.rounds() == rounds);
            lane_set.chain[lane] = job.iv;
            lane_set.text[lane] = job.text.as_mut_ptr();
            *left = job.text.len() / 16;
            load(&mut lane_set, lane, &mut loaded, job.keys);
        }
        let Some(shortest) = left.iter().copied().filter(|&blocks| blocks > 0).min() else {
            return;
        };
        let parked = left.contains(&0);
        let stretch = if parked {
            shortest.min(PARKED_BLOCKS)
        } else {
            shortest
        };
        run(&mut lane_set, stretch);
        for (left, text) in left
            .iter_mut()
            .zip(&mut lane_set.text)
            .filter(|(left, _)| **left > 0)
        {
            *left -= stretch;
            // The pointer stays inside the packet, or stands at its end and is replaced before it is used.
            *text = text.wrapping_add(16 * stretch);
        }
    }
}

/// Puts a packet's round keys into its lane, unless they are still there from the packet before.
fn load<'a, const N: usize>(
    lane_set: &mut LaneSet<N>,
    lane: usize,
    loaded: &mut [Option<&'a RoundKeys>; N],
    keys: &'a RoundKeys,
) {
    let is_same = |other: &Option<&RoundKeys>| other.is_some_and(|other| std::ptr::eq(other, keys));
    if is_same(&loaded[lane]) {
        return;
    }
    loaded[lane] = Some(keys);
    lane_set.uniform = loaded.iter().all(|other| other.is_none() || is_same(other));
    for (row, key) in lane_set.keys.iter_mut().zip(keys.as_blocks()) {
        row[lane] = *key;
    }
}
