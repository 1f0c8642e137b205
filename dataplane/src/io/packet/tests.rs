use super::egress::Egress;
use super::probe::device_index;
use super::*;
use crate::io::namespaces::{self, Namespace, along_cable, cable, command, isolated, warnings};
use crate::io::raw::{self, NativeProtocol};
use crate::io::socket_sets::SourceSet;
use crate::io::{
    Arrival, Burst, Family, MAX_ITEM_BYTES, PmtuCache, ProtectedSink, ProtectedSource,
    ReceiveBuffer, SocketOptions, Wait, Waker,
};
use ipsec::tunnel::Outer;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BOTH: [NativeIo; 2] = [NativeIo::Packet, NativeIo::Xdp];

/// Next hops that a test writes down.
struct Known {
    hop: Option<NextHop>,
    changed: Arc<AtomicBool>,
}

impl NextHops for Known {
    fn is_ours(&mut self, _: IpAddr) -> bool {
        false
    }

    fn changed(&mut self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    fn find(&mut self, _: IpAddr, _: IpAddr) -> Option<NextHop> {
        self.hop
    }
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + n / 251) as u8).collect()
}

/// Uses `ip`, because `/sys` shows the devices of the namespace in which it was mounted.
fn link_of(device: &str) -> (u32, [u8; 6]) {
    let output = std::process::Command::new("ip")
        .args(["-o", "link", "show", "dev", device])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let index = text.split(':').next().unwrap().trim().parse().unwrap();
    let address = text
        .split_whitespace()
        .skip_while(|word| *word != "link/ether")
        .nth(1)
        .unwrap();
    let bytes: Vec<_> = address
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    (index, bytes.try_into().unwrap())
}

struct Left {
    sink: PacketSink,
    changed: Arc<AtomicBool>,
    paths: PmtuCache,
    heard: Arc<std::sync::Mutex<Vec<String>>>,
}

/// A sink on the left end of the cable that knows the right one.
fn left(way: NativeIo, family: Family, other: &Namespace) -> Left {
    let ((device, local_mac), (_, neighbour_mac)) =
        (link_of("left"), other.run(|| link_of("right")));
    let hop = NextHop {
        device,
        mtu: 1500,
        local_mac,
        neighbour_mac,
    };
    let (warn, heard) = warnings();
    let (paths, changed) = (PmtuCache::default(), Arc::new(AtomicBool::new(false)));
    let options = SocketOptions::new(paths.clone(), warn.clone());
    let (_, raw) = raw::open(family, NativeProtocol::Esp, &options).unwrap();
    let known = Known {
        hop: Some(hop),
        changed: changed.clone(),
    };
    Left {
        sink: PacketSink::new(raw, way, Box::new(known), warn),
        changed,
        paths,
        heard,
    }
}

fn claim(family: Family) -> RingAddresses {
    RingAddresses::of([along_cable(family).destination])
}

/// The right end: a ring and a raw socket beside it, as a gateway has them.
fn right(family: Family, other: &Namespace) -> (SourceSet, RingHandle, raw::RawHandle) {
    other.run(|| {
        let (device, _) = link_of("right");
        let ring = PacketSource::open(device, 1500, &claim(family)).unwrap();
        let (warn, _) = warnings();
        let options = SocketOptions::new(PmtuCache::default(), warn);
        let (source, _) = raw::open(family, NativeProtocol::Esp, &options).unwrap();
        let (handle, raw) = (ring.handle(), source.handle());
        raw.exclude_ring_packets(&BTreeSet::from([device]), &claim(family))
            .unwrap();
        let all = SourceSet::of(
            vec![Box::new(source), Box::new(ring)],
            Waker::new().unwrap(),
        );
        (all, handle, raw)
    })
}

/// What came, and as what, headers taken off.
fn receive(source: &mut dyn ProtectedSource, bytes: usize) -> (Vec<u8>, Vec<Arrival>) {
    let (mut got, mut arrivals) = (Vec::new(), Vec::new());
    namespaces::receive(source, |item, arrival| {
        let headers = usize::from(arrival.outer.emitted_len);
        assert_eq!(headers, arrival.outer.len());
        for packet in item.chunks(arrival.stride) {
            got.extend_from_slice(&packet[headers..]);
        }
        let outer = Outer {
            emitted_len: 0,
            ..arrival.outer
        };
        arrivals.push(Arrival {
            outer,
            stride: arrival.stride - headers,
        });
        got.len() >= bytes
    });
    (got, arrivals)
}

