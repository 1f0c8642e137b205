//! Any bytes through every reader of headers. Nothing may panic, and every length that is reported must lie inside the
//! bytes.

use ipsec::ah::clear_mutable;
use ipsec::packet::Outline;
use ipsec::pmtu::{TcpChecksum, TooBigMessage, clamp_mss, packet_too_big};
use ipsec::tunnel::{Outer, decapsulate_ecn};
use ipsec::wire::ip::{Chain, Ip, v6::Options};
use ipsec::wire::{ah::Ah, esp::Esp, icmp::IcmpError, tcp::Tcp, udp::Udp};
use std::net::IpAddr;

/// Reads `data` as every header there is.
///
/// # Panics
///
/// If a reader reports a length outside `data`.
pub fn check(data: &[u8]) {
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
    let _ = TooBigMessage::read(data);
    let mut packet = data.to_vec();
    let lowered = clamp_mss(&mut packet, 1000, TcpChecksum::Finished);
    assert!(lowered || packet == data);
    for reporter in [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0; 16])] {
        let emitted = packet_too_big(data, 1280, reporter, &mut packet);
        assert!(!emitted || is_whole(&packet));
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

fn is_whole(packet: &[u8]) -> bool {
    Ip::new_checked(packet).is_ok_and(|ip| ip.total_len() == packet.len())
}
