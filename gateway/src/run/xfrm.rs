//! Whether the kernel's own IPsec already owns an association: then it would take the packets before we see them.

use ipsec::sa::SaId;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_XFRM};
use std::net::IpAddr;

const XFRM_MSG_GETSA: u16 = 0x12;
const NLMSG_ERROR: u16 = 2;
const HEADER_LEN: usize = 16;

/// A connection to the kernel's IPsec; absent where the kernel has none.
pub(super) struct Xfrm(Option<Socket>);

impl Xfrm {
    /// Connects, if there is anything to connect to.
    pub fn open() -> Self {
        let connect = || {
            let mut socket = Socket::new(NETLINK_XFRM).ok()?;
            socket.bind_auto().ok()?;
            socket.connect(&SocketAddr::new(0, 0)).ok()?;
            Some(socket)
        };
        Self(connect())
    }

    /// Whether the kernel has an association of this name. In doubt it has none: what cannot be asked cannot be there.
    pub fn owns(&self, id: &SaId) -> bool {
        let Some(socket) = &self.0 else {
            return false;
        };
        if socket.send(&question(id), 0).is_err() {
            return false;
        }
        match socket.recv_from_full() {
            Ok((answer, _)) if answer.len() >= HEADER_LEN => {
                u16::from_ne_bytes([answer[4], answer[5]]) != NLMSG_ERROR
            }
            _ => false,
        }
    }
}

/// struct nlmsghdr, then struct xfrm_usersa_id: address (16), SPI (4), family (2), protocol (1), one byte of padding.
fn question(id: &SaId) -> Vec<u8> {
    let mut address = [0; 16];
    let family = match id.destination {
        IpAddr::V4(v4) => {
            address[..4].copy_from_slice(&v4.octets());
            libc::AF_INET
        }
        IpAddr::V6(v6) => {
            address = v6.octets();
            libc::AF_INET6
        }
    };
    let mut message = Vec::with_capacity(HEADER_LEN + 24);
    message.extend_from_slice(&(HEADER_LEN as u32 + 24).to_ne_bytes());
    message.extend_from_slice(&XFRM_MSG_GETSA.to_ne_bytes());
    message.extend_from_slice(&1u16.to_ne_bytes());
    message.extend_from_slice(&1u32.to_ne_bytes());
    message.extend_from_slice(&0u32.to_ne_bytes());
    message.extend_from_slice(&address);
    message.extend_from_slice(&id.spi.get().to_be_bytes());
    message.extend_from_slice(&(family as u16).to_ne_bytes());
    message.extend_from_slice(&[id.protocol.number(), 0]);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::sa::{Protocol, Spi};

    #[test]
    fn a_kernel_without_the_association_or_without_ipsec_owns_nothing() {
        let id = SaId {
            destination: "192.0.2.77".parse().unwrap(),
            protocol: Protocol::Esp,
            spi: Spi::new(0x7777_0001).unwrap(),
        };
        assert_eq!(question(&id).len(), 40);
        assert!(!Xfrm::open().owns(&id));
    }
}
