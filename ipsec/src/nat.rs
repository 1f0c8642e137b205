//! What a NAT on the path breaks in transport mode, and how it is corrected (RFC 3948 3.1.2).
//!
//! The sender's checksum of TCP, UDP and ICMPv6 covers the addresses it knows; the packet arrives with others. The
//! original addresses are unknown where keys are set by hand, so the checksum is recomputed, which RFC 3948 allows once
//! the packet is authentic: its ICV proves that no byte behind the addresses has changed.

use crate::packet::{FragmentKind, Outline};
use crate::wire::checksum::Sum;
use crate::wire::ip::number;

/// Where the checksum stands in the header of a protocol whose checksum covers the addresses, and the shortest header.
fn place(protocol: u8) -> Option<(usize, usize)> {
    match protocol {
        number::TCP => Some((16, 20)),
        number::UDP => Some((6, 8)),
        number::ICMPV6 => Some((2, 4)),
        _ => None,
    }
}

/// Recomputes the checksum of a whole packet over the addresses that it arrived with. A UDP datagram that was sent
/// without one over IPv4 stays without.
pub fn renew_checksum(packet: &mut [u8], outline: &Outline) {
    let Some((at, least)) = place(outline.protocol) else {
        return;
    };
    let upper = packet.get_mut(outline.header_len..outline.total_len);
    let Some(upper) = upper.filter(|upper| upper.len() >= least) else {
        return;
    };
    let had_none = outline.protocol == number::UDP && upper[at..at + 2] == [0, 0];
    if outline.fragment != FragmentKind::Whole || had_none {
        return;
    }
    upper[at..at + 2].fill(0);
    let (source, destination) = (outline.source, outline.destination);
    let sum = Sum::new()
        .pseudo_header(source, destination, outline.protocol, upper.len())
        .bytes(upper);
    let checksum = match outline.protocol {
        number::UDP => sum.finish_udp(),
        _ => sum.finish(),
    };
    upper[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    /// One packet of each protocol from this source, built by etherparse.
    fn packets(source: u8) -> Vec<Vec<u8>> {
        let v4 = || PacketBuilder::ipv4([10, 0, 0, source], [192, 0, 2, 2], 64);
        let mut from = [0xfd; 16];
        from[15] = source;
        let v6 = || PacketBuilder::ipv6(from, [0xfe; 16], 64);
        let mut packets = vec![Vec::new(); 5];
        let data = b"an odd number of bytes!";
        v4().udp(1000, 2000).write(&mut packets[0], data).unwrap();
        v4().tcp(1000, 80, 7, 500)
            .write(&mut packets[1], data)
            .unwrap();
        v6().udp(1000, 2000).write(&mut packets[2], data).unwrap();
        v6().tcp(1000, 80, 7, 500)
            .write(&mut packets[3], data)
            .unwrap();
        v6().icmpv6_echo_request(1, 2)
            .write(&mut packets[4], data)
            .unwrap();
        packets
    }

    /// Only the address is changed, as by a NAT that cannot see what is encrypted; IPv4's own checksum belongs to
    /// the rebuilt header.
    #[test]
    fn after_a_nat_a_packet_has_the_checksum_that_its_new_source_would_have_made() {
        for (mut sent, wanted) in packets(1).into_iter().zip(packets(99)) {
            let ip_len = if sent[0] >> 4 == 4 { 20 } else { 40 };
            sent[..ip_len].copy_from_slice(&wanted[..ip_len]);
            assert_ne!(sent, wanted);
            let outline = Outline::read(&sent).unwrap();
            renew_checksum(&mut sent, &outline);
            assert_eq!(sent, wanted);
        }
    }

    #[test]
    fn udp_without_a_checksum_stays_without() {
        let mut packet = packets(1).swap_remove(0);
        packet[26..28].fill(0);
        let before = packet.clone();
        let outline = Outline::read(&packet).unwrap();
        renew_checksum(&mut packet, &outline);
        assert_eq!(packet, before);
    }

    #[test]
    fn fragments_and_protocols_without_such_a_checksum_are_left_alone() {
        for protocol in [1, 47, 132] {
            let mut packet = packets(1).swap_remove(1);
            packet[9] = protocol;
            let before = packet.clone();
            let outline = Outline::read(&packet).unwrap();
            renew_checksum(&mut packet, &outline);
            assert_eq!(packet, before);
        }
        let mut packet = packets(1).swap_remove(1);
        packet[6] = 0x20;
        packet[36..38].fill(0xee);
        let before = packet.clone();
        let outline = Outline::read(&packet).unwrap();
        renew_checksum(&mut packet, &outline);
        assert_eq!(packet, before);
    }
}
