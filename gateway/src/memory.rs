//! The heap of the programs: freed memory is zeroed first, and memory that may hold keys lies in locked pages.
//!
//! ```text
//!   with_keys(|| …)   this thread's allocations ──► one range of pages: never swapped out, dumped, or seen by a child
//!   all others                                  ──► the system's heap
//!   both, when freed                            ──► zeroes, then back to where they came from
//! ```
//!
//! Keys are copied into many places: the text, its parts, commands, configurations, round keys, answers. The main
//! thread alone makes all of these, so a flag of the thread selects where its allocations come from and no type needs
//! an allocator of its own. Code that only reads a key uses the same reference as before.
//!
//! What a call leaves on its stack is zeroed by [`wipe_stack`].

mod locked;

use std::alloc::{GlobalAlloc, Layout, System};
use std::arch::asm;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;

pub(crate) use locked::is_locked;

/// The heap of every program that links this crate.
#[global_allocator]
static HEAP: Heap = Heap;

struct Heap;

/// Zeroed memory larger than this, in bytes, is for packets: it holds no keys, and uses no memory until it is touched.
const MAX_KEY_ALLOCATION_BYTES: usize = 64 << 10;

/// From this size on, in bytes, memory is zeroed by returning its pages to the system: writing would touch every page.
const MIN_RETURNED_BYTES: usize = 128 << 10;

/// Bytes of stack that are zeroed: a sixteenth of the main thread's. No function that applies a text recurses without
/// bound, so the depth of the stack does not grow with the text.
const ZEROED_STACK_BYTES: usize = 512 << 10;

thread_local! {
    /// Whether what this thread allocates may hold keys.
    static WITH_KEYS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, whose allocations may hold keys.
pub(crate) fn with_keys<R>(work: impl FnOnce() -> R) -> R {
    scope(true, work)
}

/// Runs `work` within [`with_keys`] when none of its allocations will hold keys.
pub(crate) fn without_keys<R>(work: impl FnOnce() -> R) -> R {
    scope(false, work)
}

fn scope<R>(with_keys: bool, work: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            WITH_KEYS.set(self.0);
        }
    }
    let _before = Before(WITH_KEYS.replace(with_keys));
    work()
}

/// Zeroes the stack below the caller, where calls that have ended have left copies of what they worked on.
#[inline(never)]
pub(crate) fn wipe_stack() {
    let mut room = MaybeUninit::<[u8; ZEROED_STACK_BYTES]>::uninit();
    // SAFETY: the room is a local variable, and as large as given.
    unsafe { wipe(room.as_mut_ptr().cast(), ZEROED_STACK_BYTES) };
}

