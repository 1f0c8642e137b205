//! Addresses and ancillary data ("control messages") of socket calls, as bytes in the kernel's layout.
//!
//! Written and read by hand: that needs no pointers and so no `unsafe`; only the buffer's address goes into a message
//! header. Every buffer is of fixed size and reused.

use ipsec::wire::ip::number;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A socket address: `sockaddr_in` or `sockaddr_in6`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct SocketAddress([u8; Self::BYTES]);

impl Default for SocketAddress {
    fn default() -> Self {
        Self([0; Self::BYTES])
    }
}

impl SocketAddress {
    /// Bytes that any address needs.
    pub const BYTES: usize = 28;

    #[cfg(any(test, fuzzing))]
    /// An address as the kernel writes it.
    pub fn holding(written: [u8; Self::BYTES]) -> Self {
        Self(written)
    }

    /// Where the kernel may write [`SocketAddress::BYTES`] bytes.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Writes an address; returns how many bytes it takes.
    pub fn write(&mut self, address: IpAddr, port: u16) -> u32 {
        self.0 = [0; Self::BYTES];
        self.0[2..4].copy_from_slice(&port.to_be_bytes());
        match address {
            IpAddr::V4(v4) => {
                self.0[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                self.0[4..8].copy_from_slice(&v4.octets());
                16
            }
            IpAddr::V6(v6) => {
                self.0[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                self.0[8..24].copy_from_slice(&v6.octets());
                Self::BYTES as u32
            }
        }
    }

    /// The address and port that the kernel wrote.
    pub fn read(&self) -> Option<(IpAddr, u16)> {
        let port = u16::from_be_bytes([self.0[2], self.0[3]]);
        let address = match c_int::from(u16::from_ne_bytes([self.0[0], self.0[1]])) {
            libc::AF_INET => IpAddr::V4(Ipv4Addr::from(*self.0[4..8].first_chunk()?)),
            libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(*self.0[8..24].first_chunk()?)),
            _ => return None,
        };
        Some((address, port))
    }
}

/// One control message, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ControlMessage {
    /// The packet's destination: a local address.
    Destination(IpAddr),
    /// DSCP and ECN.
    TrafficClass(u8),
    /// TTL or hop limit.
    HopLimit(u8),
    /// Bytes of each datagram of a coalesced receive.
    Stride(usize),
    /// A router's ICMP message, or the kernel itself, reports a smaller MTU.
    MtuReport {
        /// Bytes of the largest packet.
        mtu: u32,
        /// Whether this kernel knows it from its own devices and routes, and not from a message of the network.
        local: bool,
    },
}

/// Room for the control messages of one packet.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct ControlBuffer {
    bytes: [u8; Self::BYTES],
    len: usize,
}

impl Default for ControlBuffer {
    fn default() -> Self {
        Self {
            bytes: [0; Self::BYTES],
            len: 0,
        }
    }
}

/// A control message starts with its length, level and type, and is padded to the machine's word.
const WORD_BYTES: usize = size_of::<usize>();
const HEADER_BYTES: usize = WORD_BYTES + 8;

impl ControlBuffer {
    /// Bytes for every message that is sent or enabled here, including the error report with an IPv6 offender, and
    /// IPv6 extension headers of any likely length.
    pub const BYTES: usize = 1024;

    /// Where the kernel may write [`ControlBuffer::BYTES`] bytes.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    #[cfg(any(test, fuzzing))]
    /// Control messages as the kernel writes them, cut at the end of the buffer.
    pub fn holding(written: &[u8]) -> Self {
        let mut control = Self::default();
        control.set_len(written.len());
        control.bytes[..control.len].copy_from_slice(&written[..control.len]);
        control
    }

    /// How many bytes were written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Sets how many bytes the kernel wrote.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(Self::BYTES);
    }

    /// Forgets all messages.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Asks that the packet be sent from this address.
    pub fn put_source(&mut self, source: IpAddr) {
        match source {
            // struct in_pktinfo: interface (any), the source, and a field only used on receive.
            IpAddr::V4(v4) => {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&v4.octets());
                self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            // struct in6_pktinfo: the source, interface (any).
            IpAddr::V6(v6) => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&v6.octets());
                self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// Sets DSCP, ECN and hop limit of the packet.
    pub fn put_header(&mut self, v6: bool, traffic_class: u8, hop_limit: u8) {
        let (level, class, limit) = if v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
        };
        self.put(level, class, &c_int::from(traffic_class).to_ne_bytes());
        // A hop limit of 0 cannot be sent; the kernel would refuse the packet for it.
        self.put(level, limit, &c_int::from(hop_limit.max(1)).to_ne_bytes());
    }

    /// Asks that the bytes be cut into datagrams of `stride` bytes.
    pub fn put_segment(&mut self, stride: u16) {
        self.put(libc::SOL_UDP, libc::UDP_SEGMENT, &stride.to_ne_bytes());
    }

    fn put(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        let whole = HEADER_BYTES + value.len();
        let room = &mut self.bytes[self.len..self.len + whole.next_multiple_of(WORD_BYTES)];
        room.fill(0);
        room[..WORD_BYTES].copy_from_slice(&whole.to_ne_bytes());
        room[WORD_BYTES..WORD_BYTES + 4].copy_from_slice(&level.to_ne_bytes());
        room[WORD_BYTES + 4..HEADER_BYTES].copy_from_slice(&kind.to_ne_bytes());
        room[HEADER_BYTES..whole].copy_from_slice(value);
        self.len += whole.next_multiple_of(WORD_BYTES);
    }

    /// The messages of the kinds in [`ControlMessage`].
    pub fn parsed(&self) -> impl Iterator<Item = ControlMessage> + '_ {
        self.messages().filter_map(meaning)
    }

    /// The extension headers of an IPv6 packet in their order, each with its number.
    pub fn extensions(&self) -> impl Iterator<Item = (u8, &[u8])> + '_ {
        self.messages().filter_map(extension)
    }

    fn messages(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let mut rest = &self.bytes[..self.len];
        std::iter::from_fn(move || {
            let whole = usize::from_ne_bytes(*rest.first_chunk()?);
            let message = rest
                .get(..whole)
                .filter(|message| message.len() >= HEADER_BYTES)?;
            rest = rest
                .get(whole.next_multiple_of(WORD_BYTES)..)
                .unwrap_or(&[]);
            Some(message)
        })
    }
}