fn nothing_more_comes(source: &mut dyn ProtectedSource) {
    let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 64);
    let soon = Wait::AtMost(Duration::from_millis(30));
    while source.fill(&mut buffer, soon).unwrap() > 0 {}
    assert!(buffer.items.is_empty(), "{:?}", buffer.items);
}

fn burst(outer: Outer, bytes: &[u8], stride: usize) -> Burst<'_> {
    Burst {
        outer,
        bytes,
        stride,
    }
}

fn trains_pass(family: Family) {
    let other = Namespace::new();
    cable(&other, 1500);
    let (mut source, handle, _) = right(family, &other);
    let bytes = noise(1400 * 3000 + 333);
    for way in BOTH {
        let mut left = left(way, family, &other);
        for piece in bytes.chunks(1400 * 100) {
            let sent = left
                .sink
                .deliver(&[burst(along_cable(family), piece, 1400)])
                .unwrap();
            assert_eq!(sent.packets, piece.len().div_ceil(1400) as u64, "{sent:?}");
            let (got, arrivals) = receive(&mut source, piece.len());
            assert!(got == piece, "{way}: {} of {}", got.len(), piece.len());
            assert!(
                arrivals
                    .iter()
                    .all(|arrival| arrival.outer == along_cable(family))
            );
            assert!(
                arrivals.len() <= 4,
                "equal packets come as runs: {arrivals:?}"
            );
        }
        assert_eq!(left.sink.stats().native_io(), way);
        assert_eq!(left.sink.stats().by_raw_socket(), 0);
        assert!(left.heard.lock().unwrap().is_empty());
    }
    nothing_more_comes(&mut source);
    assert_eq!((handle.lost(), handle.malformed()), (0, 0));
}

#[test]
fn thousands_of_packets_arrive_once_in_order_and_equal_over_v4() {
    isolated(|| trains_pass(Family::V4));
}

#[test]
fn thousands_of_packets_arrive_once_in_order_and_equal_over_v6() {
    isolated(|| trains_pass(Family::V6));
}

#[test]
fn a_raw_socket_reads_what_leaves_directly_and_finds_every_header_field() {
    isolated(|| {
        for (family, way) in [(Family::V4, NativeIo::Xdp), (Family::V6, NativeIo::Packet)] {
            let other = Namespace::new();
            cable(&other, 1500);
            let (warn, _) = warnings();
            let options = SocketOptions::new(PmtuCache::default(), warn);
            let (mut witness, _) =
                other.run(|| raw::open(family, NativeProtocol::Esp, &options).unwrap());
            let mut left = left(way, family, &other);
            for (class, hop_limit) in [(0xb8, 3), (1, 64), (3, 255)] {
                let outer = Outer {
                    traffic_class: class,
                    hop_limit,
                    ..along_cable(family)
                };
                let bytes = noise(700);
                left.sink.deliver(&[burst(outer, &bytes, 700)]).unwrap();
                let (got, arrivals) = receive(&mut witness, 700);
                assert!(got == bytes);
                assert_eq!(arrivals[0].outer, outer);
            }
            command("ip link del left");
        }
    });
}

fn fragments_are_joined(family: Family) {
    let other = Namespace::new();
    cable(&other, 1500);
    let (mut source, handle, _) = right(family, &other);
    let mut left = left(NativeIo::Xdp, family, &other);
    let outer = Outer {
        dont_fragment: false,
        ..along_cable(family)
    };
    let bytes = noise(4000 * 5);
    // Too large for the link: these go through the raw socket, and the kernel cuts them.
    let sent = left.sink.deliver(&[burst(outer, &bytes, 4000)]).unwrap();
    assert_eq!((sent.packets, sent.too_big), (5, 0), "{sent:?}");
    assert_eq!(left.sink.stats().by_raw_socket(), 5);
    let (got, arrivals) = receive(&mut source, bytes.len());
    assert!(got == bytes);
    assert!(arrivals.iter().all(|arrival| arrival.stride == 4000));
    nothing_more_comes(&mut source);
    assert_eq!(handle.malformed(), 0);
}

#[test]
fn fragments_are_joined_once_over_v4() {
    isolated(|| fragments_are_joined(Family::V4));
}

#[test]
fn fragments_are_joined_once_over_v6() {
    isolated(|| fragments_are_joined(Family::V6));
}

