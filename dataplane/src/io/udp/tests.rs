use super::*;
use crate::io::namespaces::{Namespace, along_cable, cable, command, isolated, receive, warnings};
use crate::io::{
    Arrival, Burst, Family, MAX_ITEM_BYTES, OpenError, PmtuCache, ProtectedSink, ProtectedSource,
    ReceiveBuffer, SocketOptions, Wait,
};
use ipsec::tunnel::Outer;
use rustix::net::SocketType;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: Wait = Wait::AtMost(Duration::from_secs(1));

struct Ends {
    sink: UdpSink,
    source: UdpSource,
    paths: PmtuCache,
    warned: Arc<Mutex<Vec<String>>>,
}

impl Ends {
    /// Whether no warning was about segmentation. Others (small buffers, no root) may have been given.
    fn heard_nothing_of_segmentation(&self) -> bool {
        !self
            .warned
            .lock()
            .unwrap()
            .iter()
            .any(|words| words.contains("packet by packet"))
    }
}

fn open_end(family: Family, change: impl FnOnce(&mut UdpOptions)) -> Ends {
    let (warn, warned) = warnings();
    let paths = PmtuCache::default();
    let mut options = UdpOptions::new(SocketOptions::new(paths.clone(), warn));
    change(&mut options);
    let (source, sink) = open(family, &options).unwrap();
    Ends {
        sink,
        source,
        paths,
        warned,
    }
}

/// An end in this namespace and one across a cable of this MTU.
fn pair(family: Family, mtu: u32) -> (Ends, Ends, Namespace) {
    let other = Namespace::new();
    cable(&other, mtu);
    let right = other.run(|| open_end(family, |_| {}));
    (open_end(family, |_| {}), right, other)
}

fn outer(family: Family) -> Outer {
    Outer {
        protocol: 17,
        ports: Some((4500, 4500)),
        traffic_class: 0,
        hop_limit: 64,
        ..along_cable(family)
    }
}

/// Bytes that start with no zero word, different in every packet.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8 | 1
        })
        .collect()
}

fn receive_all(source: &mut UdpSource, bytes: usize) -> (Vec<u8>, Vec<Arrival>) {
    let (mut got, mut arrivals) = (Vec::new(), Vec::new());
    receive(source, |item, arrival| {
        got.extend_from_slice(item);
        arrivals.push(*arrival);
        got.len() >= bytes
    });
    (got, arrivals)
}

fn trains_pass(family: Family) {
    let (mut left, mut right, _other) = pair(family, 1500);
    let bytes = noise(1400 * 100 + 333);
    let burst = Burst {
        outer: outer(family),
        bytes: &bytes,
        stride: 1400,
    };
    let sent = left.sink.deliver(&[burst]).unwrap();
    // 46 packets of 1400 bytes fit into one datagram of 65 507; one call more sets the don't-fragment bit.
    assert_eq!((sent.packets, sent.calls), (101, 2), "{sent:?}");
    let (got, arrivals) = receive_all(&mut right.source, bytes.len());
    assert!(got == bytes);
    let expected = Outer {
        dont_fragment: false,
        ..outer(family)
    };
    assert!(
        arrivals.iter().all(|arrival| arrival.outer == expected),
        "{arrivals:?}"
    );
    assert!(
        arrivals.iter().all(|arrival| arrival.stride == 1400),
        "{arrivals:?}"
    );
    assert_eq!(arrivals.len(), 3, "the cable carries trains whole");
    assert!(left.heard_nothing_of_segmentation());
}

#[test]
fn a_parcel_of_many_packets_arrives_byte_equal_in_few_trains_over_v4() {
    isolated(|| trains_pass(Family::V4));
}

#[test]
fn a_parcel_of_many_packets_arrives_byte_equal_in_few_trains_over_v6() {
    isolated(|| trains_pass(Family::V6));
}

