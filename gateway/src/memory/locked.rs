//! A range of pages that are locked, left out of core dumps and empty in a child process, and an allocator in it.
//!
//! The range is reserved once, and becomes memory piece by piece as it is needed. It never moves, so an address alone
//! shows whether something lies there. Any thread may free what another has allocated; that is rare, so one lock is
//! enough.

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use talc::{ErrOnOom, Span, Talc};

/// Bytes in a page, at most; a piece is a multiple of it.
pub(super) const PAGE: usize = 64 << 10;

/// Bytes that are reserved: addresses, not memory. More than any number of associations needs.
#[cfg(target_pointer_width = "64")]
const RESERVED: usize = 16 << 30;
#[cfg(not(target_pointer_width = "64"))]
const RESERVED: usize = 256 << 20;

/// Bytes of the first piece; later ones are a sixteenth of what there is: locked memory is in use whether something
/// lies in it or not.
const FIRST_LOCKED_BYTES: usize = 256 << 10;

/// Where the range begins; 0 before the first allocation.
static START: AtomicUsize = AtomicUsize::new(0);

/// Whether the system has refused to lock pages, or to reserve the range.
static REFUSED: AtomicBool = AtomicBool::new(false);

static RANGE: Mutex<Range> = Mutex::new(Range {
    contents: Talc::new(ErrOnOom),
    memory: Span::empty(),
});

struct Range {
    contents: Talc<ErrOnOom>,
    /// The part of the range that is memory.
    memory: Span,
}

/// Whether all allocations so far lie in locked pages.
pub(crate) fn is_locked() -> bool {
    !REFUSED.load(Ordering::Relaxed)
}

/// Whether this lies in the range.
pub(super) fn owns(memory: *const u8) -> bool {
    let start = START.load(Ordering::Relaxed);
    start != 0 && memory.addr().wrapping_sub(start) < RESERVED
}

/// Allocates in the range; `None` if there is no more memory.
pub(super) fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    let mut range = RANGE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        // SAFETY: no layout of an allocator has size 0.
        if let Ok(memory) = unsafe { range.contents.malloc(layout) } {
            return Some(memory);
        }
        range.grow(layout.size().checked_add(layout.align())?)?;
    }
}

/// Frees memory.
///
/// # Safety
/// It came from [`allocate`] by this layout, and it is not used any more.
pub(super) unsafe fn free(memory: *mut u8, layout: Layout) {
    let Some(memory) = NonNull::new(memory) else {
        return;
    };
    let mut range = RANGE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the caller's promise.
    unsafe { range.contents.free(memory, layout) };
}

impl Range {
    /// Turns so many more bytes of the range into memory, plus what the allocator needs for itself.
    fn grow(&mut self, bytes: usize) -> Option<()> {
        let start = reserved()?;
        let used = self.memory.size();
        let piece = bytes
            .checked_add(PAGE)?
            .max(FIRST_LOCKED_BYTES)
            .max(used / 16)
            .checked_next_multiple_of(PAGE)?;
        if piece > RESERVED - used {
            REFUSED.store(true, Ordering::Relaxed);
            return None;
        }
        let begin = start.wrapping_add(used);
        // SAFETY: the piece lies in the reserved range and is not memory yet.
        unsafe { make_memory(begin, piece)? };
        let larger = Span::from_base_size(start, used + piece);
        // SAFETY: all of it is memory now, not used elsewhere, and only ever grows.
        self.memory = unsafe {
            match used {
                0 => self.contents.claim(larger).ok()?,
                _ => self.contents.extend(self.memory, larger),
            }
        };
        Some(())
    }
}

/// Where the range begins, reserved if it is not yet; only ever called under the lock.
fn reserved() -> Option<*mut u8> {
    let start = START.load(Ordering::Relaxed);
    if start != 0 {
        return Some(ptr::with_exposed_provenance_mut(start));
    }
    // SAFETY: a new mapping wherever there is room disturbs nothing.
    let range = unsafe {
        libc::mmap(
            ptr::null_mut(),
            RESERVED,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if range == libc::MAP_FAILED {
        REFUSED.store(true, Ordering::Relaxed);
        return None;
    }
    START.store(range.expose_provenance(), Ordering::Relaxed);
    Some(range.cast())
}

/// Makes a reserved piece memory. Locked if the system allows that; kept from dumps and children in any case.
///
/// # Safety
/// The piece belongs to this allocator and is not used.
unsafe fn make_memory(begin: *mut u8, len: usize) -> Option<()> {
    let begin = begin.cast();
    // SAFETY: the caller's promise.
    let locked = unsafe {
        if libc::mprotect(begin, len, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            REFUSED.store(true, Ordering::Relaxed);
            return None;
        }
        libc::madvise(begin, len, libc::MADV_DONTDUMP);
        libc::madvise(begin, len, libc::MADV_WIPEONFORK);
        libc::mlock(begin, len) == 0
    };
    if !locked {
        REFUSED.store(true, Ordering::Relaxed);
    }
    Some(())
}
