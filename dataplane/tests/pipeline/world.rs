//! Two gateways without devices: databases from setkey text, numbered packets, sources and sinks in memory.

#![allow(
    dead_code,
    reason = "each of the test programs that share this uses its part"
)]

use arc_swap::ArcSwap;
use dataplane::buffers::BatchSize;
use dataplane::counters::{Counters, PacketCounts};
use dataplane::inbound::{Inbound, InboundPump};
use dataplane::io::{
    Arrival, Burst, Delivery, PlaintextSink, PlaintextSource, PmtuCache, ProtectedSink,
    ProtectedSource, ReceiveBuffer, Sent, Wait,
};
use dataplane::iv::{IvSource, SEED_LEN};
use dataplane::notice::Hook;
use dataplane::outbound::{Outbound, OutboundPump};
use dataplane::path_mtu::PathMtus;
use dataplane::pipeline::event::Event;
use dataplane::pipeline::pump::LaneConfig;
use dataplane::train::segments::Segments;
use dataplane::train::{Offload, Segmentation, TrainKinds};
use etherparse::PacketBuilder;
use ipsec::database::{Database, Snapshot};
use ipsec::packet::Outline;
use ipsec::setkey::{Forwarding, NoNames, compile};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const ALL_TRAINS: TrainKinds = TrainKinds {
    tcp_v4: true,
    tcp_v6: true,
    udp: true,
};

/// Key material of fixed bytes: `bytes("ab", 20)` is 0xababab….
pub fn bytes(byte: &str, count: usize) -> String {
    format!("0x{}", byte.repeat(count))
}

pub fn gcm() -> String {
    format!("-E aes-gcm-16 {}", bytes("a1", 20))
}

pub fn cbc_sha1() -> String {
    format!(
        "-E aes-cbc {} -A hmac-sha1 {}",
        bytes("b2", 16),
        bytes("c3", 20)
    )
}

/// The databases that a text describes. The same text gives the same databases every time.
pub fn database(text: &str) -> Database {
    let mut database = Database::default();
    apply(&mut database, text);
    database
}

pub fn apply(database: &mut Database, text: &str) {
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames)
        .unwrap_or_else(|problems| panic!("{}", problems[0].render("text", text.as_bytes())));
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        random
    };
    let now = 1_800_000_000;
    database.apply(&lowered.commands, now, &mut random).unwrap();
}

pub fn published(text: &str) -> Arc<ArcSwap<Snapshot>> {
    Arc::new(ArcSwap::new(database(text).snapshot()))
}

/// One tunnel from 10.1.0.0/16 (and fd01::/16) to 10.2.0.0/16 (and fd02::/16), as its left or right end sees it.
pub fn tunnel(suite: &str, protocol: &str, right: bool) -> String {
    let (out, back) = if right { ("in", "out") } else { ("out", "in") };
    format!(
        "add 192.0.2.1 192.0.2.2 {protocol} 0x1001 -m tunnel -r 1024 {suite};
         add 192.0.2.2 192.0.2.1 {protocol} 0x1002 -m tunnel -r 1024 {suite};
         spdadd 10.1.0.0/16 10.2.0.0/16 any -P {out} ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;
         spdadd fd01::/16 fd02::/16 any -P {out} ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;
         spdadd 10.2.0.0/16 10.1.0.0/16 any -P {back} ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;
         spdadd fd02::/16 fd01::/16 any -P {back} ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;"
    )
}

/// An ESP tunnel with AH around it, with the packets of [`tunnel`] inside, as its sending (`out`) or receiving (`in`)
/// end sees it.
pub fn bundle(direction: &str) -> String {
    let (esp, ah) = (cbc_sha1(), format!("-A hmac-sha1 {}", bytes("d4", 20)));
    let templates = "esp/tunnel/192.0.2.1-192.0.2.2/require ah/transport//require";
    format!(
        "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel {esp};
         add 192.0.2.1 192.0.2.2 ah 0x1002 -m transport {ah};
         spdadd 10.1.0.0/16 10.2.0.0/16 any -P {direction} ipsec {templates};
         spdadd fd01::/16 fd02::/16 any -P {direction} ipsec {templates};"
    )
}

