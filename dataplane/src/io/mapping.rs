//! Memory shared with the kernel: the rings of packet sockets and AF_XDP.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU32;

/// A memory mapping, unmapped when dropped.
pub(super) struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to no particular thread; the rings' indices settle which side may access which part.
unsafe impl Send for Mapping {}

/// A type for which every bit pattern is a value: it may be copied out of memory that others write.
///
/// # Safety
/// Numbers only, no type with invalid bit patterns (no `bool`, reference or enum). A copy includes padding, so a type
/// with padding is read whole or not at all.
pub(super) unsafe trait Bits: Copy {}

// SAFETY: numbers.
unsafe impl Bits for u32 {}
// SAFETY: numbers.
unsafe impl Bits for u64 {}
// SAFETY: four-byte and two-byte numbers, and four bytes.
unsafe impl Bits for libc::tpacket2_hdr {}
// SAFETY: two numbers of four bytes behind one of eight.
unsafe impl Bits for libc::xdp_desc {}

impl Mapping {
    /// A socket's ring.
    pub fn of_socket(socket: BorrowedFd<'_>, len: usize, offset: i64) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED, socket.as_raw_fd(), offset)
    }

    /// Fresh zeroed pages.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn map(len: usize, flags: i32, file: i32, offset: i64) -> io::Result<Self> {
        // SAFETY: a new mapping at a place that the kernel chooses touches no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: start.cast(),
            len,
        })
    }

    /// Where it starts.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// A number that the kernel changes as well, at a multiple of four.
    pub fn number(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && self.holds(at, size_of::<u32>()));
        // SAFETY: it lies inside the mapping, is aligned, lives as long as self, and is only ever used atomically.
        unsafe { AtomicU32::from_ptr(self.start.add(at).cast()) }
    }

    /// Copies a plain value out of memory that user space owns at this moment.
    pub fn read<T: Bits>(&self, at: usize) -> T {
        assert!(self.holds(at, size_of::<T>()));
        // SAFETY: it lies inside the mapping, and by the trait every pattern of bits is a value.
        unsafe { self.start.add(at).cast::<T>().read_unaligned() }
    }

    /// Copies a plain value into memory that user space owns at this moment.
    pub fn write<T: Bits>(&mut self, at: usize, value: T) {
        assert!(self.holds(at, size_of::<T>()));
        // SAFETY: it lies inside the mapping.
        unsafe { self.start.add(at).cast::<T>().write_unaligned(value) }
    }

    /// Whether `len` bytes at `at` lie inside. Checked, because a sum that wrapped around would seem to.
    fn holds(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Bytes that user space owns at this moment.
    ///
    /// INVARIANT: callers ask only for frames that an index or a status word has handed to user space.
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(self.holds(at, len));
        // SAFETY: inside the mapping; by the invariant the kernel does not write there meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.add(at), len) }
    }

    /// The same, mutable.
    pub fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(self.holds(at, len));
        // SAFETY: inside the mapping, borrowed once; by the invariant the kernel does not touch it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrowed from the mapping outlives it. If it fails, the memory stays mapped, which does no
        // harm.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering::Relaxed;

    const LEN: usize = 4096;

    #[test]
    fn what_is_written_is_read_at_any_place_that_holds_it() {
        let mut memory = Mapping::anonymous(LEN).unwrap();
        for at in [0, 1, 7, LEN - 8] {
            memory.write(at, 0x0123_4567_89ab_cdef_u64);
            assert_eq!(memory.read::<u64>(at), 0x0123_4567_89ab_cdef);
        }
        memory.bytes_mut(8, 4).copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(memory.number(8).load(Relaxed), 7);
        assert_eq!(memory.bytes(LEN, 0), [0; 0]);
    }

    #[test]
    fn no_place_outside_is_touched_however_far_it_is() {
        let mut memory = Mapping::anonymous(LEN).unwrap();
        let mut refuses = |touch: &dyn Fn(&mut Mapping)| {
            catch_unwind(AssertUnwindSafe(|| touch(&mut memory))).is_err()
        };
        for at in [LEN - 7, LEN, LEN + 1, usize::MAX - 7, usize::MAX] {
            assert!(
                refuses(&|memory| assert!(memory.read::<u64>(at) < 1)),
                "{at}"
            );
            assert!(refuses(&|memory| memory.write(at, 0_u64)), "{at}");
            assert!(
                refuses(&|memory| assert_eq!(memory.bytes(at, 8), [0; 8])),
                "{at}"
            );
            assert!(refuses(&|memory| memory.bytes_mut(at, 8).fill(0)), "{at}");
        }
        for at in [2, LEN, usize::MAX - 3] {
            assert!(
                refuses(&|memory| memory.number(at).store(0, Relaxed)),
                "{at}"
            );
        }
    }
}
