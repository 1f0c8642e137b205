//! `setsockopt` and `getsockopt` for options of any plain type.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Sets an option that is an int.
pub(super) fn set_option(
    file: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    set_option_to(file, level, name, &value)
}

/// Reads an option that is an int.
pub(super) fn get_option(file: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    get_option_from(file, level, name)
}

/// Sets an option to a value of any plain type.
pub(super) fn set_option_to<T>(
    file: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let (room, len) = (ptr::from_ref(value).cast::<c_void>(), size_of::<T>() as u32);
    // SAFETY: the kernel reads `len` bytes from `room`, which is all of the value.
    let result = unsafe { libc::setsockopt(file.as_raw_fd(), level, name, room, len) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Lets packets leave and arrive by this device alone (`SO_BINDTODEVICE`).
pub(super) fn bind_to_device(file: BorrowedFd<'_>, device: &str) -> io::Result<()> {
    let (level, name) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
    let (room, len) = (device.as_ptr().cast::<c_void>(), device.len() as u32);
    // SAFETY: the kernel reads `len` bytes from `room`, which is the name; no zero byte need follow.
    let result = unsafe { libc::setsockopt(file.as_raw_fd(), level, name, room, len) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Options that are plain numbers: all zeroes is a value, and so is anything the kernel writes.
pub(super) trait Plain: Copy {}
impl Plain for c_int {}
impl Plain for libc::tpacket_stats {}
impl Plain for libc::xdp_mmap_offsets {}

/// Reads an option of any plain type.
pub(super) fn get_option_from<T: Plain>(
    file: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
) -> io::Result<T> {
    // SAFETY: by its trait, all zeroes is a value.
    let (mut value, mut len): (T, u32) = (unsafe { std::mem::zeroed() }, size_of::<T>() as u32);
    // SAFETY: the kernel writes at most `len` bytes behind the first pointer, and their number behind the second.
    let result = unsafe {
        libc::getsockopt(
            file.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast::<c_void>(),
            &raw mut len,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}