#[test]
fn the_kernel_cuts_a_train_into_the_datagrams_that_a_plain_socket_receives() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        let plain = other.run(|| UdpSocket::bind("192.0.2.2:4500").unwrap());
        plain
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        let mut left = open_end(Family::V4, |_| {});
        let bytes = noise(1000 * 9 + 77);
        left.sink
            .deliver(&[Burst {
                outer: outer(Family::V4),
                bytes: &bytes,
                stride: 1000,
            }])
            .unwrap();
        let mut room = [0; 2000];
        for expected in bytes.chunks(1000) {
            let (len, from) = plain.recv_from(&mut room).unwrap();
            assert_eq!(from, "192.0.2.1:4500".parse().unwrap());
            assert!(room[..len] == *expected);
        }
    });
}

fn header_fields_pass(family: Family) {
    let (mut left, mut right, _other) = pair(family, 1500);
    let bytes = noise(400);
    // All four ECN codepoints, with a DSCP, for single packets and trains, and unlike hop limits.
    let outers: Vec<Outer> = (0..8u8)
        .map(|n| Outer {
            traffic_class: 0xb8 | n & 3,
            hop_limit: 10 + n,
            ..outer(family)
        })
        .collect();
    let bursts: Vec<_> = outers
        .iter()
        .enumerate()
        .map(|(n, &outer)| Burst {
            outer,
            bytes: &bytes,
            stride: if n < 4 { 400 } else { 100 },
        })
        .collect();
    assert_eq!(left.sink.deliver(&bursts).unwrap().packets, 4 + 16);
    let (_, arrivals) = receive_all(&mut right.source, 8 * 400);
    let got: Vec<_> = arrivals
        .iter()
        .map(|a| (a.outer.traffic_class, a.outer.hop_limit))
        .collect();
    let expected: Vec<_> = outers
        .iter()
        .map(|o| (o.traffic_class, o.hop_limit))
        .collect();
    assert_eq!(got, expected);
}

#[test]
fn ecn_dscp_and_hop_limit_pass_with_every_packet() {
    isolated(|| header_fields_pass(Family::V4));
    isolated(|| header_fields_pass(Family::V6));
}

#[test]
fn a_parcel_leaves_from_the_source_address_that_it_names() {
    isolated(|| {
        let (mut left, mut right, _other) = pair(Family::V4, 1500);
        command("ip addr add 192.0.2.77/24 dev left");
        let from = Outer {
            source: "192.0.2.77".parse().unwrap(),
            ..outer(Family::V4)
        };
        let bytes = noise(100);
        left.sink
            .deliver(&[Burst {
                outer: from,
                bytes: &bytes,
                stride: 100,
            }])
            .unwrap();
        let (_, arrivals) = receive_all(&mut right.source, 100);
        assert_eq!(arrivals[0].outer.source, from.source);
        // An address that is not ours is refused for this burst only, and is no fault of segmentation.
        let foreign = Outer {
            source: "203.0.113.1".parse().unwrap(),
            ..outer(Family::V4)
        };
        let bursts = [(foreign, 100), (foreign, 10), (from, 10)];
        let bursts = bursts.map(|(outer, stride)| Burst {
            outer,
            bytes: &bytes,
            stride,
        });
        let sent = left.sink.deliver(&bursts).unwrap();
        assert_eq!((sent.failed, sent.packets), (11, 10), "{sent:?}");
        assert!(left.sink.stats().segments() && left.heard_nothing_of_segmentation());
    });
}

#[test]
fn packets_too_big_for_the_path_are_counted_and_the_mtu_is_learnt() {
    isolated(|| {
        for family in [Family::V4, Family::V6] {
            let (mut left, mut right, _other) = pair(family, 1500);
            command("ip link set left mtu 1400");
            let peer = outer(family).destination;
            let bytes = noise(1390 * 3);
            let burst = |stride| Burst {
                outer: outer(family),
                bytes: &bytes,
                stride,
            };
            let sent = left
                .sink
                .deliver(&[burst(1390), burst(1390 * 3), burst(1300)])
                .unwrap();
            assert_eq!(
                (sent.too_big, sent.packets, sent.failed),
                (4, 4, 0),
                "{sent:?}"
            );
            assert_eq!(left.paths.mtu(peer), Some(1400));
            assert!(left.sink.stats().segments(), "segmentation is not at fault");
            assert!(receive_all(&mut right.source, bytes.len()).0 == bytes);
            command("ip link del left");
        }
    });
}