/// ESP, then AH, both in transport mode between the two hosts of [`datagram`] and [`tcp`].
pub fn transport_bundle(direction: &str) -> String {
    let (esp, ah) = (gcm(), format!("-A hmac-sha2-256 {}", bytes("d4", 32)));
    let between = |(source, destination)| {
        format!(
            "add {source} {destination} esp 0x1001 -m transport {esp};
             add {source} {destination} ah 0x1002 -m transport {ah};
             spdadd {source} {destination} any -P {direction} ipsec esp/transport//require ah/transport//require;"
        )
    };
    [("10.1.0.1", "10.2.0.1"), ("fd01::", "fd02::")]
        .map(between)
        .concat()
}

/// IPComp and then ESP, both in transport mode between the two hosts of [`datagram`] and [`tcp`].
pub fn compressed(direction: &str) -> String {
    let between = |(source, destination)| {
        format!(
            "add {source} {destination} ipcomp 0x1001 -m transport -C deflate;
             add {source} {destination} esp 0x1002 -m transport {};
             spdadd {source} {destination} any -P {direction} ipsec ipcomp/transport//require esp/transport//require;",
            gcm()
        )
    };
    [("10.1.0.1", "10.2.0.1"), ("fd01::", "fd02::")]
        .map(between)
        .concat()
}

/// Repeatable chance.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// Fewer than `bound` bytes, perhaps none.
    pub fn noise(&mut self, bound: u64) -> Vec<u8> {
        let len = self.below(bound) as usize;
        self.bytes(len)
    }

    /// Makes the packet shorter or longer, changes one byte, or replaces it by random bytes.
    pub fn spoil(&mut self, mut packet: Vec<u8>) -> Vec<u8> {
        match self.below(4) {
            0 => packet.truncate(self.below(packet.len() as u64) as usize),
            1 => packet = self.noise(300),
            2 => {
                let at = self.below(packet.len() as u64) as usize;
                packet[at] ^= 1 + self.below(255) as u8;
            }
            _ => packet.extend(self.bytes(16)),
        }
        packet
    }
}

/// A UDP datagram that carries its number and `len` bytes in all.
pub fn datagram(number: u64, len: usize) -> Vec<u8> {
    let mut payload = vec![0x5a; len.max(8)];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    let builder = PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64).udp(1000, 2000);
    let mut packet = Vec::new();
    builder.write(&mut packet, &payload).unwrap();
    packet
}

/// The number of a packet made by [`datagram`].
pub fn number_of(packet: &[u8]) -> u64 {
    u64::from_be_bytes(packet[28..36].try_into().unwrap())
}

/// A TCP packet of IPv4 or IPv6.
pub fn tcp(v6: bool, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let (mut from, mut to) = ([0; 16], [0; 16]);
    (from[0], from[1], to[0], to[1]) = (0xfd, 1, 0xfd, 2);
    let ip = if v6 {
        PacketBuilder::ipv6(from, to, 64)
    } else {
        PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64)
    };
    let tcp = ip.tcp(1000, 80, sequence, 500).ack(7);
    tcp.write(&mut packet, payload).unwrap();
    packet
}

/// How a TUN device would mark a TCP super-packet.
pub fn tso(size: u16) -> Offload {
    Offload {
        segmentation: Segmentation::Tcp { size },
        checksum: None,
    }
}

/// What a TUN device without offloads would be given for this item.
pub fn segments(item: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let segments = Segments::plan(item, &Outline::read(item).unwrap(), offload).unwrap();
    let packet = |number| {
        let mut packet = vec![0; segments.head_len()];
        segments.write_head(item, number, &mut packet);
        packet.extend_from_slice(&item[segments.payload(number)]);
        packet
    };
    (0..segments.count()).map(packet).collect()
}

/// A queue in memory: a source returns what was put in, a sink keeps what it gets.
pub struct Feed<Note>(pub Arc<Mutex<Queue<Note>>>);

type Queue<Note> = VecDeque<(Vec<u8>, Note)>;

impl<Note> Clone for Feed<Note> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Note: Copy> Feed<Note> {
    pub fn new(items: impl IntoIterator<Item = (Vec<u8>, Note)>) -> Self {
        Self(Arc::new(Mutex::new(items.into_iter().collect())))
    }

