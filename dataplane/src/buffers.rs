//! Memory that is reused: batches from a bounded pool, and vectors of elements that borrow from call to call.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// How much one read of a source may return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchSize {
    /// Packets or trains.
    pub items: usize,
    /// Bytes of all of them.
    pub bytes: usize,
}

impl Default for BatchSize {
    /// Three super-packets of 64 KiB and some packets more: four times what a TUN device or a socket returns at once.
    fn default() -> Self {
        Self {
            items: 64,
            bytes: 256 * 1024,
        }
    }
}

/// Boxes that are reused. Never holds more than its bound; a box too many is freed.
pub struct Pool<B> {
    spare: Mutex<Vec<Box<B>>>,
    make: Box<dyn Fn() -> B + Send + Sync>,
}

impl<B> Pool<B> {
    /// A pool of at most `bound` spare boxes; `make` makes a new one when it is empty.
    pub fn new(bound: usize, make: impl Fn() -> B + Send + Sync + 'static) -> Self {
        Self {
            spare: Mutex::new(Vec::with_capacity(bound)),
            make: Box::new(make),
        }
    }

    /// The box returned last, whose memory is most likely in the cache, or a new one.
    pub fn take(&self) -> Box<B> {
        let spare = self.lock().pop();
        spare.unwrap_or_else(|| Box::new((self.make)()))
    }

    /// Gives a box back.
    pub fn give_back(&self, used: Box<B>) {
        let mut spare = self.lock();
        if spare.len() < spare.capacity() {
            spare.push(used);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Box<B>>> {
        // A panic under this lock leaves the vector of boxes valid.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An empty vector in the allocation of `used`, for elements of the same layout: the same type with another lifetime.
pub fn recycle<A, B>(mut used: Vec<A>) -> Vec<B> {
    const {
        assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>());
    }
    used.clear();
    let mut used = ManuallyDrop::new(used);
    let (pointer, capacity) = (used.as_mut_ptr().cast::<B>(), used.capacity());
    // SAFETY: the pointer and capacity are those of a vector that nothing else owns any more; the layout of its
    // elements is the same, as asserted above; it holds no element.
    unsafe { Vec::from_raw_parts(pointer, 0, capacity) }
}

/// The first `len` bytes of `buffer`, which grows if it is shorter.
pub fn prefix_mut(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len.next_power_of_two(), 0);
    }
    &mut buffer[..len]
}

/// Appends bytes to a buffer; returns where they lie.
pub(crate) fn append(buffer: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = buffer.len();
    buffer.extend_from_slice(bytes);
    start..buffer.len()
}

/// Splits a buffer into disjoint ranges that are borrowed at the same time.
pub struct RangeSplitter<'a> {
    rest: &'a mut [u8],
    passed: usize,
}

impl<'a> RangeSplitter<'a> {
    /// A splitter of all of `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self {
            rest: buffer,
            passed: 0,
        }
    }

    /// The bytes of `range` of the whole buffer. INVARIANT: ranges ascend and never overlap.
    pub fn take(&mut self, range: Range<usize>) -> &'a mut [u8] {
        let rest = std::mem::take(&mut self.rest);
        let (_, rest) = rest.split_at_mut(range.start - self.passed);
        let (piece, rest) = rest.split_at_mut(range.len());
        self.rest = rest;
        self.passed = range.end;
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_hands_out_what_came_back_last_and_keeps_no_more_than_its_bound() {
        let pool = Pool::new(2, || 0);
        for number in 1..=3 {
            pool.give_back(Box::new(number));
        }
        assert_eq!([*pool.take(), *pool.take(), *pool.take()], [2, 1, 0]);
    }

    #[test]
    fn a_recycled_vector_keeps_its_memory() {
        let text = String::from("text");
        let mut used: Vec<&str> = Vec::with_capacity(40);
        used.push(&text);
        let place = used.as_ptr() as usize;
        let again: Vec<&'static str> = recycle(used);
        assert_eq!((again.as_ptr() as usize, again.capacity()), (place, 40));
    }

    #[test]
    fn ranges_are_taken_where_they_lie() {
        let mut buffer: Vec<u8> = (0..10).collect();
        let mut splitter = RangeSplitter::new(&mut buffer);
        let (first, second) = (splitter.take(1..3), splitter.take(7..10));
        assert_eq!((&*first, &*second), (&[1, 2][..], &[7, 8, 9][..]));
        first[0] = 99;
        assert_eq!(buffer[1], 99);
    }

    #[test]
    fn a_buffer_grows_once_and_stays() {
        let mut buffer = Vec::new();
        assert_eq!(prefix_mut(&mut buffer, 100).len(), 100);
        let len = buffer.len();
        assert_eq!(prefix_mut(&mut buffer, 10).len(), 10);
        assert_eq!(buffer.len(), len);
    }
}
