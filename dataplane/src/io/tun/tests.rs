use super::source::is_mld_report;
use super::{Tun, TunOffloads, TunOptions, TunSink, TunSource};
use crate::io::memory::ALL_TRAINS;
use crate::io::namespaces::{Namespace, await_local, command, isolated, warnings};
use crate::io::{
    Delivery, MAX_ITEM_BYTES, OpenError, PlaintextSink, PlaintextSource, ReceiveBuffer, Wait, Waker,
};
use crate::train::{ChecksumSpot, Offload, Segmentation, TrainKinds};
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SECOND: Wait = Wait::AtMost(Duration::from_secs(1));

fn open(options: &TunOptions) -> (Tun, Vec<String>) {
    let (warn, warned) = warnings();
    let tun = Tun::open(options, &warn).unwrap();
    let warned = warned.lock().unwrap().clone();
    (tun, warned)
}

fn refused(options: &TunOptions) -> OpenError {
    Tun::open(options, &warnings().0).unwrap_err()
}

/// A device with addresses 10.9.0.`number` and 2001:db8:9::`number`.
fn with_addresses(options: &TunOptions, number: u8) -> Tun {
    let (tun, warned) = open(options);
    assert_eq!(warned, [""; 0]);
    command(&format!("ip addr add 10.9.0.{number}/24 dev {}", tun.name));
    command(&format!(
        "ip addr add 2001:db8:9::{number}/64 dev {} nodad",
        tun.name
    ));
    await_local(&format!("2001:db8:9::{number}"));
    tun
}

/// What passed between two devices.
#[derive(Default)]
struct Counts {
    packets: AtomicUsize,
    tcp_trains: AtomicUsize,
    udp_trains: AtomicUsize,
    stop: AtomicBool,
}

/// Carries everything that comes out of one device into another, in pieces of odd sizes, until `stop` is set.
fn carry(mut source: TunSource, mut sink: TunSink, counts: &Counts) {
    let mut buffer = ReceiveBuffer::with_capacity(4 * MAX_ITEM_BYTES, 64);
    while !counts.stop.load(Ordering::Relaxed) {
        buffer.clear();
        source
            .fill(&mut buffer, Wait::AtMost(Duration::from_millis(20)))
            .unwrap();
        for (range, offload) in &buffer.items {
            let pieces = in_pieces(&buffer.bytes[range.clone()]);
            let delivery = Delivery {
                offload: *offload,
                pieces: &pieces,
            };
            let sent = sink.deliver(&[delivery]).unwrap();
            assert_eq!(
                (sent.packets, sent.calls),
                (delivery.packets(), 1),
                "{sent:?} {offload:?}"
            );
            match offload.segmentation {
                Segmentation::Tcp { .. } => counts.tcp_trains.fetch_add(1, Ordering::Relaxed),
                Segmentation::Udp { .. } => counts.udp_trains.fetch_add(1, Ordering::Relaxed),
                Segmentation::None => 0,
            };
            counts
                .packets
                .fetch_add(sent.packets as usize, Ordering::Relaxed);
        }
    }
}

/// Headers split in their middle, then pieces of 1448 bytes as a train would have.
fn in_pieces(packet: &[u8]) -> Vec<IoSlice<'_>> {
    let (head, rest) = packet.split_at(packet.len().min(21));
    std::iter::once(head)
        .chain(rest.chunks(1448))
        .map(IoSlice::new)
        .collect()
}

/// Two devices in two namespaces with everything carried between them, while `body` runs here.
fn joined(options: &TunOptions, body: impl FnOnce(&Namespace)) -> Counts {
    let other = Namespace::new();
    let counts = Counts::default();
    let here = with_addresses(options, 1);
    let there = other.run(|| with_addresses(options, 2));
    let ((from_here, to_here), (from_there, to_there)) =
        (here.ends().next().unwrap(), there.ends().next().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| carry(from_here, to_there, &counts));
        scope.spawn(|| carry(from_there, to_here, &counts));
        let stop = StopAtEnd(&counts.stop);
        body(&other);
        drop(stop);
    });
    counts
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends bytes from here to an address of the other namespace over TCP; they must arrive equal.
fn tcp_carries(other: &Namespace, address: &str, len: usize) {
    let bytes: Vec<u8> = (0..len as u32)
        .flat_map(|n| (n / 4).to_be_bytes())
        .take(len)
        .collect();
    let listener = other.run(|| TcpListener::bind((address, 7000)).unwrap());
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = TcpStream::connect((address, 7000)).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
    });
    assert!(got == bytes);
}

