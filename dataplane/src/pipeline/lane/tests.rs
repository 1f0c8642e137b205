use super::super::affinity::Placement;
use super::super::worker::{Idle, WorkerThreads};
use super::*;
use std::time::{Duration, Instant};

/// A batch whose transform takes a given time.
struct Job {
    number: u64,
    spins: u32,
}

impl Transform for Job {
    fn transform(&mut self) {
        for _ in 0..self.spins {
            std::hint::spin_loop();
        }
        if self.spins.is_multiple_of(7) {
            std::thread::yield_now();
        }
    }
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<u64>>>);

impl Commit<Job> for Seen {
    fn commit(&mut self, batch: Box<Job>) {
        self.0.lock().unwrap().push(batch.number);
    }
}

fn threads(
    producer: &mut Producer<Job, Seen>,
    workers: usize,
    work_ready: &Arc<Event>,
    idle: Idle,
) -> WorkerThreads {
    producer.set_workers(workers);
    let lane: Arc<dyn WorkSource> = producer.lane().clone();
    WorkerThreads::start(
        workers,
        Placement::default(),
        idle,
        vec![lane],
        Arc::clone(work_ready),
    )
    .unwrap()
}

/// Publishes `count` jobs of pseudo-random lengths and returns the order in which they came out.
fn order_of(count: u64, slots: usize, workers: usize, idle: Idle) -> Vec<u64> {
    let work_ready = Arc::new(Event::default());
    let seen = Seen::default();
    let mut producer = Producer::new(slots, seen.clone(), Arc::clone(&work_ready));
    let threads = threads(&mut producer, workers, &work_ready, idle);
    let mut random = 0x2545_f491_4f6c_dd1du64;
    for number in 0..count {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let spins = (random % 2000) as u32;
        producer.publish(Box::new(Job { number, spins }));
        if random.is_multiple_of(5) {
            producer.work();
        }
    }
    producer.drain();
    drop(threads);
    seen.0.lock().unwrap().clone()
}

#[test]
fn batches_leave_in_the_order_in_which_they_entered_whatever_each_takes() {
    for (slots, workers) in [(1, 1), (2, 3), (8, 2), (16, 4)] {
        for idle in [Idle::Sleep, Idle::default()] {
            let order = order_of(3000, slots, workers, idle);
            assert!(
                order.iter().copied().eq(0..3000),
                "{slots} slots, {workers} workers"
            );
        }
    }
}

#[test]
fn workers_that_come_and_go_at_random_change_no_order() {
    let work_ready = Arc::new(Event::default());
    let seen = Seen::default();
    let mut producer = Producer::new(8, seen.clone(), Arc::clone(&work_ready));
    let threads = threads(&mut producer, 3, &work_ready, Idle::Sleep);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for number in 0..5000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        if random >> 60 == 0 {
            producer.set_workers((random >> 32) as usize % 4);
        }
        let spins = (random >> 40) as u32 % 1000;
        producer.publish(Box::new(Job { number, spins }));
        producer.help();
    }
    producer.drain();
    drop(threads);
    assert!(seen.0.lock().unwrap().iter().copied().eq(0..5000));
}

#[test]
fn workers_that_are_not_engaged_take_nothing() {
    let work_ready = Arc::new(Event::default());
    let mut producer = Producer::new(8, Seen::default(), Arc::clone(&work_ready));
    let threads = threads(&mut producer, 2, &work_ready, Idle::Busy);
    producer.set_workers(0);
    for number in 0..8 {
        producer.publish(Box::new(Job { number, spins: 10 }));
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(threads);
    assert_eq!(producer.on_offer(), 8);
}

#[test]
fn without_workers_the_producer_does_it_all() {
    assert!(order_of(500, 4, 0, Idle::Sleep).into_iter().eq(0..500));
}

#[test]
fn a_backlog_is_finished_by_workers_and_leaves_with_the_producer() {
    let work_ready = Arc::new(Event::default());
    let seen = Seen::default();
    let mut producer = Producer::new(8, seen.clone(), Arc::clone(&work_ready));
    // Before there are workers: a producer that publishes also commits what is done.
    for number in 0..8 {
        producer.publish(Box::new(Job { number, spins: 100 }));
    }
    let threads = threads(&mut producer, 2, &work_ready, Idle::Sleep);
    let give_up = Instant::now() + Duration::from_secs(20);
    let all_done =
        |lane: &Lane<Job>| (0..8).all(|place| matches!(*lane.slot(place), Slot::Done(_)));
    while !all_done(producer.lane()) && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(threads);
    assert_eq!(producer.in_flight(), 8, "workers commit nothing");
    producer.help();
    assert!(seen.0.lock().unwrap().iter().copied().eq(0..8));
}

/// The kernel's backlog: packets passed to it on one processor wait in a queue of that processor, and the queues may be
/// emptied in any order; here that of the last thread comes last. A thread represents a processor.
#[derive(Clone, Default)]
struct Kernel(Arc<Mutex<Vec<(std::thread::ThreadId, u64)>>>);

impl Commit<Job> for Kernel {
    fn commit(&mut self, batch: Box<Job>) {
        let here = std::thread::current().id();
        self.0.lock().unwrap().push((here, batch.number));
    }
}

impl Kernel {
    fn delivered(&self, last: std::thread::ThreadId) -> Vec<u64> {
        let mut all = self.0.lock().unwrap().clone();
        all.sort_by_key(|(thread, _)| *thread == last);
        all.into_iter().map(|(_, number)| number).collect()
    }
}

#[test]
fn batches_do_not_overtake_in_queues_that_the_kernel_keeps_for_each_processor() {
    let work_ready = Arc::new(Event::default());
    let kernel = Kernel::default();
    let mut producer = Producer::new(8, kernel.clone(), Arc::clone(&work_ready));
    producer.set_workers(3);
    let lane: Arc<dyn WorkSource> = producer.lane().clone();
    let threads =
        WorkerThreads::start(3, Placement::default(), Idle::Busy, vec![lane], work_ready).unwrap();
    for number in 0..2000 {
        let spins = number as u32 * 7919 % 1500;
        producer.publish(Box::new(Job { number, spins }));
        std::thread::yield_now();
    }
    producer.drain();
    let (own, all) = (
        producer.lane().stats().read().own_transform,
        producer.lane().stats().read().transform,
    );
    drop(threads);
    assert!(own < all, "the workers had their share");
    let order = kernel.delivered(std::thread::current().id());
    assert!(order.into_iter().eq(0..2000));
}

#[test]
fn workers_that_never_had_anything_to_do_still_stop() {
    let work_ready = Arc::new(Event::default());
    let mut producer = Producer::new(2, Seen::default(), Arc::clone(&work_ready));
    for idle in [Idle::Sleep, Idle::default(), Idle::Busy] {
        drop(threads(&mut producer, 2, &work_ready, idle));
    }
}
