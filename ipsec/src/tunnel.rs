//! The outer header around an inner packet (RFC 4301 5.1.2): what is copied, what is set, and back again.

use crate::Dropped;
use crate::packet::{FragmentKind, Outline};
use crate::sa::{DontFragment, Dscp, SaConfig};
use crate::wire::checksum;
use crate::wire::ip::{Ip, Ipv4Fields, Ipv6Fields, number, v4, v6};
use crate::wire::udp::{self, Encapsulated, Udp, UdpFields};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// The outer TTL or hop limit. RFC 4301 5.1.2.1 note 2 leaves it to the implementation; the inner one is not copied.
pub const HOP_LIMIT: u8 = 64;

/// The two bits of ECN in a traffic class (RFC 3168 5).
const ECN: u8 = 0b11;

/// The meaning of an outer IP header, and of the UDP header behind it if there is one. A sink either writes it
/// ([`Outer::emit`]) or has the kernel write it (socket options).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// 50, 51, or 17 for encapsulation.
    pub protocol: u8,
    /// UDP ports of encapsulation.
    pub ports: Option<(u16, u16)>,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// IPv4's don't-fragment bit. Over IPv6, where routers never fragment: whether this host must not fragment either;
    /// true for a packet read from IPv6.
    pub dont_fragment: bool,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Bytes at the start of each packet that are its headers up to ESP or AH, options and extension headers included:
    /// 0 where they are not part of the packet and a sink has yet to write them.
    pub emitted_len: u16,
}

impl Outer {
    /// The outer header for `inner` under `sa` (RFC 4301 5.1.2.1, RFC 6040 4.1).
    #[inline]
    pub fn around(sa: &SaConfig, inner: &Outline) -> Self {
        Self {
            traffic_class: outer_traffic_class(sa, inner.traffic_class),
            // RFC 4301 8.1: all three ways are offered, per association.
            dont_fragment: match sa.df {
                DontFragment::Copy => inner.dont_fragment,
                DontFragment::Set => true,
                DontFragment::Clear => false,
            },
            ..Self::without_inner(sa)
        }
    }

    /// The outer header of every packet of an association in AGGFRAG mode, whatever is inside. RFC 9347 2.2.5: the
    /// inner DF bit never matters, the DSCP is not copied unless configured, and ECN need not be mapped.
    pub fn for_aggfrag(sa: &SaConfig) -> Self {
        Self {
            dont_fragment: sa.df != DontFragment::Clear,
            ..Self::without_inner(sa)
        }
    }

    /// The outer header of a packet without an inner one: a dummy, or a NAT keepalive.
    pub fn without_inner(sa: &SaConfig) -> Self {
        let ports = sa
            .encapsulation
            .map(|udp| (udp.source_port, udp.destination_port));
        Self {
            source: sa.source,
            destination: sa.id.destination,
            protocol: ports.map_or(sa.id.protocol.number(), |_| number::UDP),
            ports,
            traffic_class: outer_traffic_class(sa, 0),
            dont_fragment: false,
            hop_limit: HOP_LIMIT,
            emitted_len: 0,
        }
    }

    /// Reads the outer headers of a whole packet. Also returns where ESP or AH begins. RFC 3948 2.2, 2.3: a UDP payload
    /// that starts with four zero bytes is IKE's, one byte 0xff a keepalive; neither is ESP.
    ///
    /// Where link padding may follow the packet, use [`Outer::payload`], which also returns where ESP or AH ends.
    pub fn read(packet: &[u8]) -> Result<(Self, usize), Dropped> {
        Self::payload(packet).map(|(outer, payload)| (outer, payload.start))
    }

    /// Reads the outer headers of a whole packet, and where in it ESP or AH lies: to the end of the UDP datagram, or
    /// of the IP packet, whatever follows in the buffer. A fragment must be reassembled first (RFC 4303 3.4.1).
    #[inline]
    pub fn payload(packet: &[u8]) -> Result<(Self, Range<usize>), Dropped> {
        let outline = Outline::read(packet)?;
        if outline.fragment != FragmentKind::Whole {
            return Err(Dropped::Fragment);
        }
        let range = outline.header_len..outline.total_len;
        let (ports, range) = match outline.protocol {
            number::ESP | number::AH => (None, range),
            number::UDP => {
                let bytes = packet.get(range.clone()).ok_or(Dropped::Malformed)?;
                let (ports, len) = read_encapsulation(bytes)?;
                let start = range.start + udp::HEADER_LEN;
                (Some(ports), start..start + len)
            }
            _ => return Err(Dropped::Unsupported),
        };
        let outer = Self {
            source: outline.source,
            destination: outline.destination,
            protocol: outline.protocol,
            ports,
            traffic_class: outline.traffic_class,
            dont_fragment: outline.dont_fragment,
            hop_limit: outline.hop_limit,
            emitted_len: 0,
        };
        Ok((outer, range))
    }

