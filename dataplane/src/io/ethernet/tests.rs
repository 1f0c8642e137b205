use super::icmp_reports::IcmpReports;
use super::*;
use crate::io::namespaces::{Namespace, cable, command, isolated, warnings};
use crate::io::packet::{NativeIo, NextHop, NextHops};
use crate::io::{
    Delivery, MAX_ITEM_BYTES, PlaintextSink, PlaintextSource, ReceiveBuffer, Wait, Waker,
    socket_option::set_option_to,
};
use crate::train::{ChecksumSpot, Offload, Segmentation};
use arc_swap::ArcSwap;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use ipsec::database::{Database, Snapshot};
use ipsec::setkey::{Forwarding, NoNames, compile};
use ipsec::wire::checksum::Sum;
use std::io::IoSlice;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(50);

/// What goes to 10.2.0.0/24 is protected, to 10.3.0.0/24 discarded, and to 10.2.0.9 it passes in clear.
const POLICIES: &str = "
    add 198.51.100.1 198.51.100.2 esp 0x1001 -m tunnel -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
    spdadd 192.0.2.0/24 10.2.0.9 any -P out prio 10 none;
    spdadd 192.0.2.0/24 10.3.0.0/24 any -P out discard;
    spdadd 192.0.2.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/198.51.100.1-198.51.100.2/require;
    spdadd 2001:db8::/64 2001:db8:2::/64 any -P out ipsec esp/tunnel/198.51.100.1-198.51.100.2/require;";

/// A router at the left end of the cable; its host at the right end sends everything there.
struct Router {
    host: Namespace,
    device: Ethernet,
    handle: EthernetHandle,
    source: EthernetSource,
}

fn databases() -> Arc<ArcSwap<Snapshot>> {
    let commands = compile(POLICIES.as_bytes(), Forwarding::AsWritten, &mut NoNames)
        .unwrap()
        .commands;
    let mut database = Database::default();
    database.apply(&commands, 1_800_000_000, &mut || 7).unwrap();
    Arc::new(ArcSwap::new(database.snapshot()))
}

fn index_and_address(device: &str) -> (u32, [u8; 6]) {
    let output = std::process::Command::new("ip")
        .args(["-o", "link", "show", "dev", device])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let index = text.split(':').next().unwrap().trim().parse().unwrap();
    let mut words = text.split_whitespace();
    words.find(|word| *word == "link/ether").unwrap();
    let bytes: Vec<u8> = words
        .next()
        .unwrap()
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    (index, bytes.try_into().unwrap())
}

fn router(way: NativeIo) -> Router {
    let host = Namespace::new();
    cable(&host, 1500);
    host.run(|| {
        command("ip route add default via 192.0.2.1");
        command("ip -6 route add default via 2001:db8::1");
    });
    let (device, _) = index_and_address("left");
    let options = EthernetOptions {
        name: "left".to_owned(),
        device,
        mtu: 1500,
        mark: 0x1000_0000,
        native_io: way,
        offloads: true,
    };
    let mut device = Ethernet::open(options, &warnings().0).unwrap();
    let handle = device.handle();
    let addresses = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().unwrap());
    handle.set_local_addresses(LocalAddresses {
        all: addresses.into(),
        on_device: addresses.into(),
    });
    let source = device.source(databases(), Waker::new().unwrap()).unwrap();
    Router {
        host,
        device,
        handle,
        source,
    }
}

impl Router {
    /// Every item that comes until none does for a while.
    fn read(&mut self) -> Vec<(Vec<u8>, Offload)> {
        let mut buffer = ReceiveBuffer::with_capacity(8 * MAX_ITEM_BYTES, 64);
        let mut all = Vec::new();
        let mut quiet = Instant::now() + SECOND;
        loop {
            buffer.clear();
            // Packets that were left to the kernel end a sleep too.
            let wait = Wait::AtMost(quiet.saturating_duration_since(Instant::now()));
            if self.source.fill(&mut buffer, wait).unwrap() > 0 {
                quiet = Instant::now() + SOON;
            } else if Instant::now() >= quiet {
                return all;
            }
            let items = buffer.items.iter();
            all.extend(
                items.map(|(range, offload)| (buffer.bytes[range.clone()].to_vec(), *offload)),
            );
        }
    }

