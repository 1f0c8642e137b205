//! A UDP socket whose ESP the kernel's own IPsec takes, or takes no more.

use dataplane::io::OpenError;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const UDP_ENCAP: libc::c_int = 100;
const UDP_ENCAP_ESPINUDP: libc::c_int = 2;

/// RFC 3948: the kernel's IPsec takes the ESP that arrives at this socket.
pub(super) fn hand_esp_to_kernel(socket: &impl AsFd, port: u16, v6: bool) -> Result<(), OpenError> {
    // It expects single datagrams; a kernel without the option has no others.
    let _ = set(socket, libc::UDP_GRO, 0);
    set(socket, UDP_ENCAP, UDP_ENCAP_ESPINUDP).map_err(|error| {
        let version = if v6 { "IPv6" } else { "IPv4" };
        OpenError::System {
            what: format!("have the kernel's IPsec take ESP in UDP at port {port} over {version}"),
            error,
        }
    })
}

/// From now on the ESP that arrives at this socket is read from it.
pub(super) fn take_esp_from_kernel(socket: &impl AsFd, coalesces: bool) -> io::Result<()> {
    set(socket, UDP_ENCAP, 0)?;
    match coalesces {
        true => set(socket, libc::UDP_GRO, 1),
        false => Ok(()),
    }
}

fn set(socket: &impl AsFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of one integer, which outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_UDP,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
