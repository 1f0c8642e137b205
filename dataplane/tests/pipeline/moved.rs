//! A committing thread that is moved to another processor at every batch: what it sends arrives in order all the same.
//!
//! ```text
//!   namespace of the test     middle                    right
//!   gateway ── left ══ near ─ bridge ─ far ══ right ── receiver
//! ```
//!
//! Three virtual cables without a queue of their own let a train of 64 packets wait in the sending processor's backlog
//! more often than the kernel empties it in one go; a thread that interrupts the first processor now and then makes the
//! kernel leave the rest for later. Then the next batch, sent on another processor, would overtake.

use crate::world::*;
use arc_swap::ArcSwap;
use dataplane::io::udp::{self, UdpOptions, UdpSource};
use dataplane::io::{
    Arrival, Burst, Family, MAX_ITEM_BYTES, PlaintextSource, PmtuCache, ProtectedSink,
    ProtectedSource, ReceiveBuffer, SocketOptions, Wait, Warn,
};
use dataplane::pipeline::affinity::{Placement, allowed, pin};
use dataplane::pipeline::governor::Workers;
use dataplane::pipeline::priority::Priority;
use dataplane::train::{Offload, Segmentation};
use dataplane::{DataPlane, Ends, Options};
use ipsec::tunnel::Outer;
use namespaces::{Namespace, command, isolated, warnings};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[path = "../../src/io/namespaces.rs"]
#[allow(dead_code, reason = "the devices' own tests use the rest")]
mod namespaces;

/// Trains sent in one run.
const TRAINS: u64 = 3000;
/// Packets of each, as many as one system call sends.
const PACKETS: u64 = 64;
/// Bytes of payload of each.
const SIZE: usize = 64;

/// Moves the calling thread to another processor, and then allows all processors again.
fn move_on(turn: u64) {
    let cpus = allowed().unwrap();
    pin(&[cpus[turn as usize % cpus.len()]]).unwrap();
    pin(&cpus).unwrap();
}

/// Trains of one flow; the reading thread is moved to another processor before each one.
struct Moving {
    next: u64,
    item: Vec<u8>,
}

impl PlaintextSource for Moving {
    fn fill(&mut self, intake: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        move_on(self.next);
        if self.next == TRAINS {
            if let Wait::AtMost(time) = wait {
                std::thread::sleep(time);
            }
            return Ok(0);
        }
        self.next += 1;
        intake.free_bytes()[..self.item.len()].copy_from_slice(&self.item);
        let offload = Offload {
            segmentation: Segmentation::Udp { size: SIZE as u16 },
            checksum: None,
        };
        intake.push(self.item.len(), offload);
        Ok(1)
    }
}

/// The wire to the right namespace, and the socket at its end.
struct Wire {
    _middle: Namespace,
    right: Namespace,
}

impl Wire {
    fn new() -> Self {
        let (middle, right) = (Namespace::new(), Namespace::new());
        command(&format!(
            "ip link add left type veth peer name near netns {}",
            middle.path()
        ));
        command("ip addr add 192.0.2.1/24 dev left");
        command("ethtool -K left tx-udp-segmentation off");
        command("ip link set left up");
        middle.run(|| {
            let over = format!(
                "ip link add far type veth peer name right netns {}",
                right.path()
            );
            for line in [
                over.as_str(),
                "ip link add bridge type bridge",
                "ip link set near master bridge",
                "ip link set far master bridge",
                "ip link set near up",
                "ip link set far up",
                "ip link set bridge up",
            ] {
                command(line);
            }
        });
        right.run(|| {
            command("ip addr add 192.0.2.2/24 dev right");
            command("ip link set right up");
        });
        command("ping -q -c 1 -W 5 192.0.2.2");
        Self {
            _middle: middle,
            right,
        }
    }

    fn source(&self) -> UdpSource {
        self.right.run(|| open_udp().0)
    }
}

fn open_udp() -> (UdpSource, udp::UdpSink) {
    let (warn, _) = warnings();
    let options = UdpOptions::new(SocketOptions::new(PmtuCache::default(), warn));
    udp::open(Family::V4, &options).unwrap()
}

/// What came at the other end.
#[derive(Default, Debug)]
struct Came {
    packets: AtomicU64,
    overtaken: AtomicU64,
    stop: AtomicBool,
}

