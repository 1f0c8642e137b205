//! Checking an ICMP message from the network that a protected packet was too big.
//!
//! It is not authenticated, so it must quote a packet sent recently, it can only lower a path MTU, and never below
//! what every path can be expected to carry (RFC 4301 8.2.2, RFC 5927 7).

use super::MIN_MTU_V6;
use crate::Dropped;
use crate::sa::{SaConfig, SequenceNumber};
use crate::wire::checksum::Sum;
use crate::wire::esp::Esp;
use crate::wire::icmp::{self, IcmpError};
use crate::wire::ip::{Chain, Ip, Ipv4, Ipv6, number};
use crate::wire::udp;
use std::net::IpAddr;

/// What every IPv4 host accepts (RFC 1122 3.3.3). A lower claim is more likely an attack than a path.
const MIN_ACCEPTED_MTU_V4: usize = 576;

/// How many sequence numbers ago a quoted packet may have been sent: about a second at a million packets per second.
const MAX_AGE_PACKETS: u64 = 1 << 20;

/// Common MTUs of links, for routers that do not report theirs (RFC 1191 7.1).
const PLATEAUS: [usize; 9] = [32000, 17914, 8166, 4352, 2002, 1492, 1006, 576, 508];

/// A "too big" message and the packet that it quotes. The fields can as well be filled from a socket's error queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooBigMessage {
    /// Source of the quoted packet, a local address.
    pub source: IpAddr,
    /// Its destination: the peer.
    pub destination: IpAddr,
    /// The UDP ports of encapsulation, if it was encapsulated.
    pub ports: Option<(u16, u16)>,
    /// The SPI it carried.
    pub spi: u32,
    /// The low half of its sequence number.
    pub sequence: u32,
    /// Its length by its own header.
    pub quoted_len: usize,
    /// The MTU that the message claims; 0 where it claims none.
    pub mtu: usize,
}

/// Source and destination port.
type Ports = (u16, u16);

/// The start of a quoted packet.
struct Quoted<'a> {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    len: usize,
    payload: &'a [u8],
}

impl TooBigMessage {
    /// Reads a whole IP packet that holds an ICMP message about an ESP or AH packet. [`Dropped::Unsupported`] if it is
    /// about anything else.
    pub fn read(packet: &[u8]) -> Result<Self, Dropped> {
        let (mtu, quoted) = match Ip::new_checked(packet)? {
            Ip::V4(ipv4) => too_big_v4(&ipv4)?,
            Ip::V6(ipv6) => too_big_v6(&ipv6)?,
        };
        let quoted = Quoted::read(quoted)?;
        let (ports, payload) = quoted.split_encapsulation()?;
        let (spi, sequence) = spi_and_sequence(quoted.protocol, payload)?;
        Ok(Self {
            source: quoted.source,
            destination: quoted.destination,
            ports,
            spi,
            sequence,
            quoted_len: quoted.len,
            mtu,
        })
    }

    /// From a socket's error queue: the MTU that the message claims, and the quote of what followed the outer header.
    /// `None` if too little is quoted.
    pub fn from_error_queue(sa: &SaConfig, mtu: u32, quote: &[u8]) -> Option<Self> {
        let (spi, sequence) = spi_and_sequence(sa.id.protocol.number(), quote).ok()?;
        let ports = sa
            .encapsulation
            .map(|udp| (udp.source_port, udp.destination_port));
        Some(Self {
            source: sa.source,
            destination: sa.id.destination,
            ports,
            spi,
            sequence,
            // The queue does not keep it; a claim that lowers nothing is refused all the same.
            quoted_len: usize::MAX,
            mtu: mtu as usize,
        })
    }

    /// The new path MTU, if the message is plausible: it quotes a recent packet of `sa` (`highest` is the last number
    /// used), and its MTU is lower than `present`.
    pub fn accepted_mtu(
        &self,
        sa: &SaConfig,
        highest: SequenceNumber,
        present: usize,
    ) -> Option<usize> {
        let mtu = self.plausible_mtu()?;
        let lowers = mtu < present && mtu < self.quoted_len;
        (self.quotes(sa) && self.is_recent(highest) && lowers).then_some(mtu)
    }

    fn quotes(&self, sa: &SaConfig) -> bool {
        let ports = sa
            .encapsulation
            .map(|udp| (udp.source_port, udp.destination_port));
        self.source == sa.source
            && self.destination == sa.id.destination
            && self.spi == sa.id.spi.get()
            && self.ports == ports
    }