// SAFETY: memory comes from the system's allocator or from `locked`, both of which fulfil the contract, and is returned
// to the one that it came from, which its address identifies.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WITH_KEYS.get()
            && let Some(memory) = locked::allocate(layout)
        {
            return memory.as_ptr();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if WITH_KEYS.get()
            && layout.size() <= MAX_KEY_ALLOCATION_BYTES
            && let Some(memory) = locked::allocate(layout)
        {
            // SAFETY: the memory is new, and as large as asked for.
            unsafe { ptr::write_bytes(memory.as_ptr(), 0, layout.size()) };
            return memory.as_ptr();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller gives the memory up; it has the size it was allocated with, and its address identifies the
        // allocator that it belongs to.
        unsafe {
            if locked::owns(memory) {
                wipe(memory, layout.size());
                locked::free(memory, layout);
            } else {
                wipe_or_give_back(memory, layout.size());
                System.dealloc(memory, layout);
            }
        }
    }

    /// Never calls the system's `realloc`, which would free the old memory without zeroing it.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that size and alignment go together.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let with_keys = WITH_KEYS.get() || locked::owns(memory);
        // SAFETY: as the caller promises.
        let new = scope(with_keys, || unsafe { self.alloc(wanted) });
        if !new.is_null() {
            // SAFETY: both are as large as the smaller of the two, and the new one is not used elsewhere.
            unsafe {
                ptr::copy_nonoverlapping(memory, new, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        new
    }
}

/// Zeroes memory that is never read again, which the compiler could otherwise optimise away.
///
/// # Safety
/// It must be valid for writing so many bytes.
unsafe fn wipe(memory: *mut u8, len: usize) {
    // SAFETY: the caller's promise; the empty instructions might read the memory, as far as the compiler knows.
    unsafe {
        ptr::write_bytes(memory, 0, len);
        asm!("/* {0} */", in(reg) memory, options(nostack, preserves_flags));
    }
}

/// As [`wipe`], for memory of the system's heap: the pages of something large are exchanged for fresh ones.
///
/// # Safety
/// As for [`wipe`], and the memory must be of the system's heap.
unsafe fn wipe_or_give_back(memory: *mut u8, len: usize) {
    if len < MIN_RETURNED_BYTES {
        // SAFETY: the caller's promise.
        return unsafe { wipe(memory, len) };
    }
    let before = memory.align_offset(locked::PAGE);
    let pages = (len - before) / locked::PAGE * locked::PAGE;
    // SAFETY: all three parts lie within the memory that the caller promises; whole pages of private memory read as
    // zeroes afterwards.
    unsafe {
        let (first, rest) = (memory.add(before), memory.add(before + pages));
        if libc::madvise(first.cast(), pages, libc::MADV_DONTNEED) != 0 {
            wipe(first, pages);
        }
        wipe(memory, before);
        wipe(rest, len - before - pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_with_keys_lies_in_locked_pages_and_goes_back_there() {
        let outside = Box::new([1u8; 100]);
        let mut inside = with_keys(|| vec![1u8; 100]);
        assert!(!locked::owns(outside.as_ptr().cast_mut()));
        assert!(locked::owns(inside.as_ptr().cast_mut()));
        // It grows in place, whichever thread appends.
        inside.extend_from_slice(&[2; 100_000]);
        assert!(locked::owns(inside.as_ptr().cast_mut()));
        assert!(inside[..100].iter().all(|&byte| byte == 1));
        std::thread::spawn(move || drop(inside)).join().unwrap();
        let room = with_keys(|| vec![0u8; 1 << 20]);
        assert!(
            !locked::owns(room.as_ptr().cast_mut()),
            "room for packets is not locked"
        );
        let exempt = with_keys(|| without_keys(|| vec![1u8; 100]));
        assert!(!locked::owns(exempt.as_ptr().cast_mut()));
    }

    #[test]
    fn alignments_and_sizes_of_all_kinds_are_kept_apart() {
        with_keys(|| {
            let mut held: Vec<(Layout, *mut u8, u8)> = Vec::new();
            for turn in 0..2000usize {
                let size = (turn * 7919) % 5000 + 1;
                let layout = Layout::from_size_align(size, 1 << (turn % 9)).unwrap();
                // SAFETY: the size is not 0, and what is written stays within it.
                let memory = unsafe { HEAP.alloc(layout) };
                assert!(locked::owns(memory) && memory.align_offset(layout.align()) == 0);
                // SAFETY: as above.
                unsafe { ptr::write_bytes(memory, turn as u8, size) };
                held.push((layout, memory, turn as u8));
                if turn % 3 == 0 {
                    let (layout, memory, mark) = held.swap_remove(turn * 31 % held.len());
                    // SAFETY: it was allocated by this layout and written whole.
                    unsafe {
                        let bytes = std::slice::from_raw_parts(memory, layout.size());
                        assert!(bytes.iter().all(|&byte| byte == mark));
                        HEAP.dealloc(memory, layout);
                    }
                }
            }
            for (layout, memory, _) in held {
                // SAFETY: it was allocated by this layout.
                unsafe { HEAP.dealloc(memory, layout) };
            }
        });
    }

    #[test]
    fn what_is_freed_was_zeroed_however_large() {
        for size in [
            16,
            4096,
            MIN_RETURNED_BYTES - 1,
            MIN_RETURNED_BYTES,
            1_000_003,
        ] {
            // Not freed, so that it can be inspected.
            let mut room = vec![0x5au8; size];
            // SAFETY: the room is that large.
            unsafe { wipe_or_give_back(room.as_mut_ptr(), size) };
            assert!(room.iter().all(|&byte| byte == 0), "{size}");
        }
    }

    #[test]
    fn the_pages_are_locked_and_are_neither_dumped_nor_inherited() {
        let key = with_keys(|| vec![1u8; 100]);
        let address = key.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut here = false;
        for line in maps.lines() {
            if let Some((range, _)) = line.split_once(' ')
                && let Some((start, end)) = range.split_once('-')
                && let (Ok(start), Ok(end)) = (
                    usize::from_str_radix(start, 16),
                    usize::from_str_radix(end, 16),
                )
            {
                here = (start..end).contains(&address);
            }
            if here && let Some(flags) = line.strip_prefix("VmFlags:") {
                for flag in ["dd", "wf"] {
                    assert!(flags.contains(flag), "{flags}");
                }
                assert_eq!(flags.contains("lo"), is_locked(), "{flags}");
                return;
            }
        }
        panic!("the key's pages are not to be found");
    }
}
