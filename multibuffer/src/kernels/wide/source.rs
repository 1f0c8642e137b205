//! Reading a packet that stands in up to three ranges, a vector at a time.

use super::Wide;

/// What is left to read of a packet.
pub(in crate::kernels) struct Source {
    /// INVARIANT: what is left of each range is readable; a range before one with bytes has bytes itself.
    parts: [(*const u8, usize); 3],
}

impl Source {
    /// Reads `parts` in order.
    pub(in crate::kernels) fn new(parts: [&[u8]; 3]) -> Self {
        let [first, second, third] = parts;
        let mut source = Self {
            parts: [
                (first.as_ptr(), first.len()),
                (second.as_ptr(), second.len()),
                (third.as_ptr(), third.len()),
            ],
        };
        source.close_up();
        source
    }

    /// Reads `len` bytes in place, which are written behind the reader's back.
    ///
    /// # Safety
    /// The bytes stay readable as long as the source is read.
    pub(in crate::kernels) unsafe fn in_place(at: *const u8, len: usize) -> Self {
        Self {
            parts: [(at, len), (at, 0), (at, 0)],
        }
    }

    #[inline(always)]
    fn close_up(&mut self) {
        for _ in 0..2 {
            if self.parts[0].1 == 0 {
                self.parts = [self.parts[1], self.parts[2], (self.parts[2].0, 0)];
            }
        }
    }

    /// Bytes that are left.
    #[inline(always)]
    pub(in crate::kernels) fn left(&self) -> usize {
        self.parts[0].1 + self.parts[1].1 + self.parts[2].1
    }

    /// The next whole vector.
    ///
    /// # Safety
    /// As many bytes are left, and the processor has `W`.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn whole<W: Wide>(&mut self) -> W {
        let (at, len) = self.parts[0];
        // SAFETY: what is left of a range is readable.
        unsafe {
            if len >= W::BYTES {
                self.parts[0] = (at.add(W::BYTES), len - W::BYTES);
                return W::load(at);
            }
            self.some(W::BYTES)
        }
    }

    /// The next `wanted` bytes and zeros behind them.
    ///
    /// # Safety
    /// As many bytes are left, a vector has as many, and the processor has `W`.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn some<W: Wide>(&mut self, wanted: usize) -> W {
        self.close_up();
        let mut taken = self.parts;
        let mut missing = wanted;
        for (now, left) in taken.iter_mut().zip(&mut self.parts) {
            now.1 = left.1.min(missing);
            missing -= now.1;
            // SAFETY: no further than the end of the range.
            *left = (unsafe { left.0.add(now.1) }, left.1 - now.1);
        }
        self.close_up();
        // SAFETY: what was left of the ranges is readable, and no more than a vector was taken.
        unsafe { W::joined(taken) }
    }
}