    pub fn put(&self, item: Vec<u8>, note: Note) {
        self.0.lock().unwrap().push_back((item, note));
    }

    pub fn take_all(&self) -> Vec<(Vec<u8>, Note)> {
        self.0.lock().unwrap().drain(..).collect()
    }

    fn fill(&self, intake: &mut ReceiveBuffer<Note>, wait: Wait) -> io::Result<usize> {
        let mut items = self.0.lock().unwrap();
        let mut count = 0;
        while let Some((item, note)) = items.front() {
            if intake.free_items() == 0 || intake.free_bytes().len() < item.len() {
                break;
            }
            intake.free_bytes()[..item.len()].copy_from_slice(item);
            intake.push(item.len(), *note);
            items.pop_front();
            count += 1;
        }
        drop(items);
        if count == 0 && wait != Wait::Poll {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(count)
    }
}

impl PlaintextSource for Feed<Offload> {
    fn fill(&mut self, intake: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        Feed::fill(self, intake, wait)
    }
}

/// What was routed into the device of this number.
struct OfDevice(Feed<Offload>, u32);

impl PlaintextSource for OfDevice {
    fn fill(&mut self, intake: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        self.0.fill(intake, wait)
    }

    fn interface(&self) -> u32 {
        self.1
    }
}

impl ProtectedSource for Feed<Arrival> {
    fn fill(&mut self, intake: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize> {
        Feed::fill(self, intake, wait)
    }
}

impl ProtectedSink for Feed<Arrival> {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        for burst in bursts {
            let arrival = Arrival {
                outer: burst.outer,
                stride: burst.stride,
            };
            self.put(burst.bytes.to_vec(), arrival);
        }
        Ok(Sent {
            packets: bursts.iter().map(Burst::packets).sum(),
            calls: 1,
            ..Sent::default()
        })
    }
}

/// A plaintext sink that keeps what it gets and accepts the given kinds of train.
pub struct Catch(pub Feed<Offload>, pub TrainKinds);

impl PlaintextSink for Catch {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        for delivery in deliveries {
            let packet = delivery.pieces.iter().flat_map(|piece| piece.to_vec());
            self.0.put(packet.collect(), delivery.offload);
        }
        Ok(Sent {
            packets: deliveries.iter().map(Delivery::packets).sum(),
            calls: 1,
            ..Sent::default()
        })
    }

    fn train_kinds(&self) -> TrainKinds {
        self.1
    }
}

/// Two gateways and the wire between them, worked by hand on one thread.
pub struct World {
    pub left_in: Feed<Offload>,
    pub left: OutboundPump,
    pub wire: Feed<Arrival>,
    pub right: InboundPump,
    pub right_out: Feed<Offload>,
    /// ICMP errors of the left gateway to its hosts.
    pub replies: Feed<Offload>,
    pub left_counters: Arc<Counters>,
    pub right_counters: Arc<Counters>,
    pub left_databases: Arc<ArcSwap<Snapshot>>,
    pub right_databases: Arc<ArcSwap<Snapshot>>,
    /// Calls workers of both, if a test has any.
    pub work_ready: Arc<Event>,
}

pub const INLINE: LaneConfig = LaneConfig {
    slots: 4,
    workers: 0,
    left_to_workers: 0,
    waker: None,
};

/// Datagrams that were sent as bursts, one by one.
pub fn singly(bursts: Vec<(Vec<u8>, Arrival)>) -> Vec<(Vec<u8>, Arrival)> {
    let split = |(bytes, arrival): (Vec<u8>, Arrival)| {
        let chunks: Vec<_> = bytes.chunks(arrival.stride).map(<[u8]>::to_vec).collect();
        chunks.into_iter().map(move |chunk| {
            let stride = chunk.len();
            (chunk, Arrival { stride, ..arrival })
        })
    };
    bursts.into_iter().flat_map(split).collect()
}

impl World {
    /// Bytes of the longest packet on the wire, outer IP header included; takes all that is there.
    pub fn longest_on_the_wire(&mut self) -> usize {
        let packets = self.wire.take_all().into_iter();
        let sizes = packets.map(|(bytes, arrival)| {
            let added = match arrival.outer.emitted_len {
                0 => arrival.outer.len(),
                _ => 0,
            };
            arrival.stride.min(bytes.len()) + added
        });
        sizes.max().expect("something was sent")
    }

