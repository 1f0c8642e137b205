use super::*;
use crate::io::namespaces::{Namespace, along_cable, cable, command, isolated, receive, warnings};
use crate::io::{MAX_ITEM_BYTES, PmtuCache};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

fn open_end(family: Family, protocol: NativeProtocol, paths: &PmtuCache) -> (RawSource, RawSink) {
    let (warn, _) = warnings();
    open(family, protocol, &SocketOptions::new(paths.clone(), warn)).unwrap()
}

fn outer(family: Family, protocol: NativeProtocol) -> Outer {
    Outer {
        protocol: protocol.number(),
        ..along_cable(family)
    }
}

/// Packets of `size` bytes (the last is shorter) that look like ESP with rising sequence numbers.
fn packets(count: usize, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..count as u32 {
        bytes.extend_from_slice(&0x1001u32.to_be_bytes());
        bytes.extend_from_slice(&(n + 1).to_be_bytes());
        bytes.extend((8..size as u32).map(|i| (i ^ n) as u8));
    }
    bytes.truncate(count * size - 12);
    bytes
}

fn receive_all(source: &mut RawSource, count: usize) -> Vec<(Vec<u8>, Arrival)> {
    let mut got = Vec::new();
    receive(source, |item, arrival| {
        got.push((item.to_vec(), *arrival));
        got.len() >= count
    });
    got
}

/// A raw socket of the plain kind, as a witness in the other namespace: it gets whole IPv4 packets.
fn witness(other: &Namespace, protocol: NativeProtocol) -> OwnedFd {
    let number = NonZeroU32::new(protocol.number().into()).map(Protocol::from_raw);
    other.run(|| {
        rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::RAW, number).unwrap()
    })
}

fn receive_one(witness: &OwnedFd) -> Vec<u8> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(witness, PollFlags::IN)], Some(&limit)).unwrap();
    let mut room = vec![0; MAX_ITEM_BYTES];
    let (len, _) =
        rustix::net::recv(witness, &mut room[..], rustix::net::RecvFlags::DONTWAIT).unwrap();
    room.truncate(len);
    room
}

fn a_batch_arrives(family: Family, protocol: NativeProtocol) {
    let other = Namespace::new();
    cable(&other, 1500);
    let (_, mut sink) = open_end(family, protocol, &PmtuCache::default());
    let (mut source, _) = other.run(|| open_end(family, protocol, &PmtuCache::default()));
    let bytes = packets(150, 1400);
    let outer = outer(family, protocol);
    let sent = sink
        .deliver(&[Burst {
            outer,
            bytes: &bytes,
            stride: 1400,
        }])
        .unwrap();
    // 64 packets a call; one call more sets the don't-fragment bit.
    assert_eq!((sent.packets, sent.calls), (150, 4), "{sent:?}");
    let got = receive_all(&mut source, 150);
    assert_eq!(got.len(), 150);
    for ((packet, arrival), expected) in got.iter().zip(bytes.chunks(1400)) {
        let emitted_len = if family == Family::V4 { 20 } else { 40 };
        assert!(packet[usize::from(emitted_len)..] == *expected);
        assert_eq!(
            *arrival,
            Arrival {
                outer: Outer {
                    emitted_len,
                    ..outer
                },
                stride: packet.len()
            }
        );
    }
    assert_eq!(source.malformed().load(Ordering::Relaxed), 0);
}

#[test]
fn a_batch_of_esp_arrives_in_order_and_equal_with_its_header_fields_over_v4() {
    isolated(|| a_batch_arrives(Family::V4, NativeProtocol::Esp));
}

#[test]
fn a_batch_of_esp_arrives_in_order_and_equal_with_its_header_fields_over_v6() {
    isolated(|| a_batch_arrives(Family::V6, NativeProtocol::Esp));
}

#[test]
fn a_batch_of_ah_arrives_in_order_and_equal_with_its_header_fields_over_v4() {
    isolated(|| a_batch_arrives(Family::V4, NativeProtocol::Ah));
}

#[test]
fn a_batch_of_ah_arrives_in_order_and_equal_with_its_header_fields_over_v6() {
    isolated(|| a_batch_arrives(Family::V6, NativeProtocol::Ah));
}

