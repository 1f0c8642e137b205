use super::super::memory::{NullSink, Repeat};
use super::*;
use crate::train::{ChecksumSpot, Segmentation};
use etherparse::{Ipv4Slice, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use std::io::IoSlice;

/// A file in memory that stays readable.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    /// The packets of the records.
    fn packets(&self) -> Vec<Vec<u8>> {
        let file = self.0.lock().unwrap();
        let mut rest = &file[24..];
        let mut packets = Vec::new();
        while !rest.is_empty() {
            let len = u32::from_le_bytes(*rest[8..].first_chunk().unwrap()) as usize;
            packets.push(rest[16..16 + len].to_vec());
            rest = &rest[16 + len..];
        }
        packets
    }
}

fn tap(most: usize) -> (Capture, Memory) {
    let memory = Memory::default();
    (
        Capture::into_writer(Box::new(memory.clone()), most).unwrap(),
        memory,
    )
}

/// A TCP super-packet of 2500 bytes for segments of 1000, its checksum unfinished.
fn train() -> (Vec<u8>, Offload) {
    let payload: Vec<u8> = (0..2500u32).map(|n| n as u8).collect();
    let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 5000, 100);
    let mut packet = Vec::new();
    builder.write(&mut packet, &payload).unwrap();
    let checksum = Some(ChecksumSpot {
        start: 20,
        offset: 16,
    });
    (
        packet,
        Offload {
            segmentation: Segmentation::Tcp { size: 1000 },
            checksum,
        },
    )
}

fn outer() -> Outer {
    Outer {
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
        protocol: 17,
        ports: Some((4500, 4500)),
        traffic_class: 1,
        dont_fragment: true,
        hop_limit: 64,
        emitted_len: 0,
    }
}

fn assert_segments(packets: &[Vec<u8>]) {
    let lens: Vec<_> = packets.iter().map(Vec::len).collect();
    assert_eq!(lens, [1040, 1040, 540]);
    for (n, packet) in packets.iter().enumerate() {
        let sliced = SlicedPacket::from_ip(packet).unwrap();
        let Some(NetSlice::Ipv4(ip)) = sliced.net else {
            panic!("no IPv4")
        };
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else {
            panic!("no TCP")
        };
        assert_eq!(tcp.sequence_number(), 5000 + 1000 * n as u32);
        assert_eq!(
            tcp.checksum(),
            tcp.to_header()
                .calc_checksum_ipv4(&ip.header().to_header(), tcp.payload())
                .unwrap()
        );
    }
}

#[test]
fn a_train_is_captured_as_the_packets_that_it_stands_for() {
    let (bytes, offload) = train();
    let (tap, memory) = tap(100);
    let mut source = tap.on(Repeat::of(vec![(bytes.clone(), offload)]));
    let mut buffer = ReceiveBuffer::with_capacity(1 << 16, 1);
    assert_eq!(
        PlaintextSource::fill(&mut source, &mut buffer, Wait::Poll).unwrap(),
        1
    );
    assert_segments(&memory.packets());

    let (tap, memory) = super::tests::tap(100);
    let pieces = [IoSlice::new(&bytes[..40]), IoSlice::new(&bytes[40..])];
    let delivery = Delivery {
        offload,
        pieces: &pieces,
    };
    assert_eq!(
        PlaintextSink::deliver(&mut tap.on(NullSink), &[delivery])
            .unwrap()
            .packets,
        3
    );
    assert_segments(&memory.packets());
}

#[test]
fn protected_packets_are_captured_behind_their_outer_header_on_both_ways() {
    let bytes = [0x42; 250];
    let (tap, memory) = tap(100);
    let burst = Burst {
        outer: outer(),
        bytes: &bytes,
        stride: 100,
    };
    assert_eq!(
        ProtectedSink::deliver(&mut tap.on(NullSink), &[burst])
            .unwrap()
            .packets,
        3
    );
    let arrival = Arrival {
        outer: outer(),
        stride: 100,
    };
    let mut source = tap.on(Repeat::of(vec![(bytes.to_vec(), arrival)]));
    let mut buffer = ReceiveBuffer::with_capacity(1 << 16, 1);
    ProtectedSource::fill(&mut source, &mut buffer, Wait::Poll).unwrap();
    let packets = memory.packets();
    assert_eq!(packets.len(), 6);
    for (packet, len) in packets.iter().zip([100, 100, 50].repeat(2)) {
        let ip = Ipv4Slice::from_slice(packet).unwrap();
        assert_eq!(usize::from(ip.header().total_len()), 28 + len);
        assert_eq!(Outer::payload(packet).unwrap(), (outer(), 28..28 + len));
    }
}

#[test]
fn a_capture_ends_at_its_bound_and_traffic_goes_on() {
    let (tap, memory) = tap(5);
    let mut sink = tap.on(NullSink);
    for _ in 0..10 {
        let burst = Burst {
            outer: outer(),
            bytes: &[1; 300],
            stride: 100,
        };
        assert_eq!(
            ProtectedSink::deliver(&mut sink, &[burst]).unwrap().packets,
            3
        );
    }
    assert_eq!((tap.count(), memory.packets().len()), (5, 5));
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_traffic() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let tap = Capture::into_writer(Box::new(Full(300)), 100).unwrap();
    let mut sink = tap.on(NullSink);
    for _ in 0..5 {
        let burst = Burst {
            outer: outer(),
            bytes: &[1; 100],
            stride: 100,
        };
        assert_eq!(
            ProtectedSink::deliver(&mut sink, &[burst]).unwrap().packets,
            1
        );
    }
    assert_eq!(
        tap.take_failure().unwrap().kind(),
        io::ErrorKind::StorageFull
    );
    assert!(tap.take_failure().is_none());
    assert_eq!(tap.count(), 1);
}

#[test]
fn an_independent_reader_reads_the_file() {
    let path = std::env::temp_dir().join(format!("dataplane-tap-{}.pcap", std::process::id()));
    let tap = Capture::create(&path, 10).unwrap();
    let again = Capture::create(&path, 10);
    let burst = Burst {
        outer: outer(),
        bytes: &[0x42; 200],
        stride: 100,
    };
    ProtectedSink::deliver(&mut tap.on(NullSink), &[burst]).unwrap();
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(again.is_err(), "a capture never replaces a file");

    let mut reader = pcap_file::pcap::PcapReader::new(&file[..]).unwrap();
    assert_eq!(reader.header().datalink, pcap_file::DataLink::RAW);
    let mut count = 0;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        let age = SystemTime::UNIX_EPOCH.elapsed().unwrap() - packet.timestamp;
        assert!(age < Duration::from_secs(60));
        assert_eq!((packet.orig_len, packet.data.len()), (128, 128));
        count += 1;
    }
    assert_eq!(count, 2);
}