    fn is_recent(&self, highest: SequenceNumber) -> bool {
        let ago = u64::from(highest.low().wrapping_sub(self.sequence));
        ago < highest.0.min(MAX_AGE_PACKETS)
    }

    fn plausible_mtu(&self) -> Option<usize> {
        match self.destination {
            // RFC 1191 5: an old router reports no MTU; take the next common one below the packet's length.
            IpAddr::V4(_) if self.mtu == 0 => PLATEAUS
                .into_iter()
                .find(|plateau| *plateau < self.quoted_len)
                .map(|plateau| plateau.max(MIN_ACCEPTED_MTU_V4)),
            IpAddr::V4(_) => Some(self.mtu.max(MIN_ACCEPTED_MTU_V4)),
            // RFC 8201 4: a claim below the smallest link MTU is discarded.
            IpAddr::V6(_) => (self.mtu >= MIN_MTU_V6).then_some(self.mtu),
        }
    }
}

/// The MTU and the quoted packet of "fragmentation needed".
fn too_big_v4<'a>(ipv4: &Ipv4<'a>) -> Result<(usize, &'a [u8]), Dropped> {
    let message = IcmpError::new_checked(ipv4.payload())?;
    let kind = (ipv4.protocol(), message.kind(), message.code());
    if ipv4.is_fragment() || kind != (number::ICMP, icmp::UNREACHABLE, icmp::FRAGMENTATION_NEEDED) {
        return Err(Dropped::Unsupported);
    }
    verified(Sum::new().bytes(ipv4.payload()))?;
    Ok((message.mtu_v4(), message.quoted()))
}

/// The MTU and the quoted packet of "packet too big".
fn too_big_v6<'a>(ipv6: &Ipv6<'a>) -> Result<(usize, &'a [u8]), Dropped> {
    let chain = Chain::read(ipv6)?;
    let bytes = chain.upper(ipv6);
    let message = IcmpError::new_checked(bytes)?;
    let kind = (chain.protocol, message.kind());
    if chain.fragment.is_some() || kind != (number::ICMPV6, icmp::PACKET_TOO_BIG) {
        return Err(Dropped::Unsupported);
    }
    let (source, destination) = (ipv6.source().into(), ipv6.destination().into());
    let pseudo = Sum::new().pseudo_header(source, destination, number::ICMPV6, bytes.len());
    verified(pseudo.bytes(bytes))?;
    Ok((message.mtu_v6(), message.quoted()))
}

fn verified(sum: Sum) -> Result<(), Dropped> {
    (sum.finish() == 0).then_some(()).ok_or(Dropped::Malformed)
}

impl<'a> Quoted<'a> {
    /// A quotation is cut short as a rule: lengths in it may reach beyond its end.
    fn read(bytes: &'a [u8]) -> Result<Self, Dropped> {
        match bytes.first().map(|byte| byte >> 4) {
            Some(6) => {
                let (ipv6, len) = Ipv6::new_quoted(bytes)?;
                let chain = Chain::read(&ipv6)?;
                Ok(Self {
                    source: ipv6.source().into(),
                    destination: ipv6.destination().into(),
                    protocol: chain.protocol,
                    len,
                    payload: chain.upper(&ipv6),
                })
            }
            _ => {
                let (ipv4, len) = Ipv4::new_quoted(bytes)?;
                Ok(Self {
                    source: ipv4.source().into(),
                    destination: ipv4.destination().into(),
                    protocol: ipv4.protocol(),
                    len,
                    payload: ipv4.payload(),
                })
            }
        }
    }

    fn split_encapsulation(&self) -> Result<(Option<Ports>, &'a [u8]), Dropped> {
        if self.protocol != number::UDP {
            return Ok((None, self.payload));
        }
        let (header, payload) = self
            .payload
            .split_at_checked(udp::HEADER_LEN)
            .ok_or(Dropped::Malformed)?;
        let &[a, b, c, d] = header.first_chunk().ok_or(Dropped::Malformed)?;
        let ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Ok((Some(ports), payload))
    }
}

fn spi_and_sequence(protocol: u8, payload: &[u8]) -> Result<(u32, u32), Dropped> {
    let start = match protocol {
        number::ESP | number::UDP => payload,
        // AH has next header, length and two reserved bytes before its SPI.
        number::AH => payload.get(4..).ok_or(Dropped::Malformed)?,
        _ => return Err(Dropped::Unsupported),
    };
    let esp = Esp::new_checked(start)?;
    Ok((esp.spi(), esp.sequence()))
}