/// More than one buffer takes wait in the ring, as after a long pass of a slow cipher on the other side.
fn a_flood_of_fragments_waits_for_room(family: Family) {
    const PACKET: usize = 8000;
    let other = Namespace::new();
    cable(&other, 1500);
    let (mut source, handle, _) = right(family, &other);
    let mut left = left(NativeIo::Xdp, family, &other);
    let outer = Outer {
        dont_fragment: false,
        ..along_cable(family)
    };
    let bytes = noise(PACKET * 150);
    for packets in bytes.chunks(PACKET * 5) {
        let sent = left.sink.deliver(&[burst(outer, packets, PACKET)]);
        assert_eq!(sent.unwrap().packets, 5);
    }
    let (got, _) = receive(&mut source, bytes.len());
    assert_eq!(got.len(), bytes.len());
    assert!(got == bytes);
    nothing_more_comes(&mut source);
    assert_eq!((handle.lost(), handle.malformed()), (0, 0));
}

#[test]
fn a_flood_of_fragments_waits_for_room_over_v4() {
    isolated(|| a_flood_of_fragments_waits_for_room(Family::V4));
}

#[test]
fn a_flood_of_fragments_waits_for_room_over_v6() {
    isolated(|| a_flood_of_fragments_waits_for_room(Family::V6));
}

#[test]
fn what_is_too_big_is_refused_as_by_a_raw_socket_and_the_mtu_is_learnt() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        let mut left = left(NativeIo::Xdp, Family::V4, &other);
        let bytes = noise(1490 * 3);
        let outer = along_cable(Family::V4);
        let sent = left.sink.deliver(&[burst(outer, &bytes, 1490)]).unwrap();
        assert_eq!((sent.too_big, sent.packets), (3, 0), "{sent:?}");
        assert_eq!(left.paths.mtu(outer.destination), Some(1500));
    });
}

#[test]
fn a_way_that_changes_is_asked_for_again_and_without_one_the_raw_socket_sends() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        let (mut source, ..) = right(Family::V4, &other);
        let mut left = left(NativeIo::Packet, Family::V4, &other);
        let bytes = noise(100);
        let hello = [burst(along_cable(Family::V4), &bytes, 100)];
        left.sink.deliver(&hello).unwrap();
        assert_eq!(left.sink.stats().direct(), 1);
        // Another card in the same host: what goes to the old address is lost.
        other.run(|| command("ip link set right address 02:00:00:00:00:99"));
        left.sink.next_hops = Box::new(Known {
            hop: None,
            changed: left.changed.clone(),
        });
        left.changed.store(true, Ordering::Relaxed);
        std::thread::sleep(2 * sink::CHANGE_CHECK_INTERVAL);
        command("ip neigh flush dev left");
        command("ping -q -c 1 -W 5 192.0.2.2");
        left.sink.deliver(&hello).unwrap();
        assert_eq!(left.sink.stats().by_raw_socket(), 1);
        assert_eq!(receive(&mut source, 200).0.len(), 200);
    });
}

#[test]
fn a_device_that_vanishes_ends_nothing_and_its_ring_can_be_let_go() {
    isolated(|| {
        for way in BOTH {
            let other = Namespace::new();
            cable(&other, 1500);
            let (mut source, handle, raw) = right(Family::V4, &other);
            let mut left = left(way, Family::V4, &other);
            let bytes = noise(1000);
            let hello = [burst(along_cable(Family::V4), &bytes, 500)];
            assert_eq!(left.sink.deliver(&hello).unwrap().packets, 2);
            assert_eq!(receive(&mut source, 1000).0.len(), 1000);
            command("ip link set left down");
            let sent = left.sink.deliver(&hello).unwrap();
            assert_eq!(sent.packets + sent.failed + sent.no_buffer, 2, "{sent:?}");
            command("ip link del left");
            nothing_more_comes(&mut source);
            assert_eq!(left.sink.deliver(&hello).unwrap().packets, 0);
            handle.close();
            raw.exclude_ring_packets(&BTreeSet::new(), &RingAddresses::default())
                .unwrap();
            nothing_more_comes(&mut source);
        }
    });
}

#[test]
fn a_device_that_comes_up_again_fills_its_ring_again() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        let (mut source, ..) = right(Family::V4, &other);
        other.run(|| command("ip link set right down"));
        nothing_more_comes(&mut source);
        other.run(|| command("ip link set right up"));
        let mut left = left(NativeIo::Packet, Family::V4, &other);
        let bytes = noise(300);
        for _ in 0..100 {
            left.sink
                .deliver(&[burst(along_cable(Family::V4), &bytes, 300)])
                .unwrap();
            if receive_soon(&mut source) {
                return;
            }
        }
        panic!("nothing came");
    });
}

