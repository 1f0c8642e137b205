//! A forwarded packet as an Ethernet frame: a new link header, and the hop limit decremented.

use crate::io::packet::egress::{OutgoingFrame, REWRITTEN_BYTES};
use crate::io::packet::{ETHERNET_HEADER_BYTES, LinkAddresses, ethertype};
use ipsec::wire::ip::decrement_hop_limit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The frame of a forwarded packet.
pub(super) fn frame<'a>(addresses: &LinkAddresses, packet: &'a [u8]) -> Option<OutgoingFrame<'a>> {
    let (head, rest) = (head(addresses, packet)?, packet.get(REWRITTEN_BYTES..)?);
    Some(OutgoingFrame { head, rest })
}

/// The link header, and the start of the IP header with the hop limit decremented.
pub(super) fn head(
    addresses: &LinkAddresses,
    packet: &[u8],
) -> Option<[u8; ETHERNET_HEADER_BYTES + REWRITTEN_BYTES]> {
    let changed = packet.first_chunk::<REWRITTEN_BYTES>()?;
    let mut head = [0; ETHERNET_HEADER_BYTES + REWRITTEN_BYTES];
    head[..addresses.len()].copy_from_slice(addresses);
    let version = if changed[0] >> 4 == 4 {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    head[addresses.len()..ETHERNET_HEADER_BYTES].copy_from_slice(&ethertype(version));
    head[ETHERNET_HEADER_BYTES..].copy_from_slice(changed);
    decrement_hop_limit(&mut head[ETHERNET_HEADER_BYTES..]).then_some(head)
}

/// Source, destination and hop limit of a decrypted packet, whose headers have been parsed before.
pub(super) fn addresses_of(packet: &[u8]) -> Option<(IpAddr, IpAddr, u8)> {
    match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<20>()?;
            let address = |at: usize| Some(IpAddr::from(*header[at..].first_chunk::<4>()?));
            Some((address(12)?, address(16)?, header[8]))
        }
        6 => {
            let header = packet.first_chunk::<40>()?;
            let address = |at: usize| Some(IpAddr::from(*header[at..].first_chunk::<16>()?));
            Some((address(8)?, address(24)?, header[7]))
        }
        _ => None,
    }
}
