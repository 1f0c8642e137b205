//! A UDP socket whose ESP the kernel's own IPsec takes.

use dataplane::io::OpenError;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// RFC 3948: the kernel's IPsec takes the ESP that arrives at this socket.
pub(super) fn hand_esp_to_kernel(socket: &impl AsFd, port: u16, v6: bool) -> Result<(), OpenError> {
    const UDP_ENCAP: libc::c_int = 100;
    const UDP_ENCAP_ESPINUDP: libc::c_int = 2;
    let kind = UDP_ENCAP_ESPINUDP;
    // SAFETY: the pointer and the length are those of one integer, which outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_UDP,
            UDP_ENCAP,
            (&raw const kind).cast(),
            size_of_val(&kind) as libc::socklen_t,
        )
    };
    if outcome == 0 {
        return Ok(());
    }
    let version = if v6 { "IPv6" } else { "IPv4" };
    Err(OpenError::System {
        what: format!("have the kernel's IPsec take ESP in UDP at port {port} over {version}"),
        error: io::Error::last_os_error(),
    })
}
