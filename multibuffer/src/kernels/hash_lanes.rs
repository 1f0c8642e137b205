//! HMAC of many packets at once: which message stands in which lane.
//!
//! Each lane of a vector hashes a message of its own. A lane reads directly from the packet where whole blocks are
//! contiguous, and from a small buffer where parts meet, at the message's end and for the outer hash. All lanes advance
//! by the shortest stretch, then those at the end of theirs get the next:
//!
//! ```text
//!   lane   header+IV+text │ text text text text text │ text+padding │ outer │ next packet …
//!            one block         as many as there are       1 to 4        1
//! ```

mod dispatch;
mod md5;
mod ripemd;
mod sha1;
mod sha2;
mod shani;
mod vector;

use std::array;

pub(crate) use dispatch::{HashWidth, HmacKernel, Lanes};
pub(crate) use md5::Md5;
pub(crate) use ripemd::Ripemd160;
pub(crate) use sha1::Sha1;
pub(crate) use sha2::{Sha256, Sha384, Sha512};
use vector::{Element, Vector};

use super::transpose::MAX_LANES;
use crate::copy::copy;

/// Bytes of a lane's buffer. Copying a packet of middling length costs less than another stop of all lanes.
const BUFFER_BYTES: usize = 640;

/// A hash function that works on vectors as it does on words.
pub(crate) trait Algorithm: 'static {
    /// A word of the state and of a block: a block is sixteen of them.
    type Element: Element;
    /// Words of state.
    const STATE: usize;
    /// Bytes of digest.
    const DIGEST: usize;
    /// Whether words are read and written with their high byte first.
    const BIG_ENDIAN: bool;

    /// Reads one block in each lane.
    fn compress<V: Vector<Element = Self::Element>>(state: &mut [V; 8], block: [V; 16]);
}

/// One message.
pub(crate) struct HmacJob<'a, A: Algorithm> {
    /// The state after the key's inner block.
    pub(crate) inner: &'a [A::Element],
    /// The state after the key's outer block.
    pub(crate) outer: &'a [A::Element],
    /// The parts of the message in order.
    pub(crate) message: [&'a [u8]; 4],
    /// Receives the MAC, truncated to its length.
    pub(crate) icv: &'a mut [u8],
}

/// What the lanes need for a stretch of blocks.
///
/// INVARIANT: the first [`Vector::LANES`] pointers are to at least as many readable blocks as the stretch is long.
struct LaneSet<E> {
    state: [[E; MAX_LANES]; 8],
    data: [*const u8; MAX_LANES],
}

/// The message that a lane hashes.
struct Lane<'a, A: Algorithm> {
    /// Whether the lane has a message.
    busy: bool,
    outer: &'a [A::Element],
    message: [&'a [u8]; 4],
    /// Bytes in the message and the key's block.
    len: u64,
    icv: &'a mut [u8],
    phase: Phase,
    /// What is left of the stretch that is being read, in the message or in the buffer.
    ///
    /// INVARIANT: so many blocks are readable.
    stretch: (*const u8, usize),
    /// Where a stretch is put together that does not stand together.
    buffer: [u8; BUFFER_BYTES],
}

/// What the stretch of a lane is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Message,
    Padding,
    Outer,
}

/// Signs all jobs in `lanes` lanes; `run` advances every lane by a number of blocks and leaves the pointers unchanged.
fn sign<'a, A: Algorithm>(
    lanes: usize,
    jobs: impl Iterator<Item = HmacJob<'a, A>>,
    run: impl Fn(&mut LaneSet<A::Element>, usize),
) {
    let mut jobs = jobs.fuse();
    let zero = A::Element::default();
    let mut lane_set = LaneSet {
        state: [[zero; MAX_LANES]; 8],
        data: [std::ptr::null(); MAX_LANES],
    };
    let mut active: [Lane<'a, A>; MAX_LANES] = array::from_fn(|_| Lane::idle());
    loop {
        let mut shortest = usize::MAX;
        let mut readable = std::ptr::null();
        for (at, lane) in active[..lanes].iter_mut().enumerate() {
            prepare(lane, at, &mut lane_set.state, &mut jobs);
            if lane.busy {
                let (data, blocks) = lane.stretch;
                shortest = shortest.min(blocks);
                (readable, lane_set.data[at]) = (data, data);
            }
        }
        if readable.is_null() {
            return;
        }
        // A lane without a message reads the same as another; its result is not used.
        for (data, _) in lane_set
            .data
            .iter_mut()
            .zip(&active)
            .filter(|(_, lane)| !lane.busy)
        {
            *data = readable;
        }
        run(&mut lane_set, shortest);
        for lane in active[..lanes].iter_mut().filter(|lane| lane.busy) {
            let (data, blocks) = &mut lane.stretch;
            *data = data.wrapping_add(shortest * block_len::<A>());
            *blocks -= shortest;
        }
    }
}

const fn block_len<A: Algorithm>() -> usize {
    16 * size_of::<A::Element>()
}

/// Gives a lane blocks to read, from its message or the next one, if there are any.
fn prepare<'a, A: Algorithm>(
    lane: &mut Lane<'a, A>,
    at: usize,
    state: &mut [[A::Element; MAX_LANES]; 8],
    jobs: &mut impl Iterator<Item = HmacJob<'a, A>>,
) {
    if lane.busy && lane.stretch.1 == 0 {
        match lane.phase {
            Phase::Message => lane.read_on(),
            Phase::Padding => lane.enter_outer(at, state),
            Phase::Outer => lane.finish(at, state),
        }
    }
    if !lane.busy
        && let Some(job) = jobs.next()
    {
        set_state(at, state, job.inner);
        lane.take_on(job);
        lane.read_on();
    }
}

