use super::cut::Cut;
use super::merge::{Merger, Passenger};
use super::*;
use etherparse::{IpNumber, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader};
use ipsec::packet::Outline;
use proptest::prelude::*;

const ALL: Takes = Takes {
    tcp_v4: true,
    tcp_v6: true,
    udp: true,
};

/// A packet in meaning, for etherparse to write: the oracle shares no code with what is tested.
#[derive(Clone, Debug, PartialEq)]
struct Meaning {
    v6: bool,
    udp: bool,
    flow: u8,
    dscp: u8,
    ttl: u8,
    df: bool,
    identification: u16,
    sequence: u32,
    acknowledgement: u32,
    window: u16,
    psh: bool,
    fin: bool,
    cwr: bool,
    timestamp: Option<u32>,
    payload: Vec<u8>,
}

impl Meaning {
    fn bytes(&self) -> Vec<u8> {
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
    fn segments(&self, size: usize) -> Vec<Vec<u8>> {
        let pieces: Vec<_> = match self.payload.is_empty() {
            true => vec![&[][..]],
            false => self.payload.chunks(size).collect(),
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
    fn meaning(most: usize)(
        v6: bool,
        udp: bool,
        flow in 0u8..3,
        (dscp, ttl, df) in (0u8..64, 1u8.., any::<bool>()),
        (identification, sequence, acknowledgement, window) in any::<(u16, u32, u32, u16)>(),
        (psh, fin, cwr) in any::<(bool, bool, bool)>(),
        timestamp: Option<u32>,
        payload in proptest::collection::vec(any::<u8>(), 0..most),
    ) -> Meaning {
        Meaning {
            v6, udp, flow, dscp, ttl, df, identification, sequence, acknowledgement, window, psh, fin, cwr,
            timestamp, payload,
        }
    }
}

fn segmentation(udp: bool, size: u16) -> Offload {
    Offload {
        segmentation: match udp {
            true => Segmentation::Udp { size },
            false => Segmentation::Tcp { size },
        },
        checksum: None,
    }
}

fn cut(item: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let outline = Outline::read(item).unwrap();
    let cut = Cut::plan(item, &outline, offload).unwrap();
    let packet = |number| {
        let mut packet = vec![0; cut.head_len()];
        cut.write_head(item, number, &mut packet);
        packet.extend_from_slice(&item[cut.payload(number)]);
        assert_eq!(packet.len(), cut.packet_len(number));
        packet
    };
    (0..cut.count()).map(packet).collect()
}

/// Each group as the sink would get it, with the numbers of the packets in it.
fn merge(packets: &[Vec<u8>], takes: Takes) -> Vec<(Vec<u8>, Offload, Vec<u32>)> {
    let passengers: Vec<_> = packets
        .iter()
        .map(|packet| Passenger::read(packet, &Outline::read(packet).unwrap(), takes))
        .collect();
    let head = |number: u32| {
        let packet = &packets[number as usize];
        let len = passengers[number as usize].head_len();
        &packet[..len.unwrap_or(packet.len())]
    };
    let mut merger = Merger::default();
    merger.begin(packets.len());
    for (number, passenger) in (0..).zip(&passengers) {
        merger.push(number, passenger, head);
    }
    let train = |group| {
        let members: Vec<_> = merger.members(group).collect();
        let mut train = head(group.first()).to_vec();
        if group.count() > 1 {
            group.rewrite_head(&mut train);
        }
        for &member in &members {
            train.extend_from_slice(&packets[member as usize][head(member).len()..]);
        }
        (train, group.offload(), members)
    };
    merger.groups().iter().map(train).collect()
}

proptest! {
    #[test]
    fn cutting_gives_what_a_sender_without_offload_would_have_sent(
        whole in meaning(20_000),
        size in 1u16..3000,
    ) {
        let size = size.max((whole.payload.len() / 300) as u16 + 1);
        let expected = whole.segments(size.into());
        prop_assert_eq!(cut(&whole.bytes(), segmentation(whole.udp, size)), expected);
    }

    #[test]
    fn an_unfinished_checksum_is_finished_as_the_sender_would_have(whole in meaning(3000)) {
        let finished = whole.bytes();
        let start = if whole.v6 { 40u16 } else { 20 };
        let offset = if whole.udp { 6u16 } else { 16 };
        let field = usize::from(start + offset);
        // What the kernel leaves in the field is the pseudo-header's sum: the written one less all the rest.
        let mut unfinished = finished.clone();
        unfinished[field..field + 2].fill(0);
        let rest = sum(&unfinished[usize::from(start)..]);
        let written = !u16::from_be_bytes([finished[field], finished[field + 1]]);
        let pseudo = fold(u32::from(written) + u32::from(!rest));
        unfinished[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        let offload = Offload { checksum: Some(ChecksumSpot { start, offset }), ..Offload::default() };
        let mut got = cut(&unfinished, offload).remove(0);
        // TCP knows both forms of zero.
        if got[field..field + 2] == [0xff, 0xff] && finished[field..field + 2] == [0, 0] {
            got[field..field + 2].fill(0);
        }
        prop_assert_eq!(got, finished);
    }

    #[test]
    fn the_segments_of_one_sender_become_its_train_again(
        whole in meaning(20_000),
        size in 200u16..3000,
    ) {
        let whole = Meaning { fin: false, cwr: false, ..whole };
        prop_assume!(!whole.payload.is_empty());
        let trains = merge(&whole.segments(size.into()), ALL);
        let most = if whole.udp { 64 } else { 128 };
        let count = whole.payload.len().div_ceil(size.into());
        prop_assert_eq!(trains.len(), count.div_ceil(most));
    }

    #[test]
    fn cutting_a_train_gives_back_what_was_merged_and_no_flow_is_reordered(
        packets in stream(),
        takes in takes(),
    ) {
        let trains = merge(&packets, takes);
        let order: Vec<_> = trains.iter().flat_map(|(_, _, members)| members.clone()).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert!(sorted.into_iter().eq(0..packets.len() as u32), "lost or doubled");
        for (train, offload, members) in &trains {
            let merged: Vec<_> = members.iter().map(|&member| packets[member as usize].clone()).collect();
            let again: Vec<_> = cut(train, *offload).into_iter().map(atomic).collect();
            let merged: Vec<_> = merged.into_iter().map(atomic).collect();
            prop_assert_eq!(again, merged);
        }
        for packet in &packets {
            let of_flow: Vec<_> = order.iter().copied()
                .filter(|&number| flow_of(&packets[number as usize]) == flow_of(packet))
                .collect();
            prop_assert!(of_flow.is_sorted());
        }
    }

    #[test]
    fn no_bytes_and_no_offload_make_planning_or_cutting_panic(
        item in proptest::collection::vec(any::<u8>(), 0..200),
        version in prop_oneof![Just(0x45u8), Just(0x60)],
        protocol in prop_oneof![Just(6u8), Just(17), any::<u8>()],
        size: u16,
        spot in proptest::option::of(any::<(u8, u8)>()),
        kind in 0..3,
    ) {
        let mut item = item;
        if item.len() >= 40 {
            item[0] = version;
            let len = item.len() as u16;
            item[2..4].copy_from_slice(&len.to_be_bytes());
            item[9] = protocol;
            item[6] = if version == 0x60 { protocol } else { 0 };
        }
        let offload = Offload {
            segmentation: match kind {
                0 => Segmentation::None,
                1 => Segmentation::Tcp { size },
                _ => Segmentation::Udp { size },
            },
            checksum: spot.map(|(start, offset)| ChecksumSpot { start: start.into(), offset: offset.into() }),
        };
        if let Ok(outline) = Outline::read(&item) {
            let _ = Passenger::read(&item, &outline, ALL);
            if let Ok(plan) = Cut::plan(&item, &outline, offload) {
                for number in 0..plan.count() {
                    plan.write_head(&item, number, &mut vec![0; plan.head_len()]);
                }
            }
        }
    }
}

/// Packets of a few flows: mostly consecutive ones, now and then with something that forbids merging.
fn stream() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let faults = proptest::collection::vec((0usize..120, 0usize..12, any::<u8>()), 0..12);
    let senders = proptest::collection::vec((meaning(8000), 100usize..1500), 1..5);
    (senders, faults, any::<u64>()).prop_map(|(senders, faults, mut order)| {
        let mut queues: Vec<_> = senders
            .iter()
            .map(|(sender, size)| sender.segments(*size))
            .collect();
        let mut packets = Vec::new();
        while queues.iter().any(|queue| !queue.is_empty()) {
            order = order
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let index = (order >> 33) as usize % queues.len();
            let queue = &mut queues[index];
            let run = (1 + (order >> 50) as usize % 6).min(queue.len());
            packets.extend(queue.drain(..run));
        }
        for (place, fault, byte) in faults {
            if place < packets.len() {
                spoil(&mut packets, place, fault, byte);
            }
        }
        packets
    })
}

/// Loses, doubles, swaps or damages a packet; a damaged header gets its checksums right again or not, by chance.
fn spoil(packets: &mut Vec<Vec<u8>>, place: usize, fault: usize, byte: u8) {
    match fault {
        0 => drop(packets.remove(place)),
        1 => packets.insert(place, packets[place].clone()),
        2 => packets.swap(place, 0),
        _ => {
            // Never version, lengths, extension chain or fragment fields, which Outline::read may refuse.
            let spots = [1, 4, 5, 8, 24, 27, 33, 35, 44, 47, 53, 60];
            let packet = &mut packets[place];
            let spot = spots[usize::from(byte) % spots.len()];
            let v4 = packet[0] >> 4 == 4;
            if spot < packet.len() && (v4 || ![4, 5].contains(&spot)) {
                packet[spot] ^= byte | 1;
            }
        }
    }
}

fn takes() -> impl Strategy<Value = Takes> {
    any::<(bool, bool, bool)>().prop_map(|(tcp_v4, tcp_v6, udp)| Takes {
        tcp_v4: tcp_v4 || udp,
        tcp_v6,
        udp,
    })
}

/// RFC 6864 4.1: the identification of a datagram that must not be fragmented means nothing.
fn atomic(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

/// Addresses, protocol and ports.
fn flow_of(packet: &[u8]) -> (&[u8], u8, &[u8]) {
    match packet[0] >> 4 {
        4 => (&packet[12..20], packet[9], &packet[20..24]),
        _ => (&packet[8..40], packet[6], &packet[40..44]),
    }
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |total, pair| {
        let word = u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        fold(u32::from(total) + word)
    })
}

fn plain() -> Meaning {
    Meaning {
        v6: false,
        udp: false,
        flow: 1,
        dscp: 0,
        ttl: 64,
        df: true,
        identification: 7,
        sequence: 1000,
        acknowledgement: 5,
        window: 500,
        psh: false,
        fin: false,
        cwr: false,
        timestamp: Some(77),
        payload: vec![9; 100],
    }
}

/// How many trains two packets become.
fn trains_of(first: &Meaning, second: &Meaning) -> usize {
    merge(&[first.bytes(), second.bytes()], ALL).len()
}

fn next(after: &Meaning) -> Meaning {
    Meaning {
        identification: after.identification + 1,
        sequence: after.sequence + after.payload.len() as u32,
        ..after.clone()
    }
}

#[test]
fn only_what_tcp_allows_shares_a_train() {
    let first = plain();
    let good = next(&first);
    assert_eq!(trains_of(&first, &good), 1);
    let with = |change: fn(&mut Meaning)| {
        let mut second = good.clone();
        change(&mut second);
        trains_of(&first, &second)
    };
    type Change = (&'static str, fn(&mut Meaning));
    let refused: [Change; 12] = [
        ("a gap", |m| m.sequence += 1),
        ("another window", |m| m.window += 1),
        ("another acknowledgement", |m| m.acknowledgement += 1),
        ("another timestamp", |m| m.timestamp = Some(78)),
        ("other options", |m| m.timestamp = None),
        ("another DSCP", |m| m.dscp = 8),
        ("another TTL", |m| m.ttl = 63),
        ("another DF", |m| m.df = false),
        ("FIN", |m| m.fin = true),
        ("CWR", |m| m.cwr = true),
        ("more bytes", |m| m.payload.push(1)),
        ("no bytes", |m| m.payload.clear()),
    ];
    for (what, change) in refused {
        assert_eq!(with(change), 2, "{what}");
    }
    assert_eq!(with(|m| m.psh = true), 1, "PSH on the last");
    assert_eq!(with(|m| m.payload.truncate(50)), 1, "a shorter last");
}

#[test]
fn nothing_follows_a_pushed_or_a_shorter_segment() {
    let first = plain();
    let mut pushed = next(&first);
    pushed.psh = true;
    let mut short = next(&first);
    short.payload.truncate(10);
    for second in [pushed, short] {
        let packets = [first.bytes(), second.bytes(), next(&second).bytes()];
        let members: Vec<_> = merge(&packets, ALL)
            .into_iter()
            .map(|train| train.2)
            .collect();
        assert_eq!(members, [vec![0, 1], vec![2]]);
    }
}

#[test]
fn identifications_count_up_or_stand_still_where_df_makes_them_meaningless() {
    let first = plain();
    let still = Meaning {
        identification: 7,
        ..next(&first)
    };
    assert_eq!(trains_of(&first, &still), 1);
    let fragmentable = |meaning: &Meaning| Meaning {
        df: false,
        ..meaning.clone()
    };
    assert_eq!(trains_of(&fragmentable(&first), &fragmentable(&still)), 2);
    assert_eq!(
        trains_of(&fragmentable(&first), &fragmentable(&next(&first))),
        1
    );
    let third = Meaning {
        identification: 8,
        ..next(&still)
    };
    assert_eq!(
        merge(&[first.bytes(), still.bytes(), third.bytes()], ALL).len(),
        2
    );
}

#[test]
fn a_wrong_checksum_is_never_hidden_in_a_train() {
    let first = plain();
    for spot in [10, 37, 60] {
        let mut second = next(&first).bytes();
        second[spot] ^= 1;
        assert_eq!(merge(&[first.bytes(), second], ALL).len(), 2, "byte {spot}");
    }
}

#[test]
fn a_packet_that_travels_alone_is_not_overtaken_by_its_own_flow() {
    let first = plain();
    let mut fin = next(&first);
    fin.fin = true;
    let other = Meaning { flow: 2, ..plain() };
    let packets = [
        first.bytes(),
        other.bytes(),
        fin.bytes(),
        next(&first).bytes(),
        next(&other).bytes(),
    ];
    let members: Vec<_> = merge(&packets, ALL)
        .into_iter()
        .map(|train| train.2)
        .collect();
    assert_eq!(members, [vec![0], vec![1, 4], vec![2], vec![3]]);
}

#[test]
fn a_train_ends_before_its_length_field_overflows() {
    let mut segment = plain();
    segment.payload = vec![3; 9000];
    let mut packets = Vec::new();
    for _ in 0..10 {
        packets.push(segment.bytes());
        segment = next(&segment);
    }
    let trains = merge(&packets, ALL);
    assert_eq!(trains.len(), 2);
    assert!(trains.iter().all(|(train, _, _)| train.len() <= 65_535));
}

#[test]
fn a_super_packet_that_is_none_is_refused() {
    let tcp = plain().bytes();
    let outline = Outline::read(&tcp).unwrap();
    let plan = |offload| Cut::plan(&tcp, &outline, offload);
    assert!(plan(segmentation(false, 0)).is_err());
    assert!(plan(segmentation(true, 100)).is_err());
    let beyond = ChecksumSpot {
        start: tcp.len() as u16 - 3,
        offset: 2,
    };
    let offload = Offload {
        checksum: Some(beyond),
        ..Offload::default()
    };
    assert!(plan(offload).is_err());
    assert!(Cut::plan(&tcp[..60], &outline, Offload::default()).is_err());
}
