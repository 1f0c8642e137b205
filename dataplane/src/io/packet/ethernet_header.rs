//! Ethernet headers: destination (6 bytes), source (6 bytes), EtherType (2 bytes).

use std::net::IpAddr;

/// Bytes of an Ethernet header.
pub(in crate::io) const ETHERNET_HEADER_BYTES: usize = 14;

/// The destination's and the source's address, as an Ethernet header begins.
pub(in crate::io) type LinkAddresses = [u8; ETHERNET_HEADER_BYTES - 2];

/// The type of a packet to this address.
pub(in crate::io) fn ethertype(address: IpAddr) -> [u8; 2] {
    let number = if address.is_ipv4() {
        libc::ETH_P_IP
    } else {
        libc::ETH_P_IPV6
    };
    (number as u16).to_be_bytes()
}
