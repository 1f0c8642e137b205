//! Sockets beyond the standard library: options, and packet sockets on one interface.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::testbed::isolate::done;

/// Sets an option that is a number.
pub(crate) fn set(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let pointer: *const libc::c_int = &value;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value lives for the call and its size is correct.
    done(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer.cast(), size) })
}

/// Sets the receive buffer. SO_RCVBUFFORCE needs CAP_NET_ADMIN; SO_RCVBUF is capped but always allowed.
pub(crate) fn receive_room(socket: &impl AsRawFd, bytes: libc::c_int) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// The same for the send buffer.
pub(crate) fn send_room(socket: &impl AsRawFd, bytes: libc::c_int) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
}

/// A packet socket in the calling thread's network namespace that captures every frame of the interface, after
/// `prepare` has set its options.
pub(crate) fn packet(
    interface: &str,
    prepare: impl FnOnce(&OwnedFd) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    // SAFETY: socket takes numbers; the descriptor is owned from here on.
    let socket = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let descriptor = libc::socket(libc::AF_PACKET, kind, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    prepare(&socket)?;
    bind(&socket, interface)?;
    Ok(socket)
}

fn bind(socket: &OwnedFd, interface: &str) -> io::Result<()> {
    let name = CString::new(interface)?;
    // SAFETY: a C string that lives for the call; an all-zero sockaddr_ll is valid and its size is correct.
    unsafe {
        let index = libc::if_nametoindex(name.as_ptr());
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        let pointer: *const libc::sockaddr_ll = &address;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        done(libc::bind(socket.as_raw_fd(), pointer.cast(), size))
    }
}
