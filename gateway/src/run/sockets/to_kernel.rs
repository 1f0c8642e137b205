//! A UDP socket whose ESP the kernel's own IPsec takes, or takes no more.

use dataplane::io::OpenError;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const UDP_ENCAP: libc::c_int = 100;
const UDP_ENCAP_ESPINUDP: libc::c_int = 2;

/// RFC 3948: the kernel's IPsec takes the ESP that arrives at this socket. GRO is left as it is: what has been
/// coalesced already can be read only with it, and where the kernel takes ESP, it takes single datagrams.
pub(super) fn hand_esp_to_kernel(socket: &impl AsFd, port: u16, v6: bool) -> Result<(), OpenError> {
    set(socket, UDP_ENCAP, UDP_ENCAP_ESPINUDP).map_err(|error| {
        let version = if v6 { "IPv6" } else { "IPv4" };
        OpenError::System {
            what: format!("have the kernel's IPsec take ESP in UDP at port {port} over {version}"),
            error,
        }
    })
}

/// What arrives at this socket is not coalesced any more.
pub(super) fn end_coalescing(socket: &impl AsFd) {
    // A kernel without the option coalesces nothing.
    let _ = set(socket, libc::UDP_GRO, 0);
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