/// Counts packets whose sequence number is below one that came before, until it is stopped.
fn watch(mut source: UdpSource, came: &Came) {
    let mut intake = ReceiveBuffer::with_capacity(8 * MAX_ITEM_BYTES, 64);
    let mut last = 0;
    while !came.stop.load(Ordering::Relaxed) {
        intake.clear();
        source
            .fill(&mut intake, Wait::AtMost(Duration::from_millis(20)))
            .unwrap();
        for (range, arrival) in &intake.items {
            for packet in intake.bytes[range.clone()].chunks(arrival.stride) {
                let number = u32::from_be_bytes(packet[4..8].try_into().unwrap());
                came.packets.fetch_add(1, Ordering::Relaxed);
                came.overtaken
                    .fetch_add(u64::from(number < last), Ordering::Relaxed);
                last = last.max(number);
            }
        }
    }
}

/// Interrupts the first processor from time to time, with a priority above all threads there.
fn interrupt(came: &Came) {
    pin(&allowed().unwrap()[..1]).unwrap();
    // SAFETY: all-zero bytes are a `sched_param`: it holds numbers alone.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 20;
    // SAFETY: the kernel reads one `sched_param` that lives for the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    while !came.stop.load(Ordering::Relaxed) {
        let end = Instant::now() + Duration::from_micros(60);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_micros(30));
    }
}

/// What comes over the wire while `send` sends.
fn over(wire: &Wire, send: impl FnOnce() + Send) -> (u64, u64) {
    let came = Came::default();
    let source = wire.source();
    std::thread::scope(|scope| {
        scope.spawn(|| watch(source, &came));
        let interrupter = scope.spawn(|| interrupt(&came));
        scope.spawn(send).join().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        came.stop.store(true, Ordering::Relaxed);
        interrupter.join().unwrap();
    });
    (came.packets.into_inner(), came.overtaken.into_inner())
}

/// The same trains straight to the socket, from a thread that is moved in between.
fn without_a_gateway() {
    let _ = Priority::Realtime.claim();
    let (_, mut sink) = open_udp();
    let outer = Outer {
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
        protocol: 17,
        ports: Some((4500, 4500)),
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 64,
        emitted_len: 0,
    };
    let mut bytes = vec![1; PACKETS as usize * SIZE];
    for train in 0..TRAINS {
        move_on(train);
        for (n, packet) in bytes.chunks_mut(SIZE).enumerate() {
            let number = (train * PACKETS) as u32 + n as u32 + 1;
            packet[4..8].copy_from_slice(&number.to_be_bytes());
        }
        let burst = Burst {
            outer,
            bytes: &bytes,
            stride: SIZE,
        };
        sink.deliver(&[burst]).unwrap();
    }
}

fn with_a_gateway(workers: usize) {
    let text = "add 192.0.2.1[4500] 192.0.2.2[4500] esp-udp 0x1001 -m tunnel SUITE;
         spdadd 10.1.0.0/16 10.2.0.0/16 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;";
    let databases: Arc<ArcSwap<_>> = published(&text.replace("SUITE", &gcm()));
    let ends = Ends {
        plaintext_source: Box::new(Moving {
            next: 0,
            item: datagram(0, PACKETS as usize * SIZE),
        }),
        protected_sink: Box::new(open_udp().1),
        protected_source: Box::new(Feed::<Arrival>::new([])),
        plaintext_sink: Box::new(Catch(Feed::new([]), ALL_TRAINS)),
        replies: None,
        paths: PmtuCache::default(),
        wakers: Default::default(),
    };
    let options = Options {
        workers: Workers::Forced(workers),
        placement: Placement {
            cpus: Vec::new(),
            priority: Priority::Realtime,
        },
        ..Options::default()
    };
    let plane = DataPlane::start(ends, databases, &options, Arc::new(|_| ())).unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    while plane.totals().outbound.packets < TRAINS * PACKETS && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(plane.stop().outbound.packets, TRAINS * PACKETS);
}

#[test]
fn a_committing_thread_that_is_moved_at_every_batch_keeps_the_order() {
    isolated(|| {
        let wire = Wire::new();
        for workers in [0, 2] {
            let (packets, overtaken) = over(&wire, || with_a_gateway(workers));
            println!("{workers} workers: {packets} packets came, {overtaken} overtaken");
            assert!(packets > TRAINS * PACKETS / 20, "{packets}");
            assert_eq!(overtaken, 0, "{workers} workers");
        }
        let (packets, overtaken) = over(&wire, without_a_gateway);
        println!("without a gateway: {packets} packets came, {overtaken} overtaken");
        // The positive control needs two processors, and a kernel thread that runs after this one.
        let may_come_first = std::thread::spawn(|| Priority::Realtime.claim().is_ok());
        if may_come_first.join().unwrap() && allowed().unwrap().len() > 1 {
            assert!(overtaken > 0, "this wire shows no disorder at all");
        }
    });
}