#[test]
fn without_the_dont_fragment_bit_large_packets_arrive_in_fragments() {
    isolated(|| {
        let (mut left, mut right, _other) = pair(Family::V4, 1400);
        let outer = Outer {
            dont_fragment: false,
            ..outer(Family::V4)
        };
        let bytes = noise(2000 * 3);
        let sent = left
            .sink
            .deliver(&[Burst {
                outer,
                bytes: &bytes,
                stride: 2000,
            }])
            .unwrap();
        assert_eq!((sent.packets, sent.too_big), (3, 0), "{sent:?}");
        assert!(receive_all(&mut right.source, bytes.len()).0 == bytes);
        assert!(
            left.sink.stats().segments(),
            "a train that must be fragmented is no fault of segmentation"
        );
    });
}

#[test]
fn an_icmp_error_of_a_router_lowers_the_path_mtu() {
    isolated(|| {
        let (router, far) = (Namespace::new(), Namespace::new());
        cable(&router, 1500);
        router.run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            let line = format!(
                "ip link add narrow mtu 1300 type veth peer name far mtu 1300 netns {}",
                far.path()
            );
            command(&line);
            command("ip addr add 198.51.100.1/24 dev narrow");
            command("ip link set narrow up");
        });
        far.run(|| {
            command("ip addr add 198.51.100.2/24 dev far");
            command("ip link set far up");
            command("ip route add default via 198.51.100.1");
        });
        command("ip route add 198.51.100.0/24 via 192.0.2.2");
        let mut left = open_end(Family::V4, |_| {});
        let peer: IpAddr = "198.51.100.2".parse().unwrap();
        let outer = Outer {
            destination: peer,
            ..outer(Family::V4)
        };
        let bytes = noise(1400);
        let burst = Burst {
            outer,
            bytes: &bytes,
            stride: 1400,
        };
        assert_eq!(left.sink.deliver(&[burst]).unwrap().packets, 1);
        let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 8);
        assert_eq!(left.source.fill(&mut buffer, SECOND).unwrap(), 0);
        assert_eq!(left.paths.mtu(peer), Some(1300));
        // The report does not end the next sleep as well.
        let started = std::time::Instant::now();
        left.source
            .fill(&mut buffer, Wait::AtMost(Duration::from_millis(50)))
            .unwrap();
        assert!(started.elapsed() >= Duration::from_millis(50));
    });
}

#[test]
fn a_peer_without_a_daemon_stops_neither_direction() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        let mut left = open_end(Family::V4, |_| {});
        let bytes = noise(1000);
        for _ in 0..20 {
            let burst = Burst {
                outer: outer(Family::V4),
                bytes: &bytes,
                stride: 500,
            };
            assert_eq!(left.sink.deliver(&[burst]).unwrap().packets, 2);
        }
        let mut right = other.run(|| open_end(Family::V4, |_| {}));
        let burst = Burst {
            outer: outer(Family::V4),
            bytes: &bytes,
            stride: 500,
        };
        assert_eq!(left.sink.deliver(&[burst]).unwrap().packets, 2);
        assert!(receive_all(&mut right.source, 1000).0 == bytes);
        let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 8);
        assert_eq!(left.source.fill(&mut buffer, Wait::Poll).unwrap(), 0);
    });
}

#[test]
fn keepalives_and_ike_messages_are_set_aside_even_inside_a_train() {
    isolated(|| {
        let (mut left, right, _other) = pair(Family::V4, 1500);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = heard.clone();
        let handler = move |_: &Outer, message: &[u8]| ear.lock().unwrap().push(message.to_vec());
        let mut source = right.source.with_ike(Box::new(handler));
        let mut bytes = noise(500);
        bytes[200..204].fill(0);
        let bursts = [(&bytes[..], 100), (&[0xff][..], 1), (&bytes[..100], 100)];
        let bursts = bursts.map(|(bytes, stride)| Burst {
            outer: outer(Family::V4),
            bytes,
            stride,
        });
        assert_eq!(left.sink.deliver(&bursts).unwrap().packets, 7);
        let (got, arrivals) = receive_all(&mut source, 500);
        assert!(got == [&bytes[..200], &bytes[300..], &bytes[..100]].concat());
        assert_eq!(arrivals.len(), 3);
        assert_eq!(
            (source.stats().keepalives(), source.stats().ike_messages()),
            (1, 1)
        );
        assert!(*heard.lock().unwrap() == [&bytes[204..300]]);
    });
}