    /// Lets the host send a datagram.
    fn host_sends(&self, to: &str, len: usize) {
        self.host.run(|| {
            let any = if to.contains('[') {
                "[::]:0"
            } else {
                "0.0.0.0:0"
            };
            let socket = UdpSocket::bind(any).unwrap();
            socket.send_to(&vec![7; len], to).unwrap();
        });
    }

    fn sink(&self, next_hop: Option<NextHop>) -> EthernetSink {
        self.device.sink(Box::new(Known(next_hop)))
    }

    /// The host, as a neighbour of the router.
    fn neighbour(&self) -> NextHop {
        let ((device, local_mac), (_, neighbour_mac)) = (
            index_and_address("left"),
            self.host.run(|| index_and_address("right")),
        );
        NextHop {
            device,
            mtu: 1500,
            local_mac,
            neighbour_mac,
        }
    }
}

/// What the kernel's local table has beside addresses.
const LOCAL_BY_ROUTE: [u8; 4] = [192, 0, 2, 77];

struct Known(Option<NextHop>);

impl NextHops for Known {
    fn is_ours(&mut self, destination: IpAddr) -> bool {
        destination == IpAddr::from(LOCAL_BY_ROUTE)
    }

    fn changed(&mut self) -> bool {
        false
    }

    fn find(&mut self, _: IpAddr, _: IpAddr) -> Option<NextHop> {
        self.0
    }
}

fn deliver(sink: &mut EthernetSink, packets: &[Vec<u8>]) -> crate::io::Sent {
    let pieces: Vec<_> = packets
        .iter()
        .map(|packet| [IoSlice::new(packet)])
        .collect();
    let deliveries: Vec<_> = pieces
        .iter()
        .map(|pieces| Delivery {
            offload: Offload::default(),
            pieces,
        })
        .collect();
    sink.deliver(&deliveries).unwrap()
}

/// From a host beyond the tunnel to port 7000 of the router's host.
fn opened(hop_limit: u8, len: usize) -> Vec<u8> {
    let builder = PacketBuilder::ipv4([10, 2, 0, 2], [192, 0, 2, 2], hop_limit).udp(9, 7000);
    let mut packet = Vec::new();
    builder.write(&mut packet, &vec![5; len]).unwrap();
    packet
}

#[test]
fn what_policy_protects_or_discards_is_taken_one_hop_on_and_nothing_else() {
    isolated(|| {
        let mut router = router(NativeIo::Packet);
        for (number, to) in [
            "10.2.0.2:9",
            "10.2.0.9:9",
            "192.0.2.1:9",
            "203.0.113.9:9",
            "10.3.0.1:9",
            "[2001:db8:2::2]:9",
            "[2001:db8:9::2]:9",
            "[2001:db8::1]:9",
        ]
        .into_iter()
        .enumerate()
        {
            router.host_sends(to, 100 + number);
        }
        let taken = router.read();
        let ends: Vec<_> = taken
            .iter()
            .map(|(packet, _)| {
                let sliced = SlicedPacket::from_ip(packet).unwrap();
                let limit = match sliced.net.unwrap() {
                    NetSlice::Ipv4(ip) => {
                        let header = ip.header().to_header();
                        assert_eq!(header.header_checksum, header.calc_header_checksum());
                        header.time_to_live
                    }
                    NetSlice::Ipv6(ip) => ip.header().hop_limit(),
                    NetSlice::Arp(_) => panic!("ARP"),
                };
                let Some(TransportSlice::Udp(udp)) = sliced.transport else {
                    panic!("not UDP");
                };
                (limit, udp.payload().len())
            })
            .collect();
        assert_eq!(ends, [(63, 100), (63, 104), (63, 105)]);
        assert_eq!(router.handle.stats().taken(), 3);
        assert!(router.handle.stats().left() >= 5);
    });
}

#[test]
fn a_train_comes_whole_with_what_is_left_to_do() {
    isolated(|| {
        let mut router = router(NativeIo::Packet);
        router.host.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            set_option_to(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, &1000i32).unwrap();
            for len in [30_000, 500, 1400] {
                let payload: Vec<u8> = (0..len).map(|n| (n / 1000) as u8).collect();
                socket.send_to(&payload, "10.2.0.2:9").unwrap();
            }
        });
        let taken = router.read();
        let whole: Vec<_> = taken
            .iter()
            .map(|(packet, offload)| (packet.len(), offload.segmentation))
            .collect();
        let train = Segmentation::Udp { size: 1000 };
        assert_eq!(
            whole,
            [(30_028, train), (528, Segmentation::None), (1428, train)]
        );
        for (packet, offload) in &taken {
            let spot = offload.checksum.expect("a host on a cable leaves it to us");
            assert_eq!((spot.start, spot.offset), (20, 6));
            let payload = packet[28..].iter().enumerate();
            assert!(
                payload
                    .clone()
                    .all(|(n, byte)| usize::from(*byte) == n / 1000)
            );
        }
        assert_eq!(router.handle.stats().lost(), 0);
    });
}

