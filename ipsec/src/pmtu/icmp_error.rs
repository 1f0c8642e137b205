//! ICMP errors for the sender of a packet: "fragmentation needed" and "packet too big" with the MTU that fits, and
//! "time exceeded".

use super::MIN_MTU_V6;
use crate::packet::{FragmentKind, Outline};
use crate::tunnel::HOP_LIMIT;
use crate::wire::checksum::{self, Sum};
use crate::wire::icmp::{self, TooBigFields};
use crate::wire::ip::{Ipv4Fields, Ipv6Fields, number, v4, v6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes that every IPv4 host takes, hence the longest ICMP error (RFC 1812 4.3.2.3).
const MAX_ICMP_ERROR_BYTES_V4: usize = 576;

/// Writes into `out`, emptied first, the ICMP message for `packet`'s sender that only `mtu` bytes fit.
/// `reporter` is the address it comes from, of the same family.
///
/// False, and nothing written, where no message may be sent (RFC 1122 3.2.2, RFC 4443 2.4): about an ICMP error, a
/// later fragment, a source that is no single host, or an IPv4 destination that is not one.
pub fn packet_too_big(packet: &[u8], mtu: usize, reporter: IpAddr, out: &mut Vec<u8>) -> bool {
    let fields = TooBigFields {
        mtu: u32::try_from(mtu).unwrap_or(u32::MAX),
    };
    emit(
        packet,
        reporter,
        [fields.emit_v4(0), fields.emit_v6(0)],
        out,
    )
}

/// Writes into `out`, emptied first, the ICMP message for `packet`'s sender that its hop limit ended at `reporter`, an
/// address of the same family (RFC 1812 5.3.1, RFC 4443 3.3). False, and nothing written, where [`packet_too_big`]
/// writes nothing either.
pub fn time_exceeded(packet: &[u8], reporter: IpAddr, out: &mut Vec<u8>) -> bool {
    let header = |kind| [kind, 0, 0, 0, 0, 0, 0, 0];
    let headers = [icmp::TIME_EXCEEDED, icmp::TIME_EXCEEDED_V6].map(header);
    emit(packet, reporter, headers, out)
}

/// The message with one of two headers, whose checksums are 0 still: version 4's, version 6's.
fn emit(packet: &[u8], reporter: IpAddr, headers: [Header; 2], out: &mut Vec<u8>) -> bool {
    out.clear();
    let Ok(outline) = Outline::read(packet) else {
        return false;
    };
    if !may_be_answered(&outline) {
        return false;
    }
    let quoted = packet.get(..outline.total_len).unwrap_or_default();
    match (reporter, outline.source) {
        (IpAddr::V4(from), IpAddr::V4(to)) => write_v4((from, to), headers[0], quoted, out),
        (IpAddr::V6(from), IpAddr::V6(to)) => write_v6((from, to), headers[1], quoted, out),
        _ => return false,
    }
    true
}

/// What stands before the quoted packet.
type Header = [u8; icmp::HEADER_LEN];

fn finished(mut header: Header, sum: u16) -> Header {
    header[2..4].copy_from_slice(&sum.to_be_bytes());
    header
}

fn write_v4(ends: (Ipv4Addr, Ipv4Addr), header: Header, quoted: &[u8], out: &mut Vec<u8>) {
    let room = MAX_ICMP_ERROR_BYTES_V4 - v4::MIN_HEADER_LEN - icmp::HEADER_LEN;
    let quoted = quoted.get(..room).unwrap_or(quoted);
    let sum = checksum::over(&[&header, quoted]);
    let ip = Ipv4Fields {
        // RFC 1812 4.3.2.5: precedence 6, internetwork control.
        traffic_class: 0xc0,
        identification: 0,
        dont_fragment: true,
        hop_limit: HOP_LIMIT,
        protocol: number::ICMP,
        source: ends.0,
        destination: ends.1,
    };
    out.extend_from_slice(&ip.emit(icmp::HEADER_LEN + quoted.len()));
    out.extend_from_slice(&finished(header, sum));
    out.extend_from_slice(quoted);
}

/// RFC 4443 3.2: quotes as much as fits into the smallest MTU.
fn write_v6(ends: (Ipv6Addr, Ipv6Addr), header: Header, quoted: &[u8], out: &mut Vec<u8>) {
    let room = MIN_MTU_V6 - v6::HEADER_LEN - icmp::HEADER_LEN;
    let quoted = quoted.get(..room).unwrap_or(quoted);
    let len = icmp::HEADER_LEN + quoted.len();
    let sum = Sum::new()
        .pseudo_header(ends.0.into(), ends.1.into(), number::ICMPV6, len)
        .bytes(&header)
        .bytes(quoted)
        .finish();
    let ip = Ipv6Fields {
        traffic_class: 0,
        flow_label: 0,
        next_header: number::ICMPV6,
        hop_limit: HOP_LIMIT,
        source: ends.0,
        destination: ends.1,
    };
    out.extend_from_slice(&ip.emit(len));
    out.extend_from_slice(&finished(header, sum));
    out.extend_from_slice(quoted);
}

fn may_be_answered(packet: &Outline) -> bool {
    let is_error = match (packet.protocol, packet.ports) {
        (number::ICMP, Some((kind, _))) => matches!(kind, 3 | 4 | 5 | 11 | 12),
        // Types below 128 are errors; 137 is Redirect (RFC 4443 2.4 (e.1, e.2)).
        (number::ICMPV6, Some((kind, _))) => kind < 128 || kind == 137,
        _ => false,
    };
    let single_hosts = match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            is_single_v4(source) && !destination.is_multicast() && !destination.is_broadcast()
        }
        // RFC 4443 2.4 (e.3): "packet too big" alone may be sent about a multicast destination.
        (source, _) => !source.is_unspecified() && !source.is_multicast(),
    };
    packet.fragment != FragmentKind::Later && !is_error && single_hosts
}

/// Neither 0/8, loopback, multicast nor class E with broadcast (RFC 1122 3.2.1.3, 3.2.2).
fn is_single_v4(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first < 224 && !address.is_loopback()
}
