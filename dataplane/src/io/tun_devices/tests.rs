use super::*;
use crate::io::MAX_ITEM_BYTES;
use crate::io::namespaces::{command, isolated, warnings};
use crate::io::tun::TunOptions;
use std::io::IoSlice;
use std::net::UdpSocket;

const SECOND: Wait = Wait::AtMost(Duration::from_secs(1));

/// A device with the address 10.9.0.1, into which 10.9.0.2 is routed.
fn with_addresses() -> Tun {
    with_addresses_as("first0", 0)
}

/// A device with the address 10.9.`net`.1, into which 10.9.`net`.2 is routed.
fn with_addresses_as(name: &str, net: u8) -> Tun {
    let tun = Tun::open(&TunOptions::named(name), &warnings().0).unwrap();
    command(&format!("ip addr add 10.9.{net}.1/24 dev {name}"));
    tun
}

/// How many packets the kernel has got from each device.
fn got_by_kernel<const N: usize>(names: [&str; N]) -> [u64; N] {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    names.map(|name| {
        let line = table.lines().map(str::trim_start);
        let mut line = line.filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let counts = line
            .next()
            .unwrap_or_else(|| panic!("no {name} in {table}"));
        counts.split_whitespace().nth(1).unwrap().parse().unwrap()
    })
}

/// Sends a packet of so many bytes of UDP into the device of a net.
fn says_into(net: u8, bytes: usize) {
    let socket = UdpSocket::bind(format!("10.9.{net}.1:0")).unwrap();
    socket
        .send_to(&vec![7; bytes], format!("10.9.{net}.2:9"))
        .unwrap();
}

/// The device and length of each item of so many calls that read one each; 0 bytes where nothing is there.
fn read_one_by_one(source: &mut TunDevicesSource, calls: usize) -> Vec<(u32, usize)> {
    let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 1);
    let read = |_| {
        buffer.clear();
        source.fill(&mut buffer, Wait::Poll).unwrap();
        let len = buffer.items.first().map_or(0, |(range, _)| range.len());
        (source.interface(), len)
    };
    (0..calls).map(read).collect()
}

/// What comes out of the source until a packet of this length does.
fn awaits(source: &mut TunDevicesSource, len: usize) -> bool {
    let mut buffer = ReceiveBuffer::with_capacity(4 * MAX_ITEM_BYTES, 64);
    for _ in 0..20 {
        buffer.clear();
        source.fill(&mut buffer, SECOND).unwrap();
        if buffer.items.iter().any(|(range, _)| range.len() == len) {
            return true;
        }
    }
    false
}

fn says(bytes: usize) {
    says_into(0, bytes);
}

#[test]
fn the_first_device_may_be_deleted_and_made_again_while_its_ends_are_in_use() {
    isolated(|| {
        let first = with_addresses();
        let tunnels = TunDevices::default();
        let (source, sink) = first.ends().next().unwrap();
        let mut source = tunnels.source(source, Waker::new().unwrap());
        let mut sink = tunnels.sink(sink);
        says(100);
        assert!(
            awaits(&mut source, 128),
            "the control failed: the first device carries nothing"
        );
        assert_eq!(first.name_now().as_deref(), Some("first0"));

        command("ip link del first0");
        assert_eq!(first.name_now(), None);
        let mut buffer = ReceiveBuffer::with_capacity(4 * MAX_ITEM_BYTES, 64);
        for _ in 0..3 {
            let wait = Wait::AtMost(Duration::from_millis(1));
            assert_eq!(source.fill(&mut buffer, wait).unwrap(), 0);
        }
        let packet = [0x45; 20];
        let delivery = || [IoSlice::new(&packet)];
        let deliver = |sink: &mut TunDevicesSink, pieces: &[IoSlice<'_>]| {
            let offload = Offload::default();
            sink.deliver(&[Delivery { offload, pieces }])
        };
        assert!(deliver(&mut sink, &delivery()).is_err());

        tunnels.set(FIRST_DEVICE, Some(Arc::new(with_addresses())));
        says(200);
        assert!(
            awaits(&mut source, 228),
            "the second device carries nothing"
        );
        deliver(&mut sink, &delivery()).unwrap();
    });
}

