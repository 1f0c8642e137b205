//! XCBC and CMAC of many packets at once.
//!
//! A lane reads straight from the packet where whole blocks stand together, and from a buffer where parts meet and at
//! the end, where the last block is masked.

use std::{array, ptr};

use super::{Flight, MAX_ROUND_KEYS, RoundKeys, load};
use crate::kernels::scalar::xor;

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

/// A message on its way.
struct Lane<'a> {
    job: CbcMacJob<'a>,
    /// Whether the last block is on its way.
    closed: bool,
    /// The stretch that is being read, if it stands in the message.
    direct: Option<&'a [u8]>,
    /// The stretch that is being read, if it had to be put together.
    buffer: [u8; 128],
    /// Bytes of the stretch that have been read.
    at: usize,
    /// Blocks of the stretch that have not.
    left: usize,
}

/// Signs all jobs, whose keys have `rounds` rounds; `run` takes every lane of a flight so many blocks further, writes
/// nothing but the chaining values and leaves the `text` pointers alone.
pub(super) fn sign<'a, const N: usize>(
    rounds: usize,
    jobs: impl Iterator<Item = CbcMacJob<'a>>,
    run: impl Fn(&mut Flight<N>, usize),
) {
    let mut jobs = jobs.fuse();
    let keys = [[[0; 16]; N]; MAX_ROUND_KEYS];
    let mut flight = Flight::<N> {
        keys,
        chain: [[0; 16]; N],
        text: [ptr::null_mut(); N],
        uniform: true,
    };
    let mut loaded: [Option<&RoundKeys>; N] = [None; N];
    let mut flown: [Option<Lane<'a>>; N] = array::from_fn(|_| None);
    loop {
        let mut shortest = usize::MAX;
        let mut readable = ptr::null_mut();
        for (at, lane) in flown.iter_mut().enumerate() {
            finish_stretch(lane, &flight.chain[at]);
            if lane.is_none()
                && let Some(job) = jobs.next()
            {
                assert_eq!(job.keys.rounds(), rounds, "all keys have one length");
                load(&mut flight, at, &mut loaded, job.keys);
                flight.chain[at] = [0; 16];
                lane.insert(Lane::new(job)).read_on();
            }
            if let Some(lane) = lane {
                shortest = shortest.min(lane.left);
                readable = lane.stretch().as_ptr().cast_mut();
                flight.text[at] = readable;
            }
        }
        if readable.is_null() {
            return;
        }
        // A lane without a message reads what another reads; nobody looks at what comes of it.
        for (text, _) in flight
            .text
            .iter_mut()
            .zip(&flown)
            .filter(|(_, lane)| lane.is_none())
        {
            *text = readable;
        }
        run(&mut flight, shortest);
        for lane in flown.iter_mut().flatten() {
            lane.left -= shortest;
            lane.at += 16 * shortest;
        }
    }
}

/// Where a lane has read its stretch: gives it the next, or its MAC away and the lane free.
fn finish_stretch(lane: &mut Option<Lane<'_>>, chain: &[u8; 16]) {
    match lane {
        Some(flown) if flown.left == 0 && flown.closed => {
            let icv = &mut *flown.job.icv;
            icv.copy_from_slice(&chain[..icv.len()]);
            *lane = None;
        }
        Some(flown) if flown.left == 0 => flown.read_on(),
        _ => {}
    }
}

impl<'a> Lane<'a> {
    fn new(job: CbcMacJob<'a>) -> Self {
        Self {
            job,
            closed: false,
            direct: None,
            buffer: [0; 128],
            at: 0,
            left: 0,
        }
    }

    /// What is left of the current stretch.
    fn stretch(&self) -> &[u8] {
        let whole = self.direct.unwrap_or(&self.buffer);
        &whole[self.at..self.at + 16 * self.left]
    }

    /// Finds the next stretch of the message. A short rest is put together at once, for each stretch costs the lane a
    /// stop; its last block, complete or not, is masked.
    fn read_on(&mut self) {
        self.at = 0;
        self.direct = None;
        let rest: usize = self.job.message.iter().map(|part| part.len()).sum();
        if rest <= self.buffer.len() {
            self.compose(rest);
            return self.close(rest);
        }
        let first = self
            .job
            .message
            .iter_mut()
            .find(|part| !part.is_empty())
            .expect("the rest is not short");
        let blocks = first.len().min(rest - 1) / 16;
        if blocks == 0 {
            self.left = 1;
            return self.compose(16);
        }
        let (now, later) = first.split_at(16 * blocks);
        self.left = blocks;
        *first = later;
        self.direct = Some(now);
    }

    /// Fills the buffer with `wanted` bytes of the message, which has as many.
    fn compose(&mut self, wanted: usize) {
        let mut held = 0;
        for part in &mut self.job.message {
            let (now, later) = part.split_at(part.len().min(wanted - held));
            self.buffer[held..held + now.len()].copy_from_slice(now);
            held += now.len();
            *part = later;
        }
    }

    /// Masks the last block of the `held` bytes in the buffer. RFC 3566 4 and RFC 4493 2.4: by which mask depends on
    /// whether it had to be padded.
    fn close(&mut self, held: usize) {
        self.closed = true;
        self.left = held.div_ceil(16).max(1);
        let (start, end) = (16 * (self.left - 1), 16 * self.left);
        if held == end {
            xor(&mut self.buffer[start..end], self.job.complete);
        } else {
            self.buffer[held] = 0x80;
            self.buffer[held + 1..end].fill(0);
            xor(&mut self.buffer[start..end], self.job.padded);
        }
    }
}
