//! An association's name in the kernel's fields.

use ipsec::sa::{Protocol, SaId, Spi};
use netlink_packet_xfrm::*;
use std::net::{IpAddr, Ipv4Addr};

/// UDP_ENCAP_ESPINUDP: RFC 3948.
pub(super) const ESP_IN_UDP: u16 = 2;

pub(crate) fn identity(info: &UserSaInfo) -> Option<SaId> {
    let (id, family) = (&info.id, info.family);
    named_by(&id.daddr, family, id.proto, id.spi)
}

/// The same of a shorter form.
pub(crate) fn identity_of(id: &UserSaId) -> Option<SaId> {
    named_by(&id.daddr, id.family, id.proto, id.spi)
}

fn named_by(destination: &Address, family: u16, protocol: u8, spi: u32) -> Option<SaId> {
    Some(SaId {
        destination: read_address(destination, family),
        protocol: match protocol {
            IPPROTO_ESP => Protocol::Esp,
            IPPROTO_AH => Protocol::Ah,
            IPPROTO_COMP => Protocol::IpComp,
            _ => return None,
        },
        spi: Spi::new(spi)?,
    })
}

pub(crate) fn read_address(address: &Address, family: u16) -> IpAddr {
    match family {
        AF_INET => IpAddr::V4(Ipv4Addr::from_octets([
            address.addr[0],
            address.addr[1],
            address.addr[2],
            address.addr[3],
        ])),
        _ => IpAddr::V6(address.to_ipv6()),
    }
}