const NAMES: [&str; 4] = ["first0", "vpn0", "vpn1", "in0"];

/// The first device, two of associations and one that is only written to, each under its number.
fn four_devices(tunnels: &TunDevices) -> Tun {
    let first = with_addresses();
    for (name, number, net) in [("vpn0", 1, 1), ("vpn1", 2, 2), ("in0", IN_ONLY_DEVICE, 3)] {
        tunnels.set(number, Some(Arc::new(with_addresses_as(name, net))));
    }
    first
}

#[test]
fn what_is_read_bears_the_number_of_its_device_and_each_has_its_turn() {
    isolated(|| {
        let tunnels = TunDevices::default();
        let first = four_devices(&tunnels);
        let (source, _) = first.ends().next().unwrap();
        let mut source = tunnels.source(source, Waker::new().unwrap());
        for round in 0..3 {
            for net in 0..4 {
                says_into(net, 100 * (usize::from(net) + 1) + round);
            }
        }
        let mut read = read_one_by_one(&mut source, 9);
        // However much waits on one device, the others are read in between.
        for turns in read.chunks(3) {
            let mut numbers: Vec<_> = turns.iter().map(|(number, _)| *number).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, [0, 1, 2], "{read:?}");
        }
        read.sort_unstable();
        let lengths = (0..3).flat_map(|number: u32| {
            let first = 100 * (number as usize + 1) + 28;
            (first..first + 3).map(move |len| (number, len))
        });
        // Packets sent into the fourth device are not read.
        assert!(read.into_iter().eq(lengths));
        assert!(
            read_one_by_one(&mut source, 8)
                .iter()
                .all(|(_, len)| *len == 0)
        );
    });
}

#[test]
fn what_is_delivered_by_a_number_comes_out_of_its_device_and_of_no_other() {
    isolated(|| {
        let tunnels = TunDevices::default();
        let first = four_devices(&tunnels);
        let (_, sink) = first.ends().next().unwrap();
        let mut sink = tunnels.sink(sink);
        let packet = [0x45; 20];
        let pieces = [IoSlice::new(&packet)];
        let mut deliver = |number, times| {
            let offload = Offload::default();
            let pieces = &pieces;
            let deliveries = vec![Delivery { offload, pieces }; times];
            sink.deliver_by(number, &deliveries)
                .map(|sent| sent.packets)
        };
        let mut expected = got_by_kernel(NAMES);
        for (place, number) in [FIRST_DEVICE, 1, 2, IN_ONLY_DEVICE].into_iter().enumerate() {
            assert_eq!(deliver(number, place + 1).unwrap(), place as u64 + 1);
            expected[place] += place as u64 + 1;
            assert_eq!(got_by_kernel(NAMES), expected, "number {number}");
        }
        for number in [3, FWD_ONLY_DEVICE] {
            let error = deliver(number, 1).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(got_by_kernel(NAMES), expected);

        tunnels.set(1, None);
        assert_eq!(deliver(1, 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(deliver(2, 1).unwrap(), 1);
    });
}

#[test]
fn a_device_that_another_program_deletes_is_released_and_the_others_continue() {
    isolated(|| {
        let tunnels = TunDevices::default();
        let first = four_devices(&tunnels);
        let (source, _) = first.ends().next().unwrap();
        let mut source = tunnels.source(source, Waker::new().unwrap());
        command("ip link del vpn0");
        for net in [0, 2] {
            says_into(net, 100);
        }
        let mut read = read_one_by_one(&mut source, 6);
        read.retain(|(_, len)| *len > 0);
        read.sort_unstable();
        assert_eq!(read, [(0, 128), (2, 128)]);
        assert!(tunnels.get(1).is_none());
        assert!(tunnels.get(2).is_some());
    });
}