#[test]
fn packets_that_may_be_fragmented_are_and_arrive_whole() {
    isolated(|| {
        for family in [Family::V4, Family::V6] {
            let other = Namespace::new();
            cable(&other, 1400);
            let (_, mut sink) = open_end(family, NativeProtocol::Esp, &PmtuCache::default());
            let (mut source, _) =
                other.run(|| open_end(family, NativeProtocol::Esp, &PmtuCache::default()));
            let outer = Outer {
                dont_fragment: false,
                ..outer(family, NativeProtocol::Esp)
            };
            let bytes = packets(5, 9000);
            let sent = sink
                .deliver(&[Burst {
                    outer,
                    bytes: &bytes,
                    stride: 9000,
                }])
                .unwrap();
            assert_eq!((sent.packets, sent.too_big), (5, 0), "{sent:?}");
            let got = receive_all(&mut source, 5);
            assert!(
                got.iter()
                    .map(|(packet, arrival)| &packet[usize::from(arrival.outer.emitted_len)..])
                    .eq(bytes.chunks(9000)),
                "{family:?}"
            );
            command("ip link del left");
        }
    });
}

#[test]
fn packets_too_big_for_the_path_are_counted_and_the_mtu_is_learnt() {
    isolated(|| {
        for family in [Family::V4, Family::V6] {
            let other = Namespace::new();
            cable(&other, 1400);
            let paths = PmtuCache::default();
            let (mut source, mut sink) = open_end(family, NativeProtocol::Esp, &paths);
            let outer = outer(family, NativeProtocol::Esp);
            let bytes = packets(3, 1390);
            let sent = sink
                .deliver(&[Burst {
                    outer,
                    bytes: &bytes,
                    stride: 1390,
                }])
                .unwrap();
            // The last is 12 bytes shorter, which helps over IPv4 only.
            let passes = u64::from(family == Family::V4);
            assert_eq!(
                (sent.too_big, sent.packets),
                (3 - passes, passes),
                "{sent:?}"
            );
            assert_eq!(paths.mtu(outer.destination), Some(1400));
            let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 4);
            assert_eq!(source.fill(&mut buffer, Wait::Poll).unwrap(), 0);
            command("ip link del left");
        }
    });
}

/// A whole packet of AH with this sequence number, its headers written.
fn whole(outer: &Outer, identification: u16, options: &[u8], body: &[u8]) -> (Outer, Vec<u8>) {
    let mut packet = vec![0; outer.len()];
    outer.emit(options.len() + body.len(), identification, &mut packet);
    packet.extend_from_slice(options);
    packet.extend_from_slice(body);
    if outer.destination.is_ipv4() {
        packet[0] += (options.len() / 4) as u8;
        ipsec::wire::ip::v4::finish_checksum(&mut packet);
    } else if let Some(named) = options.first() {
        packet[6] = 60;
        assert_eq!(*named, outer.protocol);
    }
    let emitted_len = (packet.len() - body.len()) as u16;
    (
        Outer {
            emitted_len,
            ..*outer
        },
        packet,
    )
}

#[test]
fn a_second_reader_finds_headers_exactly_as_they_were_written() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        let witness = witness(&other, NativeProtocol::Ah);
        let (warn, _) = warnings();
        let options = SocketOptions::new(PmtuCache::default(), warn);
        let mut sink = open_hdrincl(Family::V4, &options).unwrap();
        for (identification, dont_fragment) in [(1, true), (0xffff, false), (0x1234, true)] {
            let outer = Outer {
                dont_fragment,
                ..outer(Family::V4, NativeProtocol::Ah)
            };
            let (outer, packet) = whole(&outer, identification, &[148, 4, 0, 0], &[7; 60]);
            let burst = Burst {
                outer,
                bytes: &packet,
                stride: packet.len(),
            };
            assert_eq!(sink.deliver(&[burst]).unwrap().packets, 1);
            assert!(receive_one(&witness) == packet);
        }
    });
}

#[test]
fn written_headers_arrive_with_options_and_extension_headers() {
    isolated(|| {
        for (family, options) in [
            (Family::V4, &[148, 4, 0, 0][..]),
            // Destination options that name AH: a PadN of four bytes.
            (Family::V6, &[51, 0, 1, 4, 0, 0, 0, 0][..]),
            (Family::V6, &[][..]),
        ] {
            let other = Namespace::new();
            cable(&other, 1500);
            let (warn, _) = warnings();
            let sender = SocketOptions::new(PmtuCache::default(), warn);
            let mut sink = open_hdrincl(family, &sender).unwrap();
            let (mut source, _) =
                other.run(|| open_end(family, NativeProtocol::Ah, &PmtuCache::default()));
            let (outer, packet) = whole(&outer(family, NativeProtocol::Ah), 77, options, &[9; 200]);
            let burst = Burst {
                outer,
                bytes: &packet,
                stride: packet.len(),
            };
            assert_eq!(sink.deliver(&[burst]).unwrap().packets, 1);
            let got = receive_all(&mut source, 1);
            assert_eq!(got[0].1.outer, outer);
            // The kernel does not report the flow label, and no ICV covers it.
            let unlabelled = |packet: &[u8]| {
                let mut packet = packet.to_vec();
                if family == Family::V6 {
                    packet[1] &= 0xf0;
                    packet[2..4].fill(0);
                }
                packet
            };
            assert_eq!(unlabelled(&got[0].0), unlabelled(&packet));
            command("ip link del left");
        }
    });
}

