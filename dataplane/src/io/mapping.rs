//! Memory shared with the kernel: the rings of packet sockets and AF_XDP.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU32;

/// A mapping, taken away when dropped.
pub(super) struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to nobody's thread; who may touch which part when is settled by the rings' indices.
unsafe impl Send for Mapping {}

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
        // SAFETY: a new mapping at a place that the kernel chooses touches no memory of ours.
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

    /// A number that the kernel changes too, at a multiple of four.
    pub fn number(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY: it lies inside the mapping, is aligned, lives as long as self, and is only ever used atomically.
        unsafe { AtomicU32::from_ptr(self.start.add(at).cast()) }
    }

    /// Copies a plain value out of memory that is ours now.
    pub fn read<T: Copy>(&self, at: usize) -> T {
        assert!(at + size_of::<T>() <= self.len);
        // SAFETY: it lies inside the mapping; callers read plain numbers, for which every pattern of bits is a value.
        unsafe { self.start.add(at).cast::<T>().read_unaligned() }
    }

    /// Copies a plain value into memory that is ours now.
    pub fn write<T: Copy>(&mut self, at: usize, value: T) {
        assert!(at + size_of::<T>() <= self.len);
        // SAFETY: it lies inside the mapping.
        unsafe { self.start.add(at).cast::<T>().write_unaligned(value) }
    }

    /// Bytes that are ours now.
    ///
    /// INVARIANT: callers ask only for frames that an index or a status word has handed to user space.
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: inside the mapping; by the invariant the kernel does not write there meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.add(at), len) }
    }

    /// The same, to write.
    pub fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: inside the mapping, borrowed once; by the invariant the kernel does not touch it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrowed from the mapping outlives it. A failure would leave it mapped, which harms nobody.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}
