//! A UDP socket whose ESP the kernel's own IPsec takes, or takes no more.

use dataplane::io::OpenError;
use dataplane::io::udp::set_coalescing;
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

/// The first release of Linux that may coalesce what arrives at a socket whose ESP the kernel takes. Since 6.7 its GRO
/// passes ESP in UDP straight to its IPsec, for sockets that ask for GRO; before 6.9 a sender on the same host, whose
/// datagrams come coalesced, could have them taken for one packet.
const GRO_OF_ESP_SINCE: (u32, u32) = (6, 9);

/// Has GRO pass ESP in UDP straight to the kernel's IPsec, where the kernel does that.
pub(super) fn take_esp_in_gro(socket: &impl AsFd) {
    if release().is_some_and(|release| release >= GRO_OF_ESP_SINCE) {
        // Where it is refused the kernel takes ESP behind UDP, as older ones do.
        let _ = set_coalescing(socket.as_fd(), true);
    }
}

/// The first two numbers of the running kernel's release.
fn release() -> Option<(u32, u32)> {
    numbers(rustix::system::uname().release().to_str().ok()?)
}

fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// From now on the ESP that arrives at this socket is read from it.
pub(super) fn take_esp_from_kernel(socket: &impl AsFd, coalesces: bool) -> io::Result<()> {
    set(socket, UDP_ENCAP, 0)?;
    set_coalescing(socket.as_fd(), coalesces)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_first_two_numbers() {
        assert_eq!(numbers("6.12.117+deb12-cloud-amd64"), Some((6, 12)));
        assert_eq!(numbers("7.2-rc1"), Some((7, 2)));
        assert_eq!(numbers("linux"), None);
        assert!(
            numbers("6.1.0") < Some(GRO_OF_ESP_SINCE) && numbers("10.0") > Some(GRO_OF_ESP_SINCE)
        );
        assert!(release().is_some());
    }
}
