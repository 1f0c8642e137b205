//! What a fuzzer calls: any bytes through every reader of headers. Nothing may panic, and every length that is
//! reported must lie inside the bytes.

use super::be16;
use super::ip::{Chain, Ip, v6::Options};
use super::{ah::Ah, esp::Esp, icmp::IcmpError, tcp::Tcp, udp::Udp};
use crate::ah::clear_mutable;
use crate::fragment::{Cutter, Limits, Offered, Reassembler};
use crate::packet::Outline;
use crate::pmtu::{Complaint, TcpChecksum, clamp_mss, report};
use crate::tunnel::{Outer, decapsulate_ecn};
use std::net::IpAddr;

/// Reads `data` as every header there is.
///
/// # Panics
///
/// If a reader reports a length outside `data`.
pub fn headers(data: &[u8]) {
    outline(data);
    outer(data);
    upper_layers(data);
    path_mtu(data);
    if let Ok(Ip::V6(ipv6)) = Ip::new_checked(data)
        && let Ok(chain) = Chain::read(&ipv6)
    {
        assert!(chain.transport_named_at < data.len());
        assert!(
            chain
                .fragment
                .is_none_or(|fragment| fragment.at + 8 <= chain.upper_at)
        );
    }
    let _ = clear_mutable(&mut data.to_vec());
    for option in Options::of(data).flatten() {
        assert!(option.data_at + option.data_len <= data.len());
    }
}

/// Reads `data` as packets that arrive one after the other, each behind two bytes of its length, and reassembles them.
///
/// # Panics
///
/// If the reassembler keeps more than it may, or gives out what is no packet.
pub fn fragments(data: &[u8]) {
    let limits = Limits {
        bytes: 4096,
        pieces: 8,
        seconds: 3,
    };
    let mut reassembler = Reassembler::new(limits);
    let mut rest = data;
    for now in 0.. {
        let Some(([high, low], behind)) = rest.split_first_chunk() else {
            return;
        };
        let len = usize::from(be16(*high, *low)).min(behind.len());
        let (packet, behind) = behind.split_at(len);
        if let Ok(Offered::Joined(whole)) = reassembler.offer(packet, now / 4) {
            assert!(is_whole(&whole));
        }
        assert!(reassembler.held_bytes() <= limits.bytes);
        cut(packet, len / 2);
        rest = behind;
    }
}

fn is_whole(packet: &[u8]) -> bool {
    Ip::new_checked(packet).is_ok_and(|ip| ip.total_len() == packet.len())
}

fn cut(packet: &[u8], mtu: usize) {
    let mut out = Vec::new();
    if let Ok(mut cutter) = Cutter::new(packet, mtu, 1) {
        while let Some(len) = cutter.next_into(&mut out) {
            assert!(len <= mtu);
        }
    }
}

fn outline(data: &[u8]) {
    if let Ok(outline) = Outline::read(data) {
        assert!(outline.total_len <= data.len());
        assert!(outline.header_len <= outline.total_len);
        assert!(outline.transport_offset <= outline.header_len);
    }
}

fn outer(data: &[u8]) {
    if let Ok((outer, payload)) = Outer::payload(data) {
        assert!(payload.start <= payload.end && payload.end <= data.len());
        assert!(outer.len() <= payload.start);
    }
    if let Some((class, packet)) = data.split_first() {
        let mut inner = packet.to_vec();
        let carried = decapsulate_ecn(*class, &mut inner);
        assert!(carried.is_ok() || inner == packet);
    }
}

fn path_mtu(data: &[u8]) {
    let _ = Complaint::read(data);
    let mut packet = data.to_vec();
    let lowered = clamp_mss(&mut packet, 1000, TcpChecksum::Finished);
    assert!(lowered || packet == data);
    for reporter in [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0; 16])] {
        let told = report(data, 1280, reporter, &mut packet);
        assert!(!told || is_whole(&packet));
    }
}

fn upper_layers(data: &[u8]) {
    if let Ok(tcp) = Tcp::new_checked(data) {
        assert_eq!(tcp.header_len() + tcp.payload().len(), data.len());
        assert!(
            tcp.max_segment_size()
                .is_none_or(|(_, at)| at.end <= tcp.header_len())
        );
    }
    if let Ok(udp) = Udp::new_checked(data) {
        assert!(udp.payload().len() + 8 <= data.len());
    }
    if let Ok(ah) = Ah::new_checked(data) {
        assert_eq!(ah.header_len() + ah.payload().len(), data.len());
    }
    if let Ok(esp) = Esp::new_checked(data) {
        assert_eq!(esp.rest().len() + 8, data.len());
    }
    if let Ok(icmp) = IcmpError::new_checked(data) {
        assert_eq!(icmp.quoted().len() + 8, data.len());
    }
}
