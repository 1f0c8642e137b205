//! Reading one fragment: which packet it belongs to, and where in it.

use super::UNIT;
use crate::Dropped;
use crate::packet::{FragmentKind, Outline};
use crate::wire::ip::v6::FRAGMENT_HEADER_LEN;
use crate::wire::ip::{Chain, Ip, Ipv4, Ipv6, v6};
use std::net::IpAddr;

/// What fragments of one packet have in common (RFC 791 3.2, RFC 8200 4.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    /// IPv4 only; 0 for IPv6, whose fragments may name different next headers.
    protocol: u8,
}

/// One fragment, read.
pub(super) struct Fragment<'a> {
    pub(super) key: Key,
    pub(super) offset: usize,
    pub(super) more: bool,
    pub(super) bytes: &'a [u8],
    /// Headers for the whole packet if this is the first fragment; only their lengths are still wrong.
    pub(super) headers: Vec<u8>,
    pub(super) traffic_class: u8,
}

impl<'a> Fragment<'a> {
    /// `None` for a packet that is no fragment.
    pub(super) fn read(packet: &'a [u8]) -> Result<Option<Self>, Dropped> {
        let outline = Outline::read(packet)?;
        let fragment = match Ip::new_checked(packet)? {
            Ip::V4(_) if outline.fragment == FragmentKind::Whole => None,
            Ip::V4(ipv4) => Some(Self::of_v4(&ipv4)),
            Ip::V6(ipv6) => Self::of_v6(packet, &ipv6)?,
        };
        fragment.map(Self::checked).transpose()
    }

    fn of_v4(ipv4: &Ipv4<'a>) -> Self {
        let first = ipv4.fragment_offset() == 0;
        Self {
            key: Key {
                source: ipv4.source().into(),
                destination: ipv4.destination().into(),
                identification: ipv4.identification().into(),
                protocol: ipv4.protocol(),
            },
            offset: ipv4.fragment_offset(),
            more: ipv4.more_fragments(),
            bytes: ipv4.payload(),
            headers: if first {
                ipv4.header().to_vec()
            } else {
                Vec::new()
            },
            traffic_class: ipv4.traffic_class(),
        }
    }

    fn of_v6(packet: &'a [u8], ipv6: &Ipv6<'a>) -> Result<Option<Self>, Dropped> {
        let chain = Chain::read(ipv6)?;
        let Some(header) = chain.fragment else {
            return Ok(None);
        };
        let bytes = packet
            .get(header.at + FRAGMENT_HEADER_LEN..ipv6.total_len())
            .ok_or(Dropped::Malformed)?;
        Ok(Some(Self {
            key: Key {
                source: ipv6.source().into(),
                destination: ipv6.destination().into(),
                identification: header.identification,
                protocol: 0,
            },
            offset: header.offset,
            more: header.more,
            bytes,
            headers: if header.offset == 0 {
                v6::without_fragment_header(packet, &header)
            } else {
                Vec::new()
            },
            traffic_class: ipv6.traffic_class(),
        }))
    }

    pub(super) fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }

    /// A piece that can be part of a packet: not empty, of whole units if others follow, and inside 65535 bytes.
    fn checked(self) -> Result<Self, Dropped> {
        let atomic = self.offset == 0 && !self.more;
        let whole_units = !self.more || self.bytes.len().is_multiple_of(UNIT);
        let inside = self.end() <= usize::from(u16::MAX);
        let fine = whole_units && inside && (atomic || !self.bytes.is_empty());
        fine.then_some(self).ok_or(Dropped::Malformed)
    }
}