fn set_state<E: Element>(at: usize, state: &mut [[E; MAX_LANES]; 8], words: &[E]) {
    for (row, word) in state.iter_mut().zip(words) {
        row[at] = *word;
    }
}

fn digest<A: Algorithm>(at: usize, state: &[[A::Element; MAX_LANES]; 8]) -> [u8; 64] {
    let mut digest = [0; 64];
    let size = size_of::<A::Element>();
    for (bytes, row) in digest.chunks_exact_mut(size).zip(&state[..A::STATE]) {
        row[at].write(A::BIG_ENDIAN, bytes);
    }
    digest
}

impl<'a, A: Algorithm> Lane<'a, A> {
    fn idle() -> Self {
        Self {
            busy: false,
            outer: &[],
            message: [&[]; 4],
            len: 0,
            icv: &mut [],
            phase: Phase::Message,
            stretch: (std::ptr::null(), 0),
            buffer: [0; BUFFER_BYTES],
        }
    }

    fn take_on(&mut self, job: HmacJob<'a, A>) {
        let len: usize = job.message.iter().map(|part| part.len()).sum();
        self.busy = true;
        self.outer = job.outer;
        self.message = job.message;
        self.len = (len + block_len::<A>()) as u64;
        self.icv = job.icv;
        self.phase = Phase::Message;
    }

    /// Writes the MAC and frees the lane.
    fn finish(&mut self, at: usize, state: &[[A::Element; MAX_LANES]; 8]) {
        let digest = digest::<A>(at, state);
        let icv = std::mem::take(&mut self.icv);
        icv.copy_from_slice(&digest[..icv.len()]);
        self.busy = false;
    }

    /// Finds the next stretch of the message. A short rest is assembled with its padding at once, because each stretch
    /// makes all lanes stop.
    fn read_on(&mut self) {
        let block = block_len::<A>();
        let rest: usize = self.message.iter().map(|part| part.len()).sum();
        if rest + 1 + Self::LENGTH_BYTES <= self.buffer.len() {
            self.compose(rest);
            return self.close(rest);
        }
        let first = self
            .message
            .iter_mut()
            .find(|part| !part.is_empty())
            .expect("the rest is not short");
        if first.len() < block {
            self.stretch = (self.buffer.as_ptr(), 1);
            return self.compose(block);
        }
        let blocks = first.len() / block;
        let (now, later) = first.split_at(blocks * block);
        *first = later;
        self.stretch = (now.as_ptr(), blocks);
    }

    /// Fills the buffer with `wanted` bytes of the message, which has as many.
    fn compose(&mut self, wanted: usize) {
        let mut held = 0;
        for part in &mut self.message {
            let (now, later) = part.split_at(part.len().min(wanted - held));
            copy(now, &mut self.buffer[held..held + now.len()]);
            held += now.len();
            *part = later;
        }
    }

    /// Bytes that the message's length takes behind it.
    const LENGTH_BYTES: usize = 2 * size_of::<A::Element>();

    /// Pads the `held` bytes in the buffer and appends the length, to whole blocks.
    fn close(&mut self, held: usize) {
        let blocks = (held + 1 + Self::LENGTH_BYTES).div_ceil(block_len::<A>());
        self.stretch = (self.buffer.as_ptr(), blocks);
        self.phase = Phase::Padding;
        let end = blocks * block_len::<A>();
        self.buffer[held] = 0x80;
        self.buffer[held + 1..end].fill(0);
        let bits = self.len * 8;
        let bits = if A::BIG_ENDIAN {
            bits.to_be_bytes()
        } else {
            bits.to_le_bytes()
        };
        self.buffer[end - 8..end].copy_from_slice(&bits);
    }

    /// Starts the outer hash, whose message is the digest of the inner.
    fn enter_outer(&mut self, at: usize, state: &mut [[A::Element; MAX_LANES]; 8]) {
        let digest = digest::<A>(at, state);
        set_state(at, state, self.outer);
        self.buffer[..64].copy_from_slice(&digest);
        self.len = (block_len::<A>() + A::DIGEST) as u64;
        self.close(A::DIGEST);
        self.phase = Phase::Outer;
    }
}

/// Takes each lane `blocks` blocks further.
///
/// # Safety
/// Each pointer that [`Vector::LANES`] counts is valid for reading `blocks` blocks.
#[inline(always)]
unsafe fn run<A: Algorithm, V: Vector<Element = A::Element>>(
    lane_set: &mut LaneSet<A::Element>,
    blocks: usize,
) {
    let mut state = [V::splat(A::Element::default()); 8];
    for (vector, row) in state.iter_mut().zip(&lane_set.state) {
        *vector = V::load(row);
    }
    for block in 0..blocks {
        // SAFETY: the caller promises that many blocks.
        let words =
            unsafe { V::load_block(&lane_set.data, block * block_len::<A>(), A::BIG_ENDIAN) };
        A::compress(&mut state, words);
    }
    for (vector, row) in state.iter().zip(&mut lane_set.state) {
        vector.store(row);
    }
}
