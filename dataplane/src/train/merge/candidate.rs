//! A GRO candidate: the fields of a packet that merging needs, read from the packet alone.

use crate::train::TrainKinds;
use crate::train::fields::{
    ACK, PSH, TCP, TCP_CHECKSUM, TCP_FLAGS, UDP, UDP_CHECKSUM, UDP_HEADER_LEN, get_u16, get_u32,
};
use ipsec::packet::{FragmentKind, Outline, have_same_flow};
use ipsec::wire::checksum::Sum;
use std::net::IpAddr;

/// The fields of one packet that merging needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroCandidate {
    pub(super) flow: Flow,
    /// Absent if the packet must not be merged.
    pub(super) key: Option<GroKey>,
}

/// A hash of a packet's flow: packets of one flow must not overtake each other. A collision only prevents a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Hash of both addresses.
    pair: u32,
    /// Hash of protocol and ports; absent where they are unknown.
    upper: Option<u32>,
}

/// The GRO key of a packet that may share a train: what must agree with the packets before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroKey {
    pub kind: Kind,
    /// Where the transport header starts, and where the payload does.
    pub transport: u16,
    pub head_len: u16,
    pub payload_len: u16,
    /// TCP's.
    pub sequence: u32,
    /// IPv4's.
    pub identification: u16,
    /// Whether nothing may follow it: TCP's PSH.
    pub last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Tcp,
    Udp,
}

impl GroCandidate {
    /// Reads what merging needs of `packet`, whose outline was read. If the sink accepts no such train, the packet is
    /// not merged and its checksum is not checked.
    pub fn read(packet: &[u8], outline: &Outline, train_kinds: TrainKinds) -> Self {
        Self {
            flow: Flow::of(outline),
            key: GroKey::read(packet, outline, train_kinds),
        }
    }

    /// The same packet for one of several devices: flows of two devices never share a train, though their headers may
    /// be the same.
    pub fn by(self, interface: u32) -> Self {
        let flow = Flow {
            pair: mix(self.flow.pair, interface),
            ..self.flow
        };
        match interface {
            0 => self,
            _ => Self { flow, ..self },
        }
    }

    /// Bytes of header, IP and transport, of a packet that may share a train.
    pub fn head_len(&self) -> Option<usize> {
        self.key.map(|key| usize::from(key.head_len))
    }
}

/// Mixes a word into a hash; different words give different hashes.
fn mix(hash: u32, word: u32) -> u32 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b1)
}

impl Flow {
    fn of(outline: &Outline) -> Self {
        let fold = |hash: u32, address: IpAddr| match address {
            IpAddr::V4(v4) => mix(hash, v4.to_bits()),
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                (0..4).fold(hash, |hash, word| mix(hash, (bits >> (32 * word)) as u32))
            }
        };
        let upper = |(source, destination)| {
            let ports = u32::from(source) << 16 | u32::from(destination);
            mix(u32::from(outline.protocol), ports)
        };
        let known = outline.fragment == FragmentKind::Whole;
        Self {
            pair: fold(fold(0, outline.source), outline.destination),
            upper: outline.ports.filter(|_| known).map(upper),
        }
    }

    /// Whether packets of the two flows must keep their order.
    pub fn meets(self, other: Self) -> bool {
        self.pair == other.pair
            && (self.upper == other.upper || self.upper.is_none() || other.upper.is_none())
    }
}

impl GroKey {
    fn read(packet: &[u8], outline: &Outline, train_kinds: TrainKinds) -> Option<Self> {
        let packet = packet.get(..outline.total_len)?;
        let v4 = outline.source.is_ipv4();
        let plain_header = outline.header_len == if v4 { 20 } else { 40 };
        if outline.fragment != FragmentKind::Whole || !plain_header {
            return None;
        }
        let key = match outline.protocol {
            TCP if v4 && train_kinds.tcp_v4 || !v4 && train_kinds.tcp_v6 => {
                Self::tcp(packet, outline)
            }
            UDP if train_kinds.udp => Self::udp(packet, outline),
            _ => None,
        }?;
        key.is_exact(packet, outline).then_some(key)
    }

    fn tcp(packet: &[u8], outline: &Outline) -> Option<Self> {
        let header = packet.get(outline.header_len..)?;
        let words = header.get(12)?;
        let flags = header.get(TCP_FLAGS)?;
        let len = usize::from(words >> 4) * 4;
        let carries_data = len >= 20 && len < header.len();
        // The low half of `words` is reserved, and every other flag has a meaning for one segment only.
        if !carries_data || words & 0x0f != 0 || flags & !PSH != ACK {
            return None;
        }
        Some(Self {
            kind: Kind::Tcp,
            sequence: get_u32(header, 4),
            last: flags & PSH != 0,
            ..Self::new(Kind::Tcp, packet, outline, len)
        })
    }

    fn udp(packet: &[u8], outline: &Outline) -> Option<Self> {
        let header = packet.get(outline.header_len..)?;
        let carries_data = header.len() > UDP_HEADER_LEN;
        if !carries_data || usize::from(get_u16(header, 4)) != header.len() {
            return None;
        }
        Some(Self::new(Kind::Udp, packet, outline, UDP_HEADER_LEN))
    }

    fn new(kind: Kind, packet: &[u8], outline: &Outline, transport_len: usize) -> Self {
        let head_len = outline.header_len + transport_len;
        Self {
            kind,
            transport: outline.header_len as u16,
            head_len: head_len as u16,
            payload_len: (packet.len() - head_len) as u16,
            sequence: 0,
            identification: get_u16(packet, 4),
            last: false,
        }
    }

    /// Whether two heads differ in nothing but lengths, identification, sequence number, PSH and checksums.
    pub fn same_head(&self, a: &[u8], b: &[u8]) -> bool {
        have_same_flow(a, b)
            && match self.kind {
                Kind::Udp => true,
                Kind::Tcp => self.same_tcp(a, b),
            }
    }

    /// Acknowledgement, header length, window, urgent pointer and options.
    fn same_tcp(&self, a: &[u8], b: &[u8]) -> bool {
        let at = usize::from(self.transport);
        let (a, b) = (&a[at..], &b[at..]);
        get_u32(a, 8) == get_u32(b, 8)
            && a[12] == b[12]
            && get_u16(a, 14) == get_u16(b, 14)
            && a[18..] == b[18..]
    }

    /// Whether its checksums are right, and in the form that segmentation would write.
    fn is_exact(&self, packet: &[u8], outline: &Outline) -> bool {
        let (ip, upper) = packet.split_at(outline.header_len);
        let written = get_u16(upper, self.kind.checksum_at());
        let form = match self.kind {
            Kind::Tcp => written != 0xffff,
            Kind::Udp => written != 0,
        };
        let ip_is_right = outline.source.is_ipv6()
            || get_u16(ip, 10) != 0xffff && Sum::new().bytes(ip).finish() == 0;
        let sum = Sum::new()
            .pseudo_header(
                outline.source,
                outline.destination,
                outline.protocol,
                upper.len(),
            )
            .bytes(upper);
        form && ip_is_right && sum.finish() == 0
    }
}

impl Kind {
    pub fn checksum_at(self) -> usize {
        match self {
            Self::Tcp => TCP_CHECKSUM,
            Self::Udp => UDP_CHECKSUM,
        }
    }
}