fn receive_soon(source: &mut dyn ProtectedSource) -> bool {
    let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 64);
    let soon = Wait::AtMost(Duration::from_millis(50));
    source.fill(&mut buffer, soon).unwrap() > 0
}

#[test]
fn a_header_with_a_wrong_checksum_is_counted_and_dropped() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        let (mut source, handle, _) = right(Family::V4, &other);
        let ((device, ours), (_, theirs)) = (link_of("left"), other.run(|| link_of("right")));
        let mut exit = Egress::open(NativeIo::Packet, device, 1500).unwrap();
        let mut rest = [8, 0].to_vec();
        rest.resize(2 + 20 + 40, 7);
        along_cable(Family::V4).emit(40, 1, &mut rest[2..]);
        let ends: LinkAddresses = [theirs, ours].concat().try_into().unwrap();
        exit.send_one(&ends, &rest).unwrap();
        rest[2 + 8] ^= 1;
        exit.send_one(&ends, &rest).unwrap();
        let (got, _) = receive(&mut source, 40);
        assert_eq!(got, [7; 40]);
        nothing_more_comes(&mut source);
        assert_eq!(handle.malformed(), 1);
    });
}

#[test]
fn a_queue_that_was_just_left_can_be_taken_again() {
    isolated(|| {
        let loopback = device_index(c"lo").unwrap();
        for _ in 0..20 {
            Egress::open(NativeIo::Xdp, loopback, 1500).unwrap();
        }
    });
}

#[test]
fn the_probe_finds_each_kind_and_falls_back_with_a_warning() {
    isolated(|| {
        let (warn, heard) = warnings();
        assert_eq!(probe(NativeIo::Auto, &warn), NativeIo::Xdp);
        for way in BOTH {
            assert_eq!(probe(way, &warn), way);
        }
        assert_eq!(probe(NativeIo::Raw, &warn), NativeIo::Raw);
        assert!(heard.lock().unwrap().is_empty());
        // Another socket has the device's queue.
        let _taken = Egress::open(NativeIo::Xdp, device_index(c"lo").unwrap(), 1500).unwrap();
        assert_eq!(probe(NativeIo::Auto, &warn), NativeIo::Packet);
        assert!(heard.lock().unwrap()[0].contains("`xdp` does not work"));
        command("ip link set lo down");
        assert_eq!(probe(NativeIo::Auto, &warn), NativeIo::Raw);
    });
}

/// A packet of this protocol, perhaps a fragment.
fn packet(family: Family, protocol: u8, is_fragment: bool, last: u8) -> Vec<u8> {
    let mut bytes = vec![0; 80];
    match family {
        Family::V4 => {
            (bytes[0], bytes[9]) = (0x45, protocol);
            bytes[6] = if is_fragment { 0x20 } else { 0x40 };
            bytes[16..20].copy_from_slice(&[192, 0, 2, last]);
        }
        Family::V6 => {
            (bytes[0], bytes[6], bytes[40]) = (0x60, protocol, protocol);
            if is_fragment {
                bytes[6] = 44;
            }
            bytes[24..40]
                .copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
    }
    bytes
}

#[test]
fn a_ring_takes_exactly_what_the_raw_socket_beside_it_leaves() {
    let claim = RingAddresses::of(
        ["192.0.2.2", "192.0.2.3", "2001:db8::2", "2001:db8::4"].map(|text| text.parse().unwrap()),
    );
    let (ring, devices) = (claim.for_ring(), BTreeSet::from([4, 9]));
    for (family, ethertype) in [(Family::V4, 0x0800), (Family::V6, 0x86dd)] {
        let raw = claim.for_raw(&devices, family == Family::V4);
        for (protocol, is_fragment, last) in
            (0..=255u8).flat_map(|protocol| (0..16).map(move |n| (protocol, n % 2 == 1, n / 2)))
        {
            let packet = packet(family, protocol, is_fragment, last);
            let claimed: &[u8] = if family == Family::V4 {
                &[2, 3]
            } else {
                &[2, 4]
            };
            let ours = protocol == 50 && claimed.contains(&last);
            let about = format!("{family:?} {protocol} {is_fragment} {last}");
            assert_eq!(ring.accepts(&packet, 4, ethertype), ours, "{about}");
            assert_eq!(raw.accepts(&packet, 4, ethertype), !ours, "{about}");
            assert_eq!(raw.accepts(&packet, 9, ethertype), !ours, "{about}");
            assert!(raw.accepts(&packet, 5, ethertype), "{about}");
            assert!(!ring.accepts(&packet, 4, 0x0806), "{about}");
        }
    }
}
