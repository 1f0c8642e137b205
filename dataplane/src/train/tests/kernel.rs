//! Comparison with the kernel's segmentation: its segments of a train are, byte for byte, those of `train::segments`,
//! and it segments a merged train into the original packets.
//!
//! ```text
//!   train ──► device `espk0` ──► the kernel forwards ──► device `espk1`, which takes single packets only ──► segments
//! ```
//!
//! Forwarding decrements the hop limit, as [`forwarded`] does to what is expected; nothing else may differ.

use super::inverse::{atomic, stream};
use super::meaning::{Meaning, meaning};
use super::{ALL, cut, merge, plain, segmentation};
use crate::io::namespaces::{command, isolated, warnings};
use crate::io::tun::{Tun, TunOptions, TunSink, TunSource};
use crate::io::{Delivery, MAX_ITEM_BYTES, PlaintextSink, PlaintextSource, ReceiveBuffer, Wait};
use crate::train::{ChecksumSpot, Offload};
use ipsec::packet::Outline;
use ipsec::wire::checksum::Sum;
use proptest::prelude::*;
use std::cell::RefCell;
use std::io::IoSlice;
use std::time::{Duration, Instant};

/// A super-packet as a kernel hands it over: its checksum field holds the pseudo-header's sum.
fn train(whole: &Meaning, size: u16) -> (Vec<u8>, Offload) {
    let mut bytes = whole.bytes();
    let outline = Outline::read(&bytes).unwrap();
    let start = outline.header_len;
    let offset = if whole.udp { 6 } else { 16 };
    let (source, destination) = (outline.source, outline.destination);
    let sum = Sum::new()
        .pseudo_header(source, destination, outline.protocol, bytes.len() - start)
        .unfinished();
    bytes[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
    let spot = ChecksumSpot {
        start: start as u16,
        offset: offset as u16,
    };
    let offload = Offload {
        checksum: Some(spot),
        ..segmentation(whole.udp, size)
    };
    (bytes, offload)
}

/// What a router makes of a packet.
fn forwarded(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
        return packet;
    }
    packet[8] -= 1;
    packet[10..12].fill(0);
    let header_len = usize::from(packet[0] & 15) * 4;
    let checksum = Sum::new().bytes(&packet[..header_len]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Two devices with the kernel between them; they last as long as these ends of them.
struct Kernel {
    sink: TunSink,
    source: TunSource,
}

impl Kernel {
    fn between_devices() -> Self {
        let (warn, warned) = warnings();
        let whole = Tun::open(&TunOptions::named("espk0"), &warn).unwrap();
        let single = TunOptions {
            offloads: false,
            ..TunOptions::named("espk1")
        };
        let single = Tun::open(&single, &warn).unwrap();
        assert_eq!(*warned.lock().unwrap(), [""; 0]);
        command("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        command("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.espk0.rp_filter=0");
        command("ip route add 192.0.2.0/24 dev espk1");
        command("ip -6 route add fd00::/8 dev espk1");
        let (_, sink) = whole.ends().next().unwrap();
        let (source, _) = single.ends().next().unwrap();
        Self { sink, source }
    }

    /// What comes out for what was put in, of which `count` packets are expected.
    fn segments(&mut self, bytes: &[u8], offload: Offload, count: usize) -> Vec<Vec<u8>> {
        let pieces = [IoSlice::new(bytes)];
        let delivery = Delivery {
            offload,
            pieces: &pieces,
        };
        let sent = self.sink.deliver(&[delivery]).unwrap();
        assert_eq!(sent.packets, count as u64, "{sent:?} {offload:?}");
        let mut got = Vec::new();
        // The kernel's own packets may come first, while another processor holds the lock of the device's queue.
        let latest = Instant::now() + Duration::from_secs(10);
        while got.len() < count {
            let left = latest.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} came out", got.len());
            self.read(Wait::AtMost(left), &mut got);
        }
        self.read(Wait::Poll, &mut got);
        got
    }

    /// Reads the packets that are there now and keeps those of the test; the kernel sends others of its own.
    fn read(&mut self, wait: Wait, got: &mut Vec<Vec<u8>>) {
        let mut intake = ReceiveBuffer::with_capacity(4 * MAX_ITEM_BYTES, 256);
        self.source.fill(&mut intake, wait).unwrap();
        let all = intake.items.iter();
        let all = all.map(|(range, offload)| (&intake.bytes[range.clone()], offload));
        for (packet, offload) in all.filter(|(packet, _)| is_ours(packet)) {
            assert_eq!(*offload, Offload::default());
            got.push(packet.to_vec());
        }
    }
}

/// Whether it goes to where [`Meaning`] sends.
fn is_ours(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        4 => packet[16..20] == [192, 0, 2, 1],
        _ => packet[24..40] == [0xfd; 16],
    }
}

fn agree(kernel: &mut Kernel, whole: &Meaning, size: u16) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (bytes, offload) = train(whole, size);
    let ours: Vec<_> = cut(&bytes, offload).into_iter().map(forwarded).collect();
    let theirs = kernel.segments(&bytes, offload, ours.len());
    (theirs, ours)
}