/// Number and bytes of the IPv6 extension header in a message, if there is one.
fn extension(message: &[u8]) -> Option<(u8, &[u8])> {
    let word = |at: usize| Some(c_int::from_ne_bytes(*message.get(at..)?.first_chunk()?));
    let header = &message[HEADER_BYTES..];
    match (word(WORD_BYTES)?, word(WORD_BYTES + 4)?) {
        (libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS) => Some((number::HOP_BY_HOP, header)),
        (libc::IPPROTO_IPV6, libc::IPV6_RTHDR) => Some((number::ROUTING, header)),
        (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS) => Some((number::DESTINATION_OPTIONS, header)),
        _ => None,
    }
}

fn meaning(message: &[u8]) -> Option<ControlMessage> {
    let word = |at: usize| Some(c_int::from_ne_bytes(*message.get(at..)?.first_chunk()?));
    let value = &message[HEADER_BYTES..];
    match (word(WORD_BYTES)?, word(WORD_BYTES + 4)?) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => Some(ControlMessage::Destination(
            Ipv4Addr::from(*value.get(8..)?.first_chunk()?).into(),
        )),
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => Some(ControlMessage::Destination(
            Ipv6Addr::from(*value.first_chunk()?).into(),
        )),
        (libc::IPPROTO_IP, libc::IP_TOS) => Some(ControlMessage::TrafficClass(*value.first()?)),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            Some(ControlMessage::TrafficClass(word(HEADER_BYTES)? as u8))
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
            Some(ControlMessage::HopLimit(word(HEADER_BYTES)? as u8))
        }
        (libc::SOL_UDP, libc::UDP_GRO) => {
            Some(ControlMessage::Stride(word(HEADER_BYTES)? as usize))
        }
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
            mtu_report(value)
        }
        _ => None,
    }
}

/// struct sock_extended_err: errno, origin, type, code, padding, info (the MTU if errno is EMSGSIZE).
fn mtu_report(report: &[u8]) -> Option<ControlMessage> {
    let word = |at: usize| Some(u32::from_ne_bytes(*report.get(at..)?.first_chunk()?));
    let (mtu, local) = (word(8)?, *report.get(4)? == libc::SO_EE_ORIGIN_LOCAL);
    (word(0)? == libc::EMSGSIZE as u32 && mtu > 0)
        .then_some(ControlMessage::MtuReport { mtu, local })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_read_back() {
        let mut address = SocketAddress::default();
        for (ip, len) in [("192.0.2.7", 16), ("2001:db8::7", 28)] {
            let ip: IpAddr = ip.parse().unwrap();
            assert_eq!(address.write(ip, 4500), len);
            assert_eq!(address.read(), Some((ip, 4500)));
        }
        assert_eq!(SocketAddress::default().read(), None);
    }

    #[test]
    fn header_fields_read_back_and_unknown_messages_are_passed_by() {
        let mut control = ControlBuffer::default();
        control.put_segment(1472);
        control.put_header(true, 0xb9, 64);
        control.put_source("2001:db8::7".parse().unwrap());
        let parsed: Vec<_> = control.parsed().collect();
        let source = ControlMessage::Destination("2001:db8::7".parse().unwrap());
        assert_eq!(
            parsed,
            [
                ControlMessage::TrafficClass(0xb9),
                ControlMessage::HopLimit(64),
                source
            ]
        );
    }

    #[test]
    fn no_bytes_make_the_reader_leave_its_room() {
        let mut control = ControlBuffer::default();
        control.set_len(100_000);
        assert_eq!(control.parsed().count(), 0);
        for length in 0..64usize {
            control.bytes[..WORD_BYTES].copy_from_slice(&length.wrapping_sub(8).to_ne_bytes());
            assert!(control.parsed().count() <= ControlBuffer::BYTES / HEADER_BYTES);
        }
    }
}