#[test]
fn a_packet_at_its_last_hop_is_answered_and_not_taken() {
    isolated(|| {
        let mut router = router(NativeIo::Packet);
        let answer = router.host.run(|| {
            let witness = rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::RAW,
                Some(rustix::net::ipproto::ICMP),
            )
            .unwrap();
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_ttl(1).unwrap();
            socket.send_to(&[1; 40], "10.2.0.2:9").unwrap();
            witness
        });
        assert!(router.read().is_empty());
        let mut room = [0; 1500];
        let (len, _) = rustix::net::recv(&answer, &mut room[..], rustix::net::RecvFlags::DONTWAIT)
            .expect("the host is told");
        let told = &room[..len];
        assert_eq!(
            (told[9], &told[12..16], told[20]),
            (1, &[192, 0, 2, 1][..], 11)
        );
        assert_eq!(told[28..32], [0x45, 0, 0, 68], "its packet is quoted");
        assert_eq!(router.handle.stats().expired(), 1);
    });
}

fn opened_packets_reach_the_neighbour(way: NativeIo) {
    let router = router(way);
    let socket = router
        .host
        .run(|| UdpSocket::bind("192.0.2.2:7000").unwrap());
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let mut sink = router.sink(Some(router.neighbour()));
    let packets: Vec<_> = (0..200).map(|n| opened(64, 20 + n)).collect();
    let sent = deliver(&mut sink, &packets);
    assert_eq!((sent.packets, sent.failed), (200, 0));
    for n in 0..200 {
        let mut room = [0; 1500];
        let (len, from) = socket.recv_from(&mut room).unwrap();
        assert_eq!((len, from), (20 + n, "10.2.0.2:9".parse().unwrap()));
    }
    let stats = router.handle.stats();
    assert_eq!((stats.direct(), stats.native_io()), (200, way));
}

#[test]
fn opened_packets_reach_the_neighbour_by_a_packet_socket() {
    isolated(|| opened_packets_reach_the_neighbour(NativeIo::Packet));
}

#[test]
fn opened_packets_reach_the_neighbour_by_xdp() {
    isolated(|| opened_packets_reach_the_neighbour(NativeIo::Xdp));
}

/// A train of 3 full segments and a shorter one, as the inbound direction makes them.
fn train() -> Vec<u8> {
    let mut packet = opened(64, 3500);
    let sum = Sum::new()
        .pseudo_header([10, 2, 0, 2].into(), [192, 0, 2, 2].into(), 17, 3508)
        .unfinished();
    packet[26..28].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn deliver_train(sink: &mut EthernetSink, packet: &[u8]) -> crate::io::Sent {
    let (head, payload) = packet.split_at(28);
    let (one, others) = payload.split_at(1000);
    let delivery = Delivery {
        offload: Offload {
            segmentation: Segmentation::Udp { size: 1000 },
            checksum: Some(ChecksumSpot {
                start: 20,
                offset: 6,
            }),
        },
        pieces: &[head, one, others].map(IoSlice::new),
    };
    sink.deliver(&[delivery]).unwrap()
}

#[test]
fn a_train_reaches_the_neighbour_whole_or_cut() {
    isolated(|| {
        let router = router(NativeIo::Packet);
        let socket = router
            .host
            .run(|| UdpSocket::bind("192.0.2.2:7000").unwrap());
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        let mut whole = router.sink(Some(router.neighbour()));
        // No neighbour is known: each of its packets goes through the raw socket.
        let mut cut = router.sink(None);
        for (sink, calls) in [(&mut whole, 1), (&mut cut, 4)] {
            let sent = deliver_train(sink, &train());
            assert_eq!((sent.packets, sent.failed, sent.calls), (4, 0, calls));
            for len in [1000, 1000, 1000, 500] {
                let mut room = [0; 4000];
                let (got, from) = socket.recv_from(&mut room).unwrap();
                assert_eq!((got, from), (len, "10.2.0.2:9".parse().unwrap()));
                assert!(room[..got].iter().all(|byte| *byte == 5));
            }
        }
        assert_eq!(router.handle.stats().direct(), 4);
        assert_eq!(router.handle.stats().by_raw_socket(), 4);
    });
}

#[test]
fn without_a_known_neighbour_the_kernel_looks_for_it() {
    isolated(|| {
        let router = router(NativeIo::Packet);
        let socket = router
            .host
            .run(|| UdpSocket::bind("192.0.2.2:7000").unwrap());
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        let sent = deliver(&mut router.sink(None), &[opened(64, 33)]);
        assert_eq!(sent.packets, 1);
        assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 33);
        assert_eq!(router.handle.stats().by_raw_socket(), 1);
    });
}