    /// Bytes of IP header and UDP header.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        self.ip_len() + self.ports.map_or(0, |_| udp::HEADER_LEN)
    }

    /// Bytes of the IP header alone.
    pub fn ip_len(&self) -> usize {
        if self.destination.is_ipv4() {
            v4::MIN_HEADER_LEN
        } else {
            v6::HEADER_LEN
        }
    }

    /// Writes IP (and UDP) headers for `payload_len` bytes to the start of `out`. `identification` is IPv4's.
    /// RFC 3948 2.1: the UDP checksum is 0 over IPv4; over IPv6 as well (RFC 6935).
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`Outer::len`].
    #[inline]
    pub fn emit(&self, payload_len: usize, identification: u16, out: &mut [u8]) {
        let (ip, udp) = out[..self.len()].split_at_mut(self.ip_len());
        let upper_len = udp.len() + payload_len;
        match self.destination {
            IpAddr::V4(to) => ip.copy_from_slice(&self.v4(to, identification).emit(upper_len)),
            IpAddr::V6(to) => ip.copy_from_slice(&self.v6(to).emit(upper_len)),
        }
        if let Some((source_port, destination_port)) = self.ports {
            let fields = UdpFields {
                source_port,
                destination_port,
                checksum: 0,
            };
            udp.copy_from_slice(&fields.emit(payload_len));
        }
    }

    fn v4(&self, destination: Ipv4Addr, identification: u16) -> Ipv4Fields {
        let source = match self.source {
            IpAddr::V4(source) => source,
            IpAddr::V6(source) => source.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED),
        };
        Ipv4Fields {
            traffic_class: self.traffic_class,
            identification,
            dont_fragment: self.dont_fragment,
            hop_limit: self.hop_limit,
            protocol: self.protocol,
            source,
            destination,
        }
    }

    fn v6(&self, destination: Ipv6Addr) -> Ipv6Fields {
        let source = match self.source {
            IpAddr::V6(source) => source,
            IpAddr::V4(source) => source.to_ipv6_mapped(),
        };
        Ipv6Fields {
            traffic_class: self.traffic_class,
            flow_label: flow_label(source, destination, self.ports),
            next_header: self.protocol,
            hop_limit: self.hop_limit,
            source,
            destination,
        }
    }
}

/// RFC 4301 5.1.2.1 and RFC 2983 for DSCP. RFC 6040 4.1 for ECN: normal mode copies the field, compatibility mode
/// sends Not-ECT, so that no router marks a packet whose mark would be lost.
fn outer_traffic_class(sa: &SaConfig, inner: u8) -> u8 {
    let dscp = match sa.dscp {
        Dscp::Copy => inner & !ECN,
        Dscp::Set(value) => value << 2,
    };
    let ecn = if sa.ecn { inner & ECN } else { 0 };
    dscp | ecn
}

/// The ports of a datagram that encapsulates ESP, and the bytes of ESP inside.
fn read_encapsulation(bytes: &[u8]) -> Result<((u16, u16), usize), Dropped> {
    let udp = Udp::new_checked(bytes)?;
    match Encapsulated::of(udp.payload()) {
        Encapsulated::Esp => Ok((
            (udp.source_port(), udp.destination_port()),
            udp.payload().len(),
        )),
        Encapsulated::Ike | Encapsulated::Keepalive => Err(Dropped::Unsupported),
        Encapsulated::Short => Err(Dropped::Malformed),
    }
}

/// A label that is the same for all packets of one tunnel and most likely another for another (RFC 6437 3, RFC 6438
/// 4). Made from what is visible outside, so that it reveals nothing about the inner flows.
fn flow_label(source: Ipv6Addr, destination: Ipv6Addr, ports: Option<(u16, u16)>) -> u32 {
    let (from, to) = ports.unwrap_or_default();
    let sum = (u128::from(source).rotate_left(61) ^ u128::from(destination))
        ^ (u128::from(from) << 16 | u128::from(to));
    let half = (sum >> 64) as u64 ^ sum as u64;
    (half.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as u32
}

/// Carries the outer ECN field into the inner header (RFC 6040 4.2), mending an IPv4 header checksum.
/// A combination that RFC 6040 forbids drops the packet.
#[inline]
pub fn decapsulate_ecn(outer_traffic_class: u8, inner: &mut [u8]) -> Result<(), Dropped> {
    let before = match Ip::new_checked(inner).map_err(|_| Dropped::BadInner)? {
        Ip::V4(ipv4) => ipv4.traffic_class(),
        Ip::V6(ipv6) => ipv6.traffic_class(),
    };
    let after = inner_ecn(outer_traffic_class & ECN, before & ECN)?;
    if after != before & ECN {
        set_ecn(inner, after);
    }
    Ok(())
}

/// RFC 6040 4.2, figure 4, row by row.
fn inner_ecn(outer: u8, inner: u8) -> Result<u8, Dropped> {
    const NOT_ECT: u8 = 0b00;
    const ECT_1: u8 = 0b01;
    const ECT_0: u8 = 0b10;
    const CE: u8 = 0b11;
    match (inner, outer) {
        // The transport does not support ECN: only a drop signals congestion.
        (NOT_ECT, CE) => Err(Dropped::Congested),
        (NOT_ECT, _) => Ok(NOT_ECT),
        (CE, _) | (_, CE) => Ok(CE),
        (ECT_0, ECT_1) => Ok(ECT_1),
        _ => Ok(inner),
    }
}

/// Replaces the ECN field of a packet, mending an IPv4 header checksum.
pub(crate) fn set_ecn(packet: &mut [u8], ecn: u8) {
    if let &mut [first, second, ..] = packet {
        let class = match first >> 4 {
            4 => second,
            _ => first << 4 | second >> 4,
        };
        set_traffic_class(packet, class & !ECN | ecn & ECN);
    }
}

fn set_traffic_class(packet: &mut [u8], traffic_class: u8) {
    match packet {
        [first, class, _, _, _, _, _, _, _, _, high, low, ..] if *first >> 4 == 4 => {
            let old = u16::from_be_bytes([*first, *class]);
            let new = u16::from_be_bytes([*first, traffic_class]);
            let sum = checksum::mend(u16::from_be_bytes([*high, *low]), old, new);
            *class = traffic_class;
            [*high, *low] = sum.to_be_bytes();
        }
        [first, second, ..] => {
            *first = 0x60 | traffic_class >> 4;
            *second = traffic_class << 4 | *second & 0x0f;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
