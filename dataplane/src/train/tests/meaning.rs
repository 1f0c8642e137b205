//! Packets written by etherparse: an oracle that shares no code with what is tested.

use etherparse::{IpNumber, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader};
use proptest::prelude::*;

/// A packet in meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaning {
    pub v6: bool,
    pub udp: bool,
    pub flow: u8,
    pub dscp: u8,
    pub ttl: u8,
    pub df: bool,
    pub identification: u16,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub window: u16,
    pub psh: bool,
    pub fin: bool,
    pub cwr: bool,
    pub ece: bool,
    pub timestamp: Option<u32>,
    pub payload: Vec<u8>,
}

impl Meaning {
    pub fn bytes(&self) -> Vec<u8> {
        match (self.v6, self.udp) {
            (false, false) => self.tcp_v4(),
            (true, false) => self.tcp_v6(),
            (false, true) => self.udp_v4(),
            (true, true) => self.udp_v6(),
        }
    }

    fn tcp(&self) -> TcpHeader {
        let mut tcp = TcpHeader::new(1000 + u16::from(self.flow), 80, self.sequence, self.window);
        tcp.ack = true;
        tcp.acknowledgment_number = self.acknowledgement;
        tcp.psh = self.psh;
        tcp.fin = self.fin;
        tcp.cwr = self.cwr;
        tcp.ece = self.ece;
        if let Some(timestamp) = self.timestamp {
            let [a, b, c, d] = timestamp.to_be_bytes();
            tcp.set_options_raw(&[1, 1, 8, 10, a, b, c, d, 9, 9, 9, 9])
                .unwrap();
        }
        tcp
    }

    fn v4(&self, protocol: IpNumber, upper_len: usize) -> Ipv4Header {
        let (source, destination) = ([10, 0, 0, self.flow], [192, 0, 2, 1]);
        let mut ip =
            Ipv4Header::new(upper_len as u16, self.ttl, protocol, source, destination).unwrap();
        ip.dscp = self.dscp.try_into().unwrap();
        ip.dont_fragment = self.df;
        ip.identification = self.identification;
        ip.header_checksum = ip.calc_header_checksum();
        ip
    }

    fn v6_header(&self, protocol: IpNumber, upper_len: usize) -> Ipv6Header {
        let mut source = [0x20; 16];
        source[15] = self.flow;
        Ipv6Header {
            traffic_class: self.dscp << 2,
            payload_length: upper_len as u16,
            next_header: protocol,
            hop_limit: self.ttl,
            source,
            destination: [0xfd; 16],
            ..Default::default()
        }
    }

    fn tcp_v4(&self) -> Vec<u8> {
        let mut tcp = self.tcp();
        let ip = self.v4(IpNumber::TCP, tcp.header_len() + self.payload.len());
        tcp.checksum = tcp.calc_checksum_ipv4(&ip, &self.payload).unwrap();
        [&ip.to_bytes()[..], &tcp.to_bytes(), &self.payload].concat()
    }

    fn tcp_v6(&self) -> Vec<u8> {
        let mut tcp = self.tcp();
        let ip = self.v6_header(IpNumber::TCP, tcp.header_len() + self.payload.len());
        tcp.checksum = tcp.calc_checksum_ipv6(&ip, &self.payload).unwrap();
        [&ip.to_bytes()[..], &tcp.to_bytes(), &self.payload].concat()
    }

    fn udp_v4(&self) -> Vec<u8> {
        let ip = self.v4(IpNumber::UDP, 8 + self.payload.len());
        let source = 1000 + u16::from(self.flow);
        let udp = UdpHeader::with_ipv4_checksum(source, 80, &ip, &self.payload).unwrap();
        [&ip.to_bytes()[..], &udp.to_bytes(), &self.payload].concat()
    }

    fn udp_v6(&self) -> Vec<u8> {
        let ip = self.v6_header(IpNumber::UDP, 8 + self.payload.len());
        let source = 1000 + u16::from(self.flow);
        let udp = UdpHeader::with_ipv6_checksum(source, 80, &ip, &self.payload).unwrap();
        [&ip.to_bytes()[..], &udp.to_bytes(), &self.payload].concat()
    }

    /// What a sender without segmentation offload would have sent instead.
    pub fn segments(&self, size: usize) -> Vec<Vec<u8>> {
        let pieces: Vec<_> = if self.payload.is_empty() {
            vec![&[][..]]
        } else {
            self.payload.chunks(size).collect()
        };
        let last = pieces.len() - 1;
        let segment = |(number, piece): (usize, &&[u8])| {
            Meaning {
                identification: self.identification.wrapping_add(number as u16),
                sequence: self.sequence.wrapping_add((number * size) as u32),
                psh: self.psh && number == last,
                fin: self.fin && number == last,
                cwr: self.cwr && number == 0,
                payload: piece.to_vec(),
                ..self.clone()
            }
            .bytes()
        };
        pieces.iter().enumerate().map(segment).collect()
    }
}

prop_compose! {
    pub fn meaning(most: usize)(
        v6: bool,
        udp: bool,
        flow in 0u8..3,
        // A packet with hop limit 1 would not be forwarded.
        (dscp, ttl, df) in (0u8..64, 2u8.., any::<bool>()),
        (identification, sequence, acknowledgement, window) in any::<(u16, u32, u32, u16)>(),
        (psh, fin, cwr, ece) in any::<(bool, bool, bool, bool)>(),
        timestamp: Option<u32>,
        payload in proptest::collection::vec(any::<u8>(), 0..most),
    ) -> Meaning {
        Meaning {
            v6, udp, flow, dscp, ttl, df, identification, sequence, acknowledgement, window, psh, fin, cwr, ece,
            timestamp, payload,
        }
    }
}
