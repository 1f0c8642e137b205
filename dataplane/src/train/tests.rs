use super::merge::{GroCandidate, Merger};
use super::segments::Segments;
use super::*;
use ipsec::packet::Outline;
use meaning::Meaning;

mod inverse;
mod kernel;
mod meaning;

const ALL: TrainKinds = TrainKinds {
    tcp_v4: true,
    tcp_v6: true,
    udp: true,
};

fn segmentation(udp: bool, size: u16) -> Offload {
    Offload {
        segmentation: if udp {
            Segmentation::Udp { size }
        } else {
            Segmentation::Tcp { size }
        },
        checksum: None,
    }
}

fn cut(item: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let outline = Outline::read(item).unwrap();
    let segments = Segments::plan(item, &outline, offload).unwrap();
    let packet = |number| {
        let mut packet = vec![0; segments.head_len()];
        segments.write_head(item, number, &mut packet);
        packet.extend_from_slice(&item[segments.payload(number)]);
        assert_eq!(packet.len(), segments.packet_len(number));
        packet
    };
    (0..segments.count()).map(packet).collect()
}

/// Each group as the sink would get it, with the numbers of the packets in it.
fn merge(packets: &[Vec<u8>], train_kinds: TrainKinds) -> Vec<(Vec<u8>, Offload, Vec<u32>)> {
    let candidates: Vec<_> = packets
        .iter()
        .map(|packet| GroCandidate::read(packet, &Outline::read(packet).unwrap(), train_kinds))
        .collect();
    let head = |number: u32| {
        let packet = &packets[number as usize];
        let len = candidates[number as usize].head_len();
        &packet[..len.unwrap_or(packet.len())]
    };
    let mut merger = Merger::default();
    merger.begin(packets.len());
    for (number, candidate) in (0..).zip(&candidates) {
        merger.push(number, candidate, head);
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
        ece: false,
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
    let refused: [Change; 13] = [
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
        ("another ECE", |m| m.ece = true),
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
    let plan = |offload| Segments::plan(&tcp, &outline, offload);
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
    assert!(Segments::plan(&tcp[..60], &outline, Offload::default()).is_err());
}