#[test]
fn real_tcp_passes_as_super_packets_over_both_families() {
    isolated(|| {
        let small = TunOptions {
            mtu: 1500,
            ..TunOptions::named("espt%d")
        };
        let counts = joined(&small, |other| {
            tcp_carries(other, "10.9.0.2", 3_000_000);
            tcp_carries(other, "2001:db8:9::2", 3_000_000);
        });
        let (packets, trains) = (
            counts.packets.load(Ordering::Relaxed),
            counts.tcp_trains.load(Ordering::Relaxed),
        );
        assert!(
            packets > 6_000_000 / 1500 && trains > 6_000_000 / 65_536,
            "{packets} {trains}"
        );
        assert!(packets / trains > 5, "{packets} packets in {trains} trains");
    });
}

#[test]
fn a_device_made_again_carries_the_same_trains_without_another_probe() {
    isolated(|| {
        let (tun, _) = open(&TunOptions::named("espt0"));
        let known = tun.offloads;
        assert!(known.read.tcp_v4 && known.read.udp && known.write.tcp_v4);
        drop(tun);
        let again = TunOptions {
            mtu: 1500,
            known_offloads: Some(known),
            ..TunOptions::named("espt%d")
        };
        let counts = joined(&again, |other| {
            tcp_carries(other, "10.9.0.2", 1_000_000);
            tcp_carries(other, "2001:db8:9::2", 1_000_000);
        });
        let (packets, trains) = (
            counts.packets.load(Ordering::Relaxed),
            counts.tcp_trains.load(Ordering::Relaxed),
        );
        assert!(packets / trains > 5, "{packets} packets in {trains} trains");
        // What does not work is not switched on again.
        let lossy = TunOptions {
            known_offloads: Some(TunOffloads {
                read: TrainKinds::default(),
                ..known
            }),
            mtu: 1500,
            ..TunOptions::named("espt%d")
        };
        let counts = joined(&lossy, |other| tcp_carries(other, "10.9.0.2", 100_000));
        assert_eq!(counts.tcp_trains.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn without_trains_the_same_tcp_passes_packet_by_packet() {
    isolated(|| {
        let plain = TunOptions {
            mtu: 1500,
            offloads: false,
            ..TunOptions::named("espt0")
        };
        let counts = joined(&plain, |other| tcp_carries(other, "10.9.0.2", 1_000_000));
        assert_eq!(counts.tcp_trains.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn udp_segmented_by_its_sender_passes_as_a_train_and_arrives_as_datagrams() {
    isolated(|| {
        let counts = joined(
            &TunOptions {
                mtu: 1500,
                ..TunOptions::named("espt0")
            },
            |other| {
                for (from, to) in [
                    ("10.9.0.1:0", "10.9.0.2:7001"),
                    ("[2001:db8:9::1]:0", "[2001:db8:9::2]:7001"),
                ] {
                    let receiver = other.run(|| UdpSocket::bind(to).unwrap());
                    receiver
                        .set_read_timeout(Some(Duration::from_secs(5)))
                        .unwrap();
                    let sender = UdpSocket::bind(from).unwrap();
                    set_segment(&sender, 1000);
                    let bytes: Vec<u8> = (0..9_500u32).map(|n| (n / 7) as u8).collect();
                    sender.send_to(&bytes, to).unwrap();
                    for expected in bytes.chunks(1000) {
                        let mut room = [0; 2000];
                        let len = receive(&receiver, &mut room).unwrap();
                        assert!(room[..len] == *expected);
                    }
                }
            },
        );
        assert_eq!(counts.udp_trains.load(Ordering::Relaxed), 2);
    });
}

/// Receives one datagram, again after a signal: other tests run in the same process.
fn receive(socket: &UdpSocket, room: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(room) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn set_segment(socket: &UdpSocket, size: libc::c_int) {
    let (room, len) = ((&raw const size).cast(), size_of_val(&size) as u32);
    // SAFETY: the kernel reads one int.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            room,
            len,
        )
    };
    assert_eq!(set, 0);
}

#[test]
fn a_new_device_is_up_with_the_largest_mtu_and_every_offload_passes_its_probe() {
    isolated(|| {
        let (tun, warned) = open(&TunOptions::named("espt0"));
        let all = TunOffloads {
            checksum: true,
            read: ALL_TRAINS,
            write: ALL_TRAINS,
        };
        assert_eq!((tun.offloads, warned), (all, vec![]));
        let output = std::process::Command::new("ip")
            .args(["link", "show", "up"])
            .output()
            .unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(
            shown.contains("espt0") && shown.contains("mtu 65535"),
            "{shown}"
        );
        assert!(shown.contains(&format!("{}: espt0", tun.index)), "{shown}");
    });
}

#[test]
fn what_the_kernel_refuses_is_counted_and_does_not_stop_the_rest() {
    isolated(|| {
        let tun = with_addresses(&TunOptions::named("espt0"), 1);
        let (_, mut sink) = tun.ends().next().unwrap();
        let receiver = UdpSocket::bind("10.9.0.1:7002").unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let good = udp_packet();
        let impossible = Offload {
            segmentation: Segmentation::Tcp { size: 0 },
            checksum: Some(ChecksumSpot {
                start: 60_000,
                offset: 16,
            }),
        };
        let empty = Delivery {
            offload: Offload::default(),
            pieces: &[],
        };
        let pieces = [IoSlice::new(&good)];
        let bad = Delivery {
            offload: impossible,
            pieces: &pieces,
        };
        let fine = Delivery {
            offload: Offload::default(),
            pieces: &pieces,
        };
        let sent = sink.deliver(&[bad, empty, fine]).unwrap();
        assert_eq!((sent.packets, sent.calls), (1, 3), "{sent:?}");
        assert_eq!(sent.failed + sent.packets, bad.packets() + 2);
        assert_eq!(receive(&receiver, &mut [0; 100]).unwrap(), 5);
    });
}

/// From 10.9.0.7 to 10.9.0.1 port 7002, five bytes, without UDP checksum.
fn udp_packet() -> Vec<u8> {
    use etherparse::PacketBuilder;
    let builder = PacketBuilder::ipv4([10, 9, 0, 7], [10, 9, 0, 1], 64).udp(7002, 7002);
    let mut packet = Vec::new();
    builder.write(&mut packet, b"hello").unwrap();
    packet
}

#[test]
fn an_intake_that_is_full_leaves_the_rest_for_the_next_call() {
    isolated(|| {
        let tun = with_addresses(&TunOptions::named("espt0"), 1);
        let (mut source, _) = tun.ends().next().unwrap();
        let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
        let mut buffer = ReceiveBuffer::with_capacity(4 * MAX_ITEM_BYTES, 3);
        for n in 0..10u8 {
            sender.send_to(&[n; 10], "10.9.0.2:7003").unwrap();
        }
        let mut got = Vec::new();
        while got.len() < 10 {
            buffer.clear();
            assert!(source.fill(&mut buffer, SECOND).unwrap() <= 3 && !buffer.items.is_empty());
            // The kernel's own IPv6 packets may be among them.
            let ours = buffer
                .items
                .iter()
                .filter(|(range, _)| buffer.bytes[range.start] == 0x45);
            got.extend(ours.map(|(range, _)| buffer.bytes[range.end - 1]));
        }
        assert_eq!(got, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(
            source
                .fill(&mut ReceiveBuffer::with_capacity(100, 3), SECOND)
                .is_err()
        );
    });
}

#[test]
fn a_wake_ends_the_sleep_of_the_source() {
    isolated(|| {
        let (tun, _) = open(&TunOptions::named("espt0"));
        command("sysctl -qw net.ipv6.conf.espt0.disable_ipv6=1");
        let waker = Waker::new().unwrap();
        let mut source = tun.ends().next().unwrap().0.woken_by(waker.clone());
        let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 3);
        while source
            .fill(&mut buffer, Wait::AtMost(Duration::from_millis(20)))
            .unwrap()
            > 0
        {
            buffer.clear();
        }
        let started = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            assert_eq!(
                source
                    .fill(&mut buffer, Wait::AtMost(Duration::from_secs(60)))
                    .unwrap(),
                0
            );
        });
        assert!(started.elapsed() < Duration::from_secs(30));
    });
}

#[test]
fn a_name_in_use_is_refused() {
    isolated(|| {
        let options = TunOptions::named("espt0");
        let _first = open(&options);
        let refusal = refused(&options);
        assert!(
            matches!(&refusal, OpenError::NameTaken { name } if name == "espt0"),
            "{refusal}"
        );
        command("ip link add espt1 type veth peer name espt2");
        assert!(matches!(
            refused(&TunOptions::named("espt1")),
            OpenError::NameTaken { .. }
        ));
        let several = TunOptions {
            queues: 2,
            ..TunOptions::named("espt3")
        };
        let _second = open(&several);
        assert!(matches!(refused(&several), OpenError::NameTaken { .. }));
        for bad in ["", "a/b", "sixteen-messages-", "a b", ".."] {
            assert!(
                matches!(refused(&TunOptions::named(bad)), OpenError::BadName { .. }),
                "{bad}"
            );
        }
    });
}

#[test]
fn a_persistent_device_is_attached_to_and_survives() {
    isolated(|| {
        command("ip tuntap add espt0 mode tun vnet_hdr");
        command("ip tuntap add espt1 mode tun vnet_hdr multi_queue");
        for (name, queues) in [("espt0", 1), ("espt1", 3)] {
            let options = TunOptions {
                queues,
                ..TunOptions::named(name)
            };
            let (tun, _) = open(&options);
            assert_eq!(tun.ends().count(), queues);
            drop(tun);
            // A child that another test is just starting may keep the queues open for a moment longer.
            let send_timeout = Instant::now() + Duration::from_secs(10);
            let again = || Tun::open(&options, &warnings().0);
            let mut second = again();
            while second.is_err() && Instant::now() < send_timeout {
                std::thread::sleep(Duration::from_millis(5));
                second = again();
            }
            drop(second.unwrap());
            command(&format!("ip link show {name}"));
        }
    });
}

#[test]
fn without_privilege_the_refusal_names_what_is_missing() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    isolated(|| {
        std::thread::spawn(|| {
            let none = CapabilitySet::empty();
            // Only this thread gives them up.
            set_capabilities(
                None,
                CapabilitySets {
                    effective: none,
                    permitted: none,
                    inheritable: none,
                },
            )
            .unwrap();
            let refusal = refused(&TunOptions::named("espt0"));
            assert!(
                matches!(refusal, OpenError::NotPermitted { .. }),
                "{refusal}"
            );
            assert!(refusal.to_string().contains("CAP_NET_ADMIN"));
        })
        .join()
        .unwrap();
    });
}

#[test]
fn a_device_that_is_taken_away_is_an_error_not_silence() {
    isolated(|| {
        let (tun, _) = open(&TunOptions::named("espt0"));
        let (mut source, mut sink) = tun.ends().next().unwrap();
        command("ip link del espt0");
        let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 3);
        assert!(source.fill(&mut buffer, SECOND).is_err());
        let packet = udp_packet();
        let pieces = [IoSlice::new(&packet)];
        let delivery = Delivery {
            offload: Offload::default(),
            pieces: &pieces,
        };
        assert!(sink.deliver(&[delivery]).is_err());
    });
}

#[test]
fn only_the_kernels_own_mld_reports_are_recognized() {
    // As Linux sends it when a device with IPv6 comes up on a router.
    let mut report = [0; 76];
    report[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 36, 0, 1]);
    report[24..40].copy_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16]);
    report[40..56].copy_from_slice(&[0x3a, 0, 5, 2, 0, 0, 1, 0, 0x8f, 0, 0x6e, 0x8a, 0, 0, 0, 1]);
    assert!(is_mld_report(&report));
    let with = |at: usize, byte| {
        let mut packet = report;
        packet[at] = byte;
        is_mld_report(&packet)
    };
    assert!(!with(0, 0x45) && !with(6, 58) && !with(40, 17));
    assert!(!with(7, 64), "it may pass a router");
    assert!(!with(8, 0xfd), "a host that has an address has sent it");
    assert!(!with(48, 128), "an echo request");
    for len in 0..49 {
        assert!(!is_mld_report(&report[..len]));
    }
}
