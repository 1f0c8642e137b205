//! What is too big for the path is refused with a word to its sender, or cut before it is protected.

use crate::world::*;
use dataplane::train::Offload;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use ipsec::Dropped;

fn world(path_mtu: usize) -> World {
    let text = |right| tunnel(&gcm(), "esp-udp", right);
    World::new(&text(false), &text(true), ALL_TRAINS, path_mtu)
}

/// The same datagram with DF set or clear, and its checksum right again.
fn with_df(mut packet: Vec<u8>, df: bool) -> Vec<u8> {
    packet[6] = if df { 0x40 } else { 0 };
    packet[10..12].fill(0);
    let sum = ipsec::wire::checksum::over(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// 1500 less IP, UDP, SPI, sequence number, IV, ICV and at least two bytes of trailer, all a multiple of four.
const INNER: usize = 1500 - 20 - 8 - 8 - 8 - 16 - 2;

#[test]
fn a_packet_that_must_not_be_fragmented_is_refused_and_its_sender_gets_the_mtu() {
    let mut world = world(1500);
    let fits = with_df(datagram(1, INNER - 28), true);
    let does_not = with_df(datagram(2, INNER - 27), true);
    world.left_in.put(fits.clone(), Offload::default());
    world.left_in.put(does_not, Offload::default());
    world.send();
    world.receive();
    assert_eq!(world.delivered(), [(fits, Offload::default())]);
    let (left, _) = world.balance();
    assert_eq!(left.drops[Dropped::TooBig.index()], 1);
    let replies = world.replies.take_all();
    assert_eq!(replies.len(), 1);
    let reply = SlicedPacket::from_ip(&replies[0].0).unwrap();
    let Some(NetSlice::Ipv4(ip)) = &reply.net else {
        panic!()
    };
    assert_eq!(ip.header().destination(), [10, 1, 0, 1]);
    let Some(TransportSlice::Icmpv4(icmp)) = &reply.transport else {
        panic!()
    };
    assert_eq!((icmp.type_u8(), icmp.code_u8()), (3, 4));
    assert_eq!(
        u16::from_be_bytes([replies[0].0[26], replies[0].0[27]]),
        INNER as u16
    );
    assert!(wire_packets_are_at_most(&world, 1500));
}

fn wire_packets_are_at_most(world: &World, most: usize) -> bool {
    let packets = singly(world.wire.take_all());
    packets
        .iter()
        .all(|(packet, arrival)| packet.len() + arrival.outer.len() <= most)
}

#[test]
fn a_packet_that_may_be_cut_is_cut_before_it_is_protected() {
    let mut world = world(1500);
    let whole = with_df(datagram(3, 4000), false);
    world.left_in.put(whole.clone(), Offload::default());
    world.send();
    for (packet, arrival) in singly(world.wire.take_all()) {
        assert!(packet.len() + arrival.outer.len() <= 1500);
        world.wire.put(packet, arrival);
    }
    world.receive();
    let fragments = world.delivered();
    assert_eq!(fragments.len(), 3);
    let (left, right) = world.balance();
    assert_eq!((left.packets, right.packets), (3, 3));
    let mut payload = Vec::new();
    for (fragment, _) in fragments {
        payload.extend_from_slice(&fragment[20..]);
    }
    assert_eq!(payload, &whole[20..]);
}

#[test]
fn an_opening_segment_announces_no_more_than_fits_the_tunnel() {
    let mut syn = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64)
        .tcp(1000, 80, 1, 500)
        .syn()
        .options(&[etherparse::TcpOptionElement::MaximumSegmentSize(1460)])
        .unwrap();
    builder.write(&mut syn, &[]).unwrap();
    let mut world = world(1500);
    world.left_in.put(syn, Offload::default());
    world.send();
    world.receive();
    let delivered = world.delivered();
    let packet = SlicedPacket::from_ip(&delivered[0].0).unwrap();
    let (Some(TransportSlice::Tcp(tcp)), Some(NetSlice::Ipv4(ip))) =
        (&packet.transport, &packet.net)
    else {
        panic!()
    };
    let expected = etherparse::TcpOptionElement::MaximumSegmentSize(INNER as u16 - 40);
    assert_eq!(tcp.options_iterator().next(), Some(Ok(expected)));
    assert_eq!(
        tcp.checksum(),
        tcp.to_header()
            .calc_checksum_ipv4(&ip.header().to_header(), &[])
            .unwrap()
    );
}

#[test]
fn a_batch_follows_the_backlog_where_the_cipher_takes_no_longer_for_more() {
    let count = 1000;
    let batches = |suite: &str, path_mtu: usize, len: usize| {
        let text = |right| tunnel(suite, "esp-udp", right);
        let mut world = World::new(&text(false), &text(true), ALL_TRAINS, path_mtu);
        for number in 0..count {
            world.left_in.put(datagram(number, len), Offload::default());
        }
        world.send();
        // A burst of hundreds of packets is more than one read of the other side takes.
        for (packet, arrival) in singly(world.wire.take_all()) {
            world.wire.put(packet, arrival);
        }
        world.receive();
        assert!(world.delivered_numbers().into_iter().eq(0..count));
        world.balance().0.batches
    };
    let triple_des = format!(
        "-E 3des-cbc {} -A hmac-sha1 {}",
        bytes("f6", 24),
        bytes("c3", 20)
    );
    assert_eq!(batches(&gcm(), 1500, 1300), 16);
    // Of jumbo frames so many need more room, and that is enough.
    for (path_mtu, len) in [(1500, 1300), (9000, 8800)] {
        let few = batches(&triple_des, path_mtu, len);
        assert!(few < 8, "{few} batches of {len} bytes");
    }
}
