//! Packets as structures, and their encoding as bytes.

use super::super::LinkKind;
use std::net::IpAddr;

/// Which fragment of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragment {
    First,
    Later,
}

/// The fields that a filter may read.
#[derive(Clone, Debug)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub tags: Vec<u16>,
    /// Extension headers, in IPv6 only.
    pub extensions: Vec<u8>,
    pub fragment: Option<Fragment>,
    pub protocol: u8,
    pub ports: (u16, u16),
    pub icmp: (u8, u8),
    /// Protocol and source port of the packet that an ICMP message quotes.
    pub quoted: (u8, u16),
    /// Bytes above IP.
    pub payload: usize,
    pub mark: u32,
    pub kind: u32,
    pub hops: u8,
}

impl Packet {
    /// An unfragmented datagram without options or tags.
    pub fn udp(source: IpAddr, destination: IpAddr) -> Self {
        Self {
            source,
            destination,
            tags: Vec::new(),
            extensions: Vec::new(),
            fragment: None,
            protocol: 17,
            ports: (5000, 5001),
            icmp: (0, 0),
            quoted: (0, 0),
            payload: 64,
            mark: 0,
            kind: 0,
            hops: 64,
        }
    }

    pub fn is_v6(&self) -> bool {
        self.source.is_ipv6()
    }

    /// The first four bytes above IP: type and code for ICMP, otherwise ports.
    pub fn first_word(&self) -> [u8; 4] {
        if matches!(self.protocol, 1 | 58) {
            return [self.icmp.0, self.icmp.1, 0, 0];
        }
        let ([a, b], [c, d]) = (self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes());
        [a, b, c, d]
    }

    /// As an Ethernet frame.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in &self.tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 5]);
        }
        frame.extend(if self.is_v6() { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(self.ip());
        frame
    }

    /// The bytes with the link's header.
    pub fn on(&self, link: LinkKind) -> Vec<u8> {
        match link {
            LinkKind::Ethernet => self.frame(),
            LinkKind::Other => self.ip(),
        }
    }

    fn ip(&self) -> Vec<u8> {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.v4(source.octets(), destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.v6(source.octets(), destination.octets())
            }
            _ => unreachable!("one family"),
        }
    }

    fn v4(&self, source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        let upper = self.upper();
        // With an IP option, so that a program that assumes 20 bytes fails.
        let len = (24 + upper.len()) as u16;
        let part: u16 = match self.fragment {
            None => 0x4000,
            Some(Fragment::First) => 0x2000,
            Some(Fragment::Later) => 0x2010,
        };
        let mut packet = vec![0x46, 0];
        packet.extend(len.to_be_bytes());
        packet.extend([0, 1]);
        packet.extend(part.to_be_bytes());
        packet.extend([self.hops, self.protocol, 0, 0]);
        packet.extend(source);
        packet.extend(destination);
        packet.extend([1, 1, 1, 1]);
        packet.extend(upper);
        packet
    }

    fn v6(&self, source: [u8; 16], destination: [u8; 16]) -> Vec<u8> {
        let (mut next, mut body) = (self.protocol, self.upper());
        if let Some(fragment) = self.fragment {
            let offset = if fragment == Fragment::First {
                1u16
            } else {
                0x81
            };
            let mut header = vec![next, 0];
            header.extend(offset.to_be_bytes());
            header.extend([0, 0, 0, 7]);
            (next, body) = (44, [header, body].concat());
        }
        for (n, extension) in self.extensions.iter().enumerate() {
            let words = n % 2;
            let mut header = vec![0; 8 + 8 * words];
            (header[0], header[1]) = (next, words as u8);
            (next, body) = (*extension, [header, body].concat());
        }
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((body.len() as u16).to_be_bytes());
        packet.extend([next, self.hops]);
        packet.extend(source);
        packet.extend(destination);
        packet.extend(body);
        packet
    }

    fn upper(&self) -> Vec<u8> {
        let mut upper = self.first_word().to_vec();
        upper.resize(8, 0);
        let (mut quoted, port_at) = if self.is_v6() {
            (vec![0u8; 48], 40)
        } else {
            (vec![0u8; 28], 20)
        };
        quoted[if self.is_v6() { 6 } else { 9 }] = self.quoted.0;
        quoted[port_at..port_at + 2].copy_from_slice(&self.quoted.1.to_be_bytes());
        upper.extend(quoted);
        upper.resize(64, 0);
        upper.truncate(self.payload);
        upper
    }
}
