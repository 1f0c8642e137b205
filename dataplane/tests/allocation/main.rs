//! Carrying packets allocates nothing once every buffer has grown to its size, as a counting allocator shows.

#[path = "../pipeline/world.rs"]
mod world;

use dataplane::buffers::BatchSize;
use dataplane::inbound::Inbound;
use dataplane::io::memory::{NullSink, Repeat};
use dataplane::io::{Arrival, PmtuCache, Wait};
use dataplane::iv::{IvSource, SEED_LEN};
use dataplane::outbound::Outbound;
use dataplane::path_mtu::PathMtus;
use dataplane::pipeline::governor::Workers;
use dataplane::pipeline::worker::Idle;
use dataplane::train::Offload;
use dataplane::{DataPlane, Ends, Options};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use world::{
    ALL_TRAINS, World, bundle, bytes, cbc_sha1, compressed, datagram, gcm, published, singly, tcp,
    transport_bundle, tso, tunnel,
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_during(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Trains, packets with unfinished work, small and large ones.
fn plaintext() -> Vec<(Vec<u8>, Offload)> {
    let mut items: Vec<_> = (0..40)
        .map(|number| {
            (
                datagram(number, 10 + 30 * number as usize),
                Offload::default(),
            )
        })
        .collect();
    items.push((tcp(false, 1, &[1; 30_000]), tso(1400)));
    items.push((tcp(true, 1, &[1; 60_000]), tso(1000)));
    items
}

/// What a left gateway makes of that, for a right one that admits the same packet again and again.
fn protected(ends: &Setkey) -> Vec<(Vec<u8>, Arrival)> {
    let mut world = World::new(&ends.left, &ends.right, ALL_TRAINS, 65_535);
    for (item, offload) in plaintext() {
        world.left_in.put(item, offload);
    }
    world.send();
    let mut bursts = world.wire.take_all();
    bursts.extend(singly(bursts.clone()).into_iter().take(20));
    bursts
}

/// The setkey texts of two gateways, without replay checks so that packets may be repeated.
struct Setkey {
    left: String,
    right: String,
}

impl Setkey {
    fn tunnel(suite: &str) -> Self {
        Self {
            left: without_replay_check(suite, false),
            right: without_replay_check(suite, true),
        }
    }

    fn bundle(text: fn(&str) -> String) -> Self {
        Self {
            left: text("out"),
            right: text("in"),
        }
    }
}

fn without_replay_check(suite: &str, right: bool) -> String {
    tunnel(suite, "esp-udp", right).replace("-r 1024", "")
}

fn outbound_inline(ends: &Setkey) -> u64 {
    let direction = Outbound {
        source: Box::new(Repeat::of(plaintext())),
        sink: Box::new(NullSink),
        replies: None,
        databases: published(&ends.left),
        ivs: IvSource::seeded(&[1; SEED_LEN]),
        paths: PathMtus::new(PmtuCache::default(), 65_535),
        hook: Arc::new(|_| ()),
        counters: Arc::default(),
    };
    let counters = Arc::clone(&direction.counters);
    let mut pump = direction.pump(BatchSize::default(), &world::INLINE, Arc::default());
    let mut steps = |count| (0..count).for_each(|_| assert!(pump.step(Wait::Poll).unwrap() > 0));
    steps(50);
    let allocations = allocations_during(|| steps(200));
    assert!(counters.read().packets > 10_000);
    assert_eq!(counters.read().dropped(), 0);
    allocations
}

fn inbound_inline(ends: &Setkey) -> u64 {
    let direction = Inbound {
        source: Box::new(Repeat::of(protected(ends))),
        sink: Box::new(NullSink),
        databases: published(&ends.right),
        paths: PathMtus::new(PmtuCache::default(), 65_535),
        counters: Arc::default(),
    };
    let counters = Arc::clone(&direction.counters);
    let mut pump = direction.pump(BatchSize::default(), &world::INLINE, Arc::default());
    let mut steps = |count| (0..count).for_each(|_| assert!(pump.step(Wait::Poll).unwrap() > 0));
    steps(50);
    let allocations = allocations_during(|| steps(200));
    assert!(counters.read().packets > 10_000);
    assert_eq!(counters.read().dropped(), 0);
    allocations
}

fn both_with_workers_come_to_rest(suite: &str) -> bool {
    let ends = Ends {
        plaintext_source: Box::new(Repeat::of(plaintext())),
        protected_sink: Box::new(NullSink),
        protected_source: Box::new(Repeat::of(protected(&Setkey::tunnel(suite)))),
        plaintext_sink: Box::new(NullSink),
        replies: None,
        paths: PmtuCache::default(),
        wakers: Default::default(),
    };
    // One text for both directions, as this gateway is the left end of one tunnel and the right end of the other.
    let left = without_replay_check(suite, false);
    let right = without_replay_check(suite, true).replace("0x1002", "0x1003");
    let own = left.lines().chain(right.lines()).filter(|line| {
        let sent = line.contains("0x1001") && !line.contains("spdadd");
        sent || line.contains("-P out ipsec esp/tunnel/192.0.2.1")
            || line.contains("-P in ipsec esp/tunnel/192.0.2.1")
    });
    let mut own: Vec<_> = own.collect();
    own.sort_unstable();
    own.dedup();
    let options = Options {
        workers: Workers::Forced(2),
        idle: Idle::Sleep,
        seed: Some([1; SEED_LEN]),
        ..Options::default()
    };
    let hook: dataplane::Hook = Arc::new(|_| ());
    let plane = DataPlane::start(ends, published(&own.join("\n")), &options, hook).unwrap();
    // A batch of the pool may see its first use, and grow, long after the start: what counts is that it ends.
    let quiet = (0..20).any(|_| {
        let before = plane.totals();
        let allocations = allocations_during(|| std::thread::sleep(Duration::from_millis(200)));
        let after = plane.totals();
        assert!(after.outbound.packets > before.outbound.packets + 1000);
        assert!(after.inbound.packets > before.inbound.packets + 1000);
        allocations == 0
    });
    let totals = plane.stop();
    assert_eq!(totals.outbound.dropped() + totals.inbound.dropped(), 0);
    quiet
}

// One test, so that nothing else runs while it counts.
#[test]
fn no_packet_costs_an_allocation_in_either_direction_inline_or_with_workers() {
    let counted = allocations_during(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(counted, 1, "the allocator does not count");
    let null = format!("-E null -A hmac-sha2-256 {}", bytes("d4", 32));
    let tunnels = [gcm(), cbc_sha1(), null].map(|suite| Setkey::tunnel(&suite));
    let bundles = [bundle, transport_bundle, compressed].map(Setkey::bundle);
    for ends in tunnels.iter().chain(&bundles) {
        assert_eq!(outbound_inline(ends), 0, "outbound, {}", ends.left);
        assert_eq!(inbound_inline(ends), 0, "inbound, {}", ends.right);
    }
    assert!(both_with_workers_come_to_rest(&gcm()));
}
