//! One tunnel of an initiator: an echo request into it, and the echo that comes back.

use ikev2::endpoint::ChildSa;
use ipsec::{
    esp::{InboundEsp, OutboundEsp},
    sa::{Protocol, Sa, SaConfig, SaId, Spi},
    wire::checksum,
};
use multibuffer::Verdict;
use std::{net::IpAddr, time::Duration};

/// Where requests go: an address of the responder behind its tunnels.
const TARGET: [u8; 4] = [10, 255, 0, 1];

const IPV4: u8 = 4;
const ICMP: u8 = 1;
const ECHO_REQUEST: u8 = 8;
const DATA_BYTES: usize = 56;

/// Both associations of a pair of child SAs.
pub struct Tunnel {
    inbound: Sa,
    outbound: Sa,
    own: [u8; 4],
    /// When the last request was sent, until it is answered.
    pub sent_at: Option<Duration>,
}

impl Tunnel {
    pub fn new(child: &ChildSa, counter_start: u64) -> Self {
        let config = |destination, source, spi, suite| {
            let id = SaId {
                destination,
                protocol: Protocol::Esp,
                spi: Spi::new(spi).expect("an SPI"),
            };
            SaConfig {
                esn: child.extended_sequence_numbers,
                replay_window: child.replay_window,
                ..SaConfig::new(id, source, suite)
            }
        };
        let (local, remote) = (child.local, child.remote);
        let inbound = config(local, remote, child.inbound_spi, child.inbound.clone());
        let outbound = config(remote, local, child.outbound_spi, child.outbound.clone());
        let own = child
            .local_traffic
            .first()
            .map(|own| own.addresses.bounds().0);
        let Some(IpAddr::V4(own)) = own else {
            panic!("each initiator has one IPv4 address");
        };
        Self {
            inbound: Sa::new(inbound, 0, counter_start),
            outbound: Sa::new(outbound, 0, counter_start),
            own: own.octets(),
            sent_at: None,
        }
    }

    /// The ESP packet of an ICMP echo request.
    pub fn echo_request(&self) -> Vec<u8> {
        let inner = packet(self.own, TARGET, ECHO_REQUEST);
        let sa = &self.outbound;
        let reserved = sa.state.reserve(&sa.config, 1, inner.len() as u64, 0);
        let (sequence, _) = reserved.expect("an association with few packets");
        let random = &mut |bytes: &mut [u8]| aws_lc_rs::rand::fill(bytes).expect("random bytes");
        let iv = sa.iv_for(sequence, random);
        let esp = OutboundEsp::new(sa, sequence, iv, IPV4, inner.len());
        let mut sealed = vec![0; esp.packet_len()];
        multibuffer::seal(&mut [esp.job(sa, &[], &inner, &mut sealed)]);
        sealed
    }

    /// Whether this is the authentic answer to it.
    pub fn take(&self, datagram: &mut [u8]) -> bool {
        let sa = &self.inbound;
        let Ok(received) = InboundEsp::parse(sa, datagram) else {
            return false;
        };
        let mut jobs = [received.job(sa, datagram)];
        multibuffer::open(&mut jobs);
        if jobs[0].verdict != Verdict::Genuine {
            return false;
        }
        let bytes = datagram.len() as u64;
        if sa
            .state
            .admit(&sa.config, received.sequence(), bytes, 0)
            .is_err()
        {
            return false;
        }
        let Ok((range, IPV4)) = received.strip(sa, datagram) else {
            return false;
        };
        let inner = &datagram[range];
        inner.len() > 20 && inner[9] == ICMP && inner[12..16] == TARGET && inner[20] == 0
    }
}

fn packet(source: [u8; 4], destination: [u8; 4], kind: u8) -> Vec<u8> {
    let mut icmp = vec![kind, 0, 0, 0, 0, 1, 0, 1];
    icmp.resize(8 + DATA_BYTES, 0);
    let sum = checksum::over(&[&icmp]);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let len = (20 + icmp.len()) as u16;
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0];
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header.extend_from_slice(&source);
    header.extend_from_slice(&destination);
    let sum = checksum::over(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [header, icmp].concat()
}
