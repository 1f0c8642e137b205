//! A bypass of the kernel's own IPsec (XFRM): policies set there by other programs do not apply to the gateway's
//! sockets, whose packets are ESP or AH already. An XFRM policy that blocks or protects all traffic does not stop the
//! tunnel.

use super::Family;
use super::socket_option::set_option_to;
use std::io;
use std::os::fd::BorrowedFd;

/// `struct xfrm_userpolicy_info` of `linux/xfrm.h`.
const POLICY_LEN: usize = 168;

/// Where in it the family of its selector, its direction and its action lie.
const FAMILY_AT: usize = 40;
const DIRECTION_AT: usize = 160;
const ACTION_AT: usize = 161;

/// XFRM_POLICY_IN and XFRM_POLICY_OUT.
const DIRECTIONS: [u8; 2] = [0, 1];

/// XFRM_POLICY_ALLOW.
const ALLOW: u8 = 0;

/// Lets a socket's packets pass XFRM policies in both directions; does nothing where the kernel has no XFRM.
pub fn bypass_xfrm_policies(file: BorrowedFd<'_>, family: Family) -> io::Result<()> {
    let (level, name) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_XFRM_POLICY),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_XFRM_POLICY),
    };
    for direction in DIRECTIONS {
        match set_option_to(file, level, name, &allowing(family, direction)) {
            Err(error) if is_absent(&error) => return Ok(()),
            outcome => outcome?,
        }
    }
    Ok(())
}

/// A policy that allows any packet without an SA.
fn allowing(family: Family, direction: u8) -> [u8; POLICY_LEN] {
    let number = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    let mut policy = [0; POLICY_LEN];
    policy[FAMILY_AT..FAMILY_AT + 2].copy_from_slice(&(number as u16).to_ne_bytes());
    policy[DIRECTION_AT] = direction;
    policy[ACTION_AT] = ALLOW;
    policy
}

/// A kernel without XFRM; or one without the module that reads policies, so that it has none either.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EINVAL)
    )
}

#[cfg(test)]
mod tests {
    use super::super::namespaces::{command, isolated};
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn what_the_kernels_policies_block_leaves_by_a_socket_that_bypasses_them() {
        isolated(|| {
            command("ip link add blocked type veth peer name other");
            command("ip link set other up");
            command("ip link set blocked up");
            command("ip addr add 192.0.2.1/24 dev blocked");
            command("ip addr add 2001:db8::1/64 dev blocked nodad");
            for (family, any, here, there) in [
                (Family::V4, "0.0.0.0/0", "192.0.2.1:0", "192.0.2.9:9"),
                (Family::V6, "::/0", "[2001:db8::1]:0", "[2001:db8::9]:9"),
            ] {
                let way = format!("dir out src {any} dst {any}");
                command(&format!("ip xfrm policy add {way} action block"));
                let socket = UdpSocket::bind(here).unwrap();
                assert!(socket.send_to(b"x", there).is_err(), "nothing is blocked");
                bypass_xfrm_policies(socket.as_fd(), family).unwrap();
                assert_eq!(socket.send_to(b"x", there).unwrap(), 1);
                let another = UdpSocket::bind(here).unwrap();
                assert!(
                    another.send_to(b"x", there).is_err(),
                    "another socket passes"
                );
            }
        });
    }
}