/// Every flag that segments treat differently, numbers that start over, every way for the last segment to end.
#[test]
fn the_kernel_cuts_trains_at_their_edges_into_the_same_bytes() {
    isolated(|| {
        let mut kernel = Kernel::between_devices();
        for shape in 0..32 {
            let (v6, udp, flags) = (shape & 1 > 0, shape & 2 > 0, shape >> 2);
            let whole = Meaning {
                v6,
                udp,
                identification: 0xfffe,
                sequence: u32::MAX - 700,
                df: flags & 1 > 0,
                psh: flags & 1 > 0,
                fin: flags & 2 > 0,
                cwr: flags & 4 > 0,
                ece: flags & 1 == 0,
                timestamp: (flags & 2 > 0).then_some(77),
                ..plain()
            };
            for len in [501, 999, 1000, 1001, 4000] {
                let payload = (0..len).map(|at| (at / 3) as u8).collect();
                let whole = Meaning {
                    payload,
                    ..whole.clone()
                };
                let (theirs, ours) = agree(&mut kernel, &whole, 500);
                assert_eq!(theirs, ours, "{whole:?}");
            }
        }
    });
}

#[test]
fn the_kernel_cuts_any_train_into_the_same_bytes() {
    isolated(|| {
        let kernel = RefCell::new(Kernel::between_devices());
        proptest!(|(whole in meaning(20_000), size in 8u16..3000)| {
            // At most 60 segments, which every kernel takes; and at least two, or it is no train.
            let size = size.max((whole.payload.len() / 60) as u16 + 1);
            prop_assume!(whole.payload.len() > size.into());
            let (theirs, ours) = agree(&mut kernel.borrow_mut(), &whole, size);
            prop_assert_eq!(theirs, ours);
        });
    });
}

/// The identification of datagrams with DF has no meaning (RFC 6864 4.1): packets with a constant one are merged, and
/// the kernel's segmentation then increments it. Nothing else of a packet changes.
#[test]
fn the_kernel_takes_our_trains_apart_into_what_was_merged() {
    isolated(|| {
        let kernel = RefCell::new(Kernel::between_devices());
        let trains = RefCell::new(0);
        proptest!(|(packets in stream(3))| {
            for (bytes, offload, members) in merge(&packets, ALL) {
                *trains.borrow_mut() += usize::from(members.len() > 1);
                let theirs = kernel.borrow_mut().segments(&bytes, offload, members.len());
                let merged = members.iter().map(|&member| packets[member as usize].clone());
                let merged: Vec<_> = merged.map(forwarded).map(atomic).collect();
                let theirs: Vec<_> = theirs.into_iter().map(atomic).collect();
                prop_assert_eq!(theirs, merged);
            }
        });
        assert!(trains.into_inner() > 100, "hardly anything was merged");
    });
}
