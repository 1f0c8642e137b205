use super::*;
use crate::io::namespaces::{Namespace, cable, isolated, warnings};
use crate::io::raw::{self, NativeProtocol};
use crate::io::udp::{self, UdpOptions};
use crate::io::{Family, MAX_ITEM_BYTES, PmtuCache, SocketOptions};
use ipsec::tunnel::Outer;

const SECOND: Wait = Wait::AtMost(Duration::from_secs(1));

/// Everything that a gateway opens: both families, encapsulated and native.
fn open_all(waker: &Waker) -> (SourceSet, SinkSet) {
    let options = SocketOptions::new(PmtuCache::default(), warnings().0);
    let mut sources: Vec<Box<dyn PollableSource>> = Vec::new();
    let mut sinks: Vec<Box<dyn SelectiveSink>> = Vec::new();
    for family in [Family::V4, Family::V6] {
        let (source, sink) = udp::open(family, &UdpOptions::new(options.clone())).unwrap();
        sources.push(Box::new(source));
        sinks.push(Box::new(sink));
        let (source, sink) = raw::open(family, NativeProtocol::Esp, &options).unwrap();
        sources.push(Box::new(source));
        sinks.push(Box::new(sink));
    }
    (SourceSet::of(sources, waker.clone()), SinkSet::to(sinks))
}

fn outer(v6: bool, encapsulated: bool) -> Outer {
    let (source, destination) = if v6 {
        ("2001:db8::1", "2001:db8::2")
    } else {
        ("192.0.2.1", "192.0.2.2")
    };
    Outer {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol: if encapsulated { 17 } else { 50 },
        ports: encapsulated.then_some((4500, 4500)),
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 64,
        emitted_len: 0,
    }
}

/// Outer headers from and to this host.
fn loopback_outer() -> Outer {
    let here = "127.0.0.1".parse().unwrap();
    Outer {
        source: here,
        destination: here,
        ..outer(false, true)
    }
}

#[test]
fn parcels_of_every_kind_find_their_socket_and_all_come_out_of_one_source() {
    isolated(|| {
        let other = Namespace::new();
        cable(&other, 1500);
        let waker = Waker::new().unwrap();
        let (_, mut sink) = open_all(&waker);
        let (mut source, _) = other.run(|| open_all(&waker));
        let bytes = [0x11; 1200];
        let mut outers: Vec<Outer> = (0..8).map(|n| outer(n & 1 != 0, n & 2 != 0)).collect();
        outers.sort_by_key(|outer| outer.protocol);
        let bursts: Vec<_> = outers
            .iter()
            .map(|&outer| Burst {
                outer,
                bytes: &bytes,
                stride: 400,
            })
            .collect();
        assert_eq!(sink.deliver(&bursts).unwrap().packets, 24);
        let mut buffer = ReceiveBuffer::with_capacity(16 * MAX_ITEM_BYTES, 64);
        let mut got = std::collections::HashMap::new();
        while got.values().sum::<usize>() < 24 && source.fill(&mut buffer, SECOND).unwrap() > 0 {
            for (range, arrival) in &buffer.items {
                let kind = (arrival.outer.destination, arrival.outer.protocol);
                *got.entry(kind).or_insert(0) += range.len().div_ceil(arrival.stride);
            }
            buffer.clear();
        }
        assert_eq!(got.len(), 4);
        assert!(got.values().all(|&packets| packets == 6), "{got:?}");
    });
}

#[test]
fn a_burst_that_fits_no_socket_is_counted_and_stops_nothing() {
    isolated(|| {
        let waker = Waker::new().unwrap();
        let (mut source, mut sink) = open_all(&waker);
        let here = loopback_outer();
        let strange = Outer {
            protocol: 51,
            ports: None,
            ..here
        };
        let bursts = [strange, here, strange];
        let bursts = bursts.map(|outer| Burst {
            outer,
            bytes: &[1; 100],
            stride: 50,
        });
        let sent = sink.deliver(&bursts).unwrap();
        assert_eq!((sent.packets, sent.failed), (2, 4));
        let mut buffer = ReceiveBuffer::with_capacity(4 * MAX_ITEM_BYTES, 64);
        assert!(source.fill(&mut buffer, SECOND).unwrap() > 0);
    });
}

#[test]
fn a_wake_ends_the_sleep_of_all_sockets_at_once() {
    isolated(|| {
        let waker = Waker::new().unwrap();
        let (mut source, _sink) = open_all(&waker);
        waker.wake();
        let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 4);
        let started = std::time::Instant::now();
        let long = Wait::AtMost(Duration::from_secs(60));
        assert_eq!(source.fill(&mut buffer, long).unwrap(), 0);
        assert!(started.elapsed() < Duration::from_secs(30));
    });
}

#[test]
fn packets_that_found_no_room_come_with_the_next_call_although_no_socket_is_readable() {
    isolated(|| {
        let waker = Waker::new().unwrap();
        let (mut source, mut sink) = open_all(&waker);
        let here = loopback_outer();
        let bytes = [1; 40_000];
        let burst = Burst {
            outer: here,
            bytes: &bytes,
            stride: 40_000,
        };
        sink.deliver(&[burst, burst, burst]).unwrap();
        let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 4);
        for _ in 0..3 {
            buffer.clear();
            assert_eq!(source.fill(&mut buffer, SECOND).unwrap(), 1);
        }
    });
}

#[test]
fn sockets_that_join_while_the_reader_sleeps_are_read_and_sent_through() {
    isolated(|| {
        let mut source = SourceSet::of(Vec::new(), Waker::new().unwrap());
        let mut sink = SinkSet::to(Vec::new());
        let here = loopback_outer();
        let burst = Burst {
            outer: here,
            bytes: &[1; 100],
            stride: 100,
        };
        assert_eq!(sink.deliver(&[burst]).unwrap().failed, 1);

        let (sources, sinks) = (source.adder(), sink.adder());
        let reader = std::thread::spawn(move || {
            let mut buffer = ReceiveBuffer::with_capacity(4 * MAX_ITEM_BYTES, 64);
            let long = Wait::AtMost(Duration::from_secs(60));
            // One sleep ends because a socket was added, the next because a packet arrived.
            while source.fill(&mut buffer, long).unwrap() == 0 {}
            buffer.items.len()
        });
        let options = UdpOptions::new(SocketOptions::new(PmtuCache::default(), warnings().0));
        let (new_source, new_sink) = udp::open(Family::V4, &options).unwrap();
        sources.add(Box::new(new_source));
        sinks.add(Box::new(new_sink));
        assert_eq!(sink.deliver(&[burst]).unwrap().packets, 1);
        assert_eq!(reader.join().unwrap(), 1);
    });
}
