//! XCBC and CMAC of many packets at once.
//!
//! A lane reads directly from the packet where whole blocks are contiguous, and from a buffer where parts meet and at
//! the end, where the last block is masked.

use std::{array, ptr};

use super::{LaneSet, MAX_ROUND_KEYS, RoundKeys, load};
use crate::{copy::copy, kernels::scalar::xor};

/// Bytes of a lane's buffer. Copying a packet of middling length costs less than another stop of all lanes.
const BUFFER_BYTES: usize = 544;

/// One message.
pub(crate) struct CbcMacJob<'a> {
    pub(crate) keys: &'a RoundKeys,
    /// Masks a last block that is complete.
    pub(crate) complete: &'a [u8; 16],
    /// Masks a last block that was padded.
    pub(crate) padded: &'a [u8; 16],
    /// The parts of the message in order.
    pub(crate) message: [&'a [u8]; 4],
    /// Receives the MAC, truncated to its length.
    pub(crate) icv: &'a mut [u8],
}

/// The message that a lane signs.
struct Lane<'a> {
    job: CbcMacJob<'a>,
    /// Whether the present stretch includes the last block.
    closed: bool,
    /// What is left of the stretch that is being read, in the message or where it had to be put together.
    ///
    /// INVARIANT: so many blocks are readable.
    stretch: (*const u8, usize),
}

/// A lane's buffer for bytes that are not contiguous.
type Buffer = [u8; BUFFER_BYTES];

/// Signs all jobs, whose keys have `rounds` rounds; `run` advances every lane by a number of blocks, writes only the
/// chaining values and leaves the `text` pointers unchanged.
pub(super) fn sign<'a, const N: usize>(
    rounds: usize,
    jobs: impl Iterator<Item = CbcMacJob<'a>>,
    run: impl Fn(&mut LaneSet<N>, usize),
) {
    let mut jobs = jobs.fuse();
    let keys = [[[0; 16]; N]; MAX_ROUND_KEYS];
    let mut lane_set = LaneSet::<N> {
        keys,
        chain: [[0; 16]; N],
        text: [ptr::null_mut(); N],
        uniform: true,
    };
    let mut loaded: [Option<&RoundKeys>; N] = [None; N];
    let mut active: [Option<Lane<'a>>; N] = array::from_fn(|_| None);
    let mut buffers = [[0; BUFFER_BYTES]; N];
    loop {
        let mut shortest = usize::MAX;
        let mut readable = ptr::null_mut();
        for (at, (lane, buffer)) in active.iter_mut().zip(&mut buffers).enumerate() {
            finish_stretch(lane, buffer, &lane_set.chain[at]);
            if lane.is_none()
                && let Some(job) = jobs.next()
            {
                assert_eq!(job.keys.rounds(), rounds, "all keys have one length");
                load(&mut lane_set, at, &mut loaded, job.keys);
                lane_set.chain[at] = [0; 16];
                lane.insert(Lane::new(job)).read_on(buffer);
            }
            if let Some(lane) = lane {
                let (data, blocks) = lane.stretch;
                shortest = shortest.min(blocks);
                readable = data.cast_mut();
                lane_set.text[at] = readable;
            }
        }
        if readable.is_null() {
            return;
        }
        // A lane without a message reads the same as another; its result is not used.
        for (text, _) in lane_set
            .text
            .iter_mut()
            .zip(&active)
            .filter(|(_, lane)| lane.is_none())
        {
            *text = readable;
        }
        run(&mut lane_set, shortest);
        for lane in active.iter_mut().flatten() {
            let (data, blocks) = &mut lane.stretch;
            *data = data.wrapping_add(16 * shortest);
            *blocks -= shortest;
        }
    }
}

/// At the end of a lane's stretch: starts the next one, or writes the MAC and frees the lane.
fn finish_stretch(lane: &mut Option<Lane<'_>>, buffer: &mut Buffer, chain: &[u8; 16]) {
    match lane {
        Some(active) if active.stretch.1 > 0 => {}
        Some(active) if active.closed => {
            let icv = &mut *active.job.icv;
            icv.copy_from_slice(&chain[..icv.len()]);
            *lane = None;
        }
        Some(active) => active.read_on(buffer),
        None => {}
    }
}

impl<'a> Lane<'a> {
    fn new(job: CbcMacJob<'a>) -> Self {
        Self {
            job,
            closed: false,
            stretch: (ptr::null(), 0),
        }
    }

    /// Finds the next stretch of the message. A short rest is assembled at once, because each stretch makes all lanes
    /// stop; its last block, complete or not, is masked.
    fn read_on(&mut self, buffer: &mut Buffer) {
        let rest: usize = self.job.message.iter().map(|part| part.len()).sum();
        if rest <= buffer.len() {
            self.compose(buffer, rest);
            return self.close(buffer, rest);
        }
        let first = self
            .job
            .message
            .iter_mut()
            .find(|part| !part.is_empty())
            .expect("the rest is not short");
        let blocks = first.len().min(rest - 1) / 16;
        if blocks == 0 {
            self.stretch = (buffer.as_ptr(), 1);
            return self.compose(buffer, 16);
        }
        let (now, later) = first.split_at(16 * blocks);
        *first = later;
        self.stretch = (now.as_ptr(), blocks);
    }

    /// Fills the buffer with `wanted` bytes of the message, which has as many.
    fn compose(&mut self, buffer: &mut Buffer, wanted: usize) {
        let mut held = 0;
        for part in &mut self.job.message {
            let (now, later) = part.split_at(part.len().min(wanted - held));
            copy(now, &mut buffer[held..held + now.len()]);
            held += now.len();
            *part = later;
        }
    }

    /// Masks the last block of the `held` bytes in the buffer. RFC 3566 4 and RFC 4493 2.4: by which mask depends on
    /// whether it had to be padded.
    fn close(&mut self, buffer: &mut Buffer, held: usize) {
        self.closed = true;
        let blocks = held.div_ceil(16).max(1);
        self.stretch = (buffer.as_ptr(), blocks);
        let (start, end) = (16 * (blocks - 1), 16 * blocks);
        if held == end {
            xor(&mut buffer[start..end], self.job.complete);
        } else {
            buffer[held] = 0x80;
            buffer[held + 1..end].fill(0);
            xor(&mut buffer[start..end], self.job.padded);
        }
    }
}