#[test]
fn written_packets_that_are_too_big_are_cut_here_or_refused() {
    isolated(|| {
        for family in [Family::V4, Family::V6] {
            for dont_fragment in [false, true] {
                let other = Namespace::new();
                cable(&other, 1400);
                let (warn, _) = warnings();
                let sender = SocketOptions::new(PmtuCache::default(), warn);
                let mut sink = open_hdrincl(family, &sender).unwrap();
                let (mut source, _) =
                    other.run(|| open_end(family, NativeProtocol::Ah, &PmtuCache::default()));
                let outer = Outer {
                    dont_fragment,
                    ..outer(family, NativeProtocol::Ah)
                };
                let (outer, packet) = whole(&outer, 77, &[], &[5; 5000]);
                let burst = Burst {
                    outer,
                    bytes: &packet,
                    stride: packet.len(),
                };
                let sent = sink.deliver(&[burst]).unwrap();
                let (passed, refused) = (u64::from(!dont_fragment), u64::from(dont_fragment));
                assert_eq!((sent.packets, sent.too_big), (passed, refused), "{sent:?}");
                let got = if dont_fragment {
                    Vec::new()
                } else {
                    receive_all(&mut source, 1)
                };
                for (whole, arrival) in &got {
                    assert!(whole[usize::from(arrival.outer.emitted_len)..] == [5; 5000]);
                }
                assert_eq!(got.len() as u64, passed);
                command("ip link del left");
            }
        }
    });
}

#[test]
fn the_kernel_answers_packets_only_while_no_socket_receives_them() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        let (_, mut sink) = open_end(Family::V4, NativeProtocol::Esp, &PmtuCache::default());
        let bytes = packets(1, 100);
        let burst = Burst {
            outer: outer(Family::V4, NativeProtocol::Esp),
            bytes: &bytes,
            stride: 100,
        };
        let answers = || {
            let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let mut icmp = snmp
                .lines()
                .filter(|line| line.starts_with("Icmp:"))
                .map(str::split_whitespace);
            let at = icmp
                .next()
                .unwrap()
                .position(|word| word == "InDestUnreachs")
                .unwrap();
            icmp.next()
                .unwrap()
                .nth(at)
                .unwrap()
                .parse::<u32>()
                .unwrap()
        };
        let mut listener =
            other.run(|| open_end(Family::V4, NativeProtocol::Esp, &PmtuCache::default()));
        sink.deliver(&[burst]).unwrap();
        assert_eq!(receive_all(&mut listener.0, 1).len(), 1);
        assert_eq!(answers(), 0);
        drop(listener);
        // A child that another test is just starting may keep the socket open for a moment longer.
        let send_timeout = Instant::now() + Duration::from_secs(10);
        while answers() == 0 && Instant::now() < send_timeout {
            assert_eq!(sink.deliver(&[burst]).unwrap().packets, 1);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(answers() > 0);
        // The error that the ICMP message left on the socket does not stop the next packet.
        assert_eq!(sink.deliver(&[burst]).unwrap().packets, 1);
    });
}

#[test]
fn encapsulated_and_foreign_parcels_are_refused() {
    isolated(|| {
        let (_, mut sink) = open_end(Family::V4, NativeProtocol::Esp, &PmtuCache::default());
        let base = outer(Family::V4, NativeProtocol::Esp);
        let others = [
            Outer {
                ports: Some((4500, 4500)),
                ..base
            },
            Outer {
                protocol: 51,
                ..base
            },
            outer(Family::V6, NativeProtocol::Esp),
        ];
        let bytes = packets(2, 100);
        let bursts = others.map(|outer| Burst {
            outer,
            bytes: &bytes,
            stride: 100,
        });
        assert_eq!(
            sink.deliver(&bursts).unwrap(),
            Sent {
                failed: 6,
                ..Sent::default()
            }
        );
    });
}