    pub fn new(left: &str, right: &str, takes: TrainKinds, path_mtu: usize) -> Self {
        Self::with_hook(left, right, takes, path_mtu, Arc::new(|_| ()))
    }

    pub fn with_hook(
        left: &str,
        right: &str,
        takes: TrainKinds,
        path_mtu: usize,
        hook: Hook,
    ) -> Self {
        let (left_in, wire, right_out) = (Feed::new([]), Feed::new([]), Feed::new([]));
        let replies = Feed::new([]);
        let (left_counters, right_counters) = (Arc::default(), Arc::default());
        let (left_databases, right_databases) = (published(left), published(right));
        let outbound = Outbound {
            source: Box::new(left_in.clone()),
            sink: Box::new(wire.clone()),
            replies: Some(Box::new(Catch(replies.clone(), TrainKinds::default()))),
            databases: Arc::clone(&left_databases),
            ivs: IvSource::seeded(&[7; SEED_LEN]),
            paths: PathMtus::new(PmtuCache::default(), path_mtu),
            hook,
            counters: Arc::clone(&left_counters),
        };
        let inbound = Inbound {
            source: Box::new(wire.clone()),
            sink: Box::new(Catch(right_out.clone(), takes)),
            databases: Arc::clone(&right_databases),
            paths: PathMtus::new(PmtuCache::default(), path_mtu),
            counters: Arc::clone(&right_counters),
        };
        let size = BatchSize::default();
        let work_ready = Arc::default();
        Self {
            left: outbound.pump(size, &INLINE, Arc::clone(&work_ready)),
            right: inbound.pump(size, &INLINE, Arc::clone(&work_ready)),
            work_ready,
            left_in,
            wire,
            right_out,
            replies,
            left_counters,
            right_counters,
            left_databases,
            right_databases,
        }
    }

    /// A world whose packets on the left come from a device with associations of its own, but none exists.
    pub fn of_device(interface: u32, hook: Hook) -> Self {
        let mut world = Self::with_hook("", "", ALL_TRAINS, 65_535, Arc::clone(&hook));
        let outbound = Outbound {
            source: Box::new(OfDevice(world.left_in.clone(), interface)),
            sink: Box::new(world.wire.clone()),
            replies: None,
            databases: Arc::clone(&world.left_databases),
            ivs: IvSource::seeded(&[7; SEED_LEN]),
            paths: PathMtus::new(PmtuCache::default(), 65_535),
            hook,
            counters: Arc::clone(&world.left_counters),
        };
        world.left = outbound.pump(BatchSize::default(), &INLINE, Arc::default());
        world
    }

    /// A tunnel of this suite, every offload on, no path limit.
    pub fn tunnel(suite: &str, protocol: &str) -> Self {
        let text = |right| tunnel(suite, protocol, right);
        Self::new(&text(false), &text(true), ALL_TRAINS, 65_535)
    }

    /// Everything that waits on the left goes out onto the wire.
    pub fn send(&mut self) {
        while self.left.step(Wait::Poll).unwrap() > 0 {}
    }

    /// Everything on the wire comes in on the right.
    pub fn receive(&mut self) {
        while self.right.step(Wait::Poll).unwrap() > 0 {}
    }

    /// What the right side delivered.
    pub fn delivered(&self) -> Vec<(Vec<u8>, Offload)> {
        self.right_out.take_all()
    }

    /// The numbers of the datagrams that the right side delivered, trains taken apart.
    pub fn delivered_numbers(&self) -> Vec<u64> {
        let trains = self.delivered();
        let packets = trains
            .iter()
            .flat_map(|(train, offload)| segments(train, *offload));
        packets.map(|packet| number_of(&packet)).collect()
    }

    /// Nothing was lost without a name, on either side.
    pub fn balance(&self) -> (PacketCounts, PacketCounts) {
        let (left, right) = (self.left_counters.read(), self.right_counters.read());
        for counts in [left, right] {
            assert_eq!(
                counts.arrived,
                counts.packets + counts.dropped(),
                "{counts:?}"
            );
        }
        (left, right)
    }
}