#[test]
fn packets_larger_than_guessed_arrive_in_order_whatever_the_intake_has_room_for() {
    isolated(|| {
        let (mut left, mut right, _other) = pair(Family::V4, 65_535);
        let sizes = [100, 60_000, 50, 20_000, 1, 2048, 2049, 65_507, 9, 30_000, 7];
        let all: Vec<Vec<u8>> = sizes.iter().map(|&size| noise(size)).collect();
        let bursts: Vec<_> = all
            .iter()
            .map(|bytes| Burst {
                outer: outer(Family::V4),
                bytes,
                stride: bytes.len(),
            })
            .collect();
        // Room for one of the largest only: the others have to wait for their turn.
        let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 4);
        for turn in 0..3 {
            assert_eq!(
                left.sink.deliver(&bursts).unwrap().packets,
                sizes.len() as u64
            );
            let mut got = Vec::new();
            while got.len() < sizes.len() {
                buffer.clear();
                assert!(right.source.fill(&mut buffer, SECOND).unwrap() > 0);
                assert!(buffer.items.len() <= 4);
                assert!(buffer.items.is_sorted_by(|a, b| a.0.end <= b.0.start));
                got.extend(
                    buffer
                        .items
                        .iter()
                        .map(|(range, _)| buffer.bytes[range.clone()].to_vec()),
                );
            }
            assert!(got == all, "turn {turn}");
        }
    });
}

#[test]
fn a_socket_asked_to_send_the_checksum_zero_sends_it() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        // A raw socket sees the UDP header as it came.
        let raw = other.run(|| {
            let udp = Some(rustix::net::ipproto::UDP);
            rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::RAW, udp).unwrap()
        });
        let mut checksums = Vec::new();
        for (zero_checksum, port) in [(true, 4500), (false, 4501)] {
            let mut left = open_end(Family::V4, |options| {
                (options.zero_checksum, options.port) = (zero_checksum, port);
            });
            let bytes = noise(100);
            let burst = Burst {
                outer: Outer {
                    ports: Some((port, 4500)),
                    ..outer(Family::V4)
                },
                bytes: &bytes,
                stride: 100,
            };
            assert_eq!(left.sink.deliver(&[burst]).unwrap().packets, 1);
            assert_eq!(left.sink.stats().segments(), !zero_checksum);
            let mut packet = [0; 2000];
            rustix::net::recv(&raw, &mut packet[..], rustix::net::RecvFlags::empty()).unwrap();
            checksums.push(u16::from_be_bytes([packet[26], packet[27]]) == 0);
        }
        assert_eq!(checksums, [true, false]);
    });
}

#[test]
fn a_port_in_use_is_refused_with_advice() {
    isolated(|| {
        let _first = open_end(Family::V4, |_| {});
        let (warn, _) = warnings();
        let options = UdpOptions::new(SocketOptions::new(PmtuCache::default(), warn));
        let refusal = open(Family::V4, &options).err().unwrap();
        assert!(matches!(refusal, OpenError::PortTaken { port: 4500 }));
        assert!(refusal.to_string().contains("4500"));
        open(Family::V6, &options).unwrap();
    });
}

#[test]
fn parcels_of_another_port_or_family_are_refused_not_sent_wrongly() {
    isolated(|| {
        let mut left = open_end(Family::V4, |_| {});
        let other_port = Outer {
            ports: Some((500, 4500)),
            ..outer(Family::V4)
        };
        let bytes = noise(100);
        let bursts = [other_port, outer(Family::V6)].map(|outer| Burst {
            outer,
            bytes: &bytes,
            stride: 50,
        });
        assert_eq!(left.sink.deliver(&bursts).unwrap().failed, 4);
    });
}
