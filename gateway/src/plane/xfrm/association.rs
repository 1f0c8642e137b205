//! An association as the kernel knows it: its names, and the requests that need no more than those.
//!
//! `written` is what the kernel is told, `told` what it tells, `limits` what it cannot be told.

mod limits;
mod told;
mod written;

pub(super) use limits::{can_be_said, can_become};
pub(super) use told::{Found, read};
pub(super) use written::write;

use ipsec::sa::{Protocol, SaId, Spi};
use netlink_packet_xfrm::state::{AllocSpiMessage, DelGetMessage, FlushMessage, GetDumpMessage};
use netlink_packet_xfrm::*;
use std::net::{IpAddr, Ipv4Addr};

/// UDP_ENCAP_ESPINUDP: RFC 3948.
const ESP_IN_UDP: u16 = 2;
/// The kernel keeps a bitmap of this many packets beside an association by itself; larger windows come with their own.
const LEGACY_WINDOW: u32 = 32;
const EVERY_PROTOCOL: u8 = 255;

/// The question for one association, and the request to take it away.
pub(super) fn named(id: &SaId) -> DelGetMessage {
    let mut message = DelGetMessage::default();
    message.user_sa_id.destination(&id.destination);
    message.user_sa_id.spi = id.spi.get();
    message.user_sa_id.proto = id.protocol.number();
    message
}

pub(super) fn flush(protocol: Option<Protocol>) -> XfrmMessage {
    let protocol = protocol.map_or(EVERY_PROTOCOL, Protocol::number);
    XfrmMessage::FlushSa(FlushMessage { protocol })
}

pub(super) fn everything() -> XfrmMessage {
    XfrmMessage::GetDumpSa(GetDumpMessage::default())
}

/// Asks the kernel for an SPI between two ends.
pub(super) fn reserve(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    range: Option<(Spi, Spi)>,
) -> XfrmMessage {
    let mut spi_info = UserSpiInfo::default();
    spi_info.info.source(&source);
    spi_info.info.destination(&destination);
    spi_info.info.id.proto = protocol.number();
    if let Some((low, high)) = range {
        (spi_info.min, spi_info.max) = (low.get(), high.get());
    }
    let nlas = Vec::new();
    XfrmMessage::AllocSpi(AllocSpiMessage { spi_info, nlas })
}

pub(super) fn identity(info: &UserSaInfo) -> Option<SaId> {
    Some(SaId {
        destination: read_address(&info.id.daddr, info.family),
        protocol: match info.id.proto {
            IPPROTO_ESP => Protocol::Esp,
            IPPROTO_AH => Protocol::Ah,
            _ => return None,
        },
        spi: Spi::new(info.id.spi)?,
    })
}

pub(super) fn read_address(address: &Address, family: u16) -> IpAddr {
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