#[test]
fn nothing_leaves_by_another_device_or_for_this_host() {
    isolated(|| {
        let router = router(NativeIo::Packet);
        let elsewhere = NextHop {
            device: 1,
            ..router.neighbour()
        };
        let sent = deliver(&mut router.sink(Some(elsewhere)), &[opened(64, 33)]);
        assert_eq!((sent.packets, sent.failed), (0, 1));
        let mut ours = opened(64, 33);
        ours[19] = 1;
        ipsec::wire::ip::v4::finish_checksum(&mut ours);
        let sent = deliver(&mut router.sink(Some(router.neighbour())), &[ours]);
        assert_eq!((sent.packets, sent.failed), (0, 1));
        // Without a neighbour it would go through the kernel, which would deliver it here.
        let mut local = opened(64, 33);
        local[16..20].copy_from_slice(&LOCAL_BY_ROUTE);
        ipsec::wire::ip::v4::finish_checksum(&mut local);
        let sent = deliver(&mut router.sink(None), &[local]);
        assert_eq!((sent.packets, sent.failed), (0, 1));
        let stats = router.handle.stats();
        assert_eq!((stats.undeliverable(), stats.by_raw_socket()), (3, 0));
    });
}

#[test]
fn senders_beyond_the_tunnel_get_icmp_errors_for_hop_limit_and_size() {
    isolated(|| {
        let mut router = router(NativeIo::Packet);
        let narrow = NextHop {
            mtu: 600,
            ..router.neighbour()
        };
        let mut sink = router.sink(Some(narrow));
        let sent = deliver(&mut sink, &[opened(1, 33), opened(64, 1000)]);
        assert_eq!((sent.failed, sent.too_big), (1, 1));
        let icmp_reports: Vec<_> = router
            .read()
            .into_iter()
            .map(|(packet, _)| packet)
            .collect();
        assert_eq!(icmp_reports.len(), 2);
        for (echo, (kind, code)) in icmp_reports.iter().zip([(11, 0), (3, 4)]) {
            assert_eq!(echo[12..20], [192, 0, 2, 1, 10, 2, 0, 2]);
            assert_eq!((echo[20], echo[21]), (kind, code));
        }
        assert_eq!(icmp_reports[1][26..28], 600u16.to_be_bytes());
    });
}

#[test]
fn what_may_be_cut_is_cut_to_the_device() {
    isolated(|| {
        let router = router(NativeIo::Packet);
        let socket = router
            .host
            .run(|| UdpSocket::bind("192.0.2.2:7000").unwrap());
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        let narrow = NextHop {
            mtu: 600,
            ..router.neighbour()
        };
        let mut packet = opened(64, 1400);
        ipsec::wire::ip::v4::allow_fragments(&mut packet);
        let sent = deliver(&mut router.sink(Some(narrow)), &[packet]);
        assert_eq!((sent.packets, sent.failed), (1, 0));
        assert_eq!(socket.recv(&mut [0; 1500]).unwrap(), 1400);
        assert_eq!(router.handle.stats().direct(), 3);
    });
}

#[test]
fn reports_are_limited_and_a_full_queue_takes_no_more() {
    let icmp_reports = IcmpReports::default();
    let start = Instant::now();
    let granted = (0..1000).filter(|_| icmp_reports.may_report(start)).count();
    assert_eq!(granted, MAX_ICMP_ERRORS_PER_SECOND as usize);
    assert!(icmp_reports.may_report(start + Duration::from_secs(2)));
    (0..1000).for_each(|n| icmp_reports.send(vec![n as u8]));
    let waiting = std::iter::from_fn(|| icmp_reports.next()).count();
    assert_eq!(waiting, super::icmp_reports::MAX_QUEUED_REPORTS);
}
