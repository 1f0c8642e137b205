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
    let mut producer = Producer::new(
        slots,
        seen.clone(),
        Arc::clone(&work_ready),
        LeftToWorkers::default(),
    );
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
    let mut producer = Producer::new(
        8,
        seen.clone(),
        Arc::clone(&work_ready),
        LeftToWorkers::default(),
    );
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
    let mut producer = Producer::new(
        8,
        Seen::default(),
        Arc::clone(&work_ready),
        LeftToWorkers::default(),
    );
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
    let mut producer = Producer::new(
        8,
        seen.clone(),
        Arc::clone(&work_ready),
        LeftToWorkers::default(),
    );
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
    let mut producer = Producer::new(
        8,
        kernel.clone(),
        Arc::clone(&work_ready),
        LeftToWorkers::default(),
    );
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
    let mut producer = Producer::new(
        2,
        Seen::default(),
        Arc::clone(&work_ready),
        LeftToWorkers::default(),
    );
    for idle in [Idle::Sleep, Idle::default(), Idle::Busy] {
        drop(threads(&mut producer, 2, &work_ready, idle));
    }
}

/// A lane of batches that take long, and the number of times that a worker has ended its producer's sleep.
fn lane_of_long_batches(workers: usize) -> (Producer<Long, Counted>, Arc<Event>, Arc<AtomicU64>) {
    let (work_ready, woken) = (Arc::new(Event::default()), Arc::new(AtomicU64::new(0)));
    let wake = Arc::clone(&woken);
    let wake: WakeReader = Box::new(move || _ = wake.fetch_add(1, Ordering::SeqCst));
    let committer = Counted::default();
    let mut producer = Producer::new(8, committer, Arc::clone(&work_ready), left(Some(wake)));
    // By one batch the lane knows how long they take.
    producer.publish(Box::new(Long));
    producer.drain();
    assert!(producer.lane().stats().of_a_batch() >= MIN_LEFT_TO_WORKERS);
    producer.set_workers(workers);
    (producer, work_ready, woken)
}

/// On a machine with a processor for each worker of these tests.
fn left(wake: Option<WakeReader>) -> LeftToWorkers {
    LeftToWorkers { at_most: 4, wake }
}

/// A batch that takes long.
struct Long;

impl Transform for Long {
    fn transform(&mut self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Default)]
struct Counted(u64);

impl Commit<Long> for Counted {
    fn commit(&mut self, _: Box<Long>) {
        self.0 += 1;
    }
}

#[test]
fn a_long_batch_is_left_to_a_worker_which_ends_the_sleep_of_the_producer() {
    let (mut producer, work_ready, woken) = lane_of_long_batches(2);
    let lane: Arc<dyn WorkSource> = producer.lane().clone();
    let placement = Placement::default();
    let workers = WorkerThreads::start(2, placement, Idle::Sleep, vec![lane], work_ready).unwrap();
    let own = producer.lane().stats().read().own_transform;
    for _ in 0..20 {
        producer.publish(Box::new(Long));
        producer.work();
        let before = woken.load(Ordering::SeqCst);
        let give_up = Instant::now() + Duration::from_secs(20);
        let found = producer.read_beside_workers(Duration::MAX, |_| {
            while woken.load(Ordering::SeqCst) == before && Instant::now() < give_up {
                std::thread::sleep(Duration::from_micros(50));
            }
            Ok(0)
        });
        assert!(found.is_none_or(|found| found.unwrap() == 0));
        assert_eq!(producer.in_flight(), 0, "the end of the sleep commits");
    }
    assert_eq!(producer.committer.0, 21);
    assert_eq!(producer.lane().stats().read().own_transform, own);
    drop(workers);
}

#[test]
fn a_producer_that_sleeps_beside_workers_takes_what_arrives_and_what_no_worker_begins() {
    // No thread serves the lane.
    let (mut producer, _, _) = lane_of_long_batches(1);
    producer.publish(Box::new(Long));
    let mut patience = None;
    let arrived = producer.read_beside_workers(Duration::MAX, |limit| {
        patience = Some(limit);
        Ok(3)
    });
    assert_eq!(arrived.unwrap().unwrap(), 3);
    assert_eq!(producer.on_offer(), 1, "input comes first");
    assert_eq!(patience, Some(producer.lane().stats().of_a_batch()));
    let nothing = producer.read_beside_workers(Duration::from_micros(1), |limit| {
        assert_eq!(limit, Duration::from_micros(1));
        Ok(0)
    });
    assert_eq!(nothing.unwrap().unwrap(), 0);
    assert_eq!(producer.on_offer(), 0, "it does what no worker began");
}

#[test]
fn only_as_many_long_batches_are_left_as_there_are_workers() {
    let (mut producer, _, _) = lane_of_long_batches(2);
    let never = |_| -> io::Result<usize> { unreachable!("it should work") };
    assert!(producer.read_beside_workers(Duration::MAX, never).is_none());
    for _ in 0..3 {
        producer.publish(Box::new(Long));
    }
    assert!(producer.read_beside_workers(Duration::MAX, never).is_none());
    producer.work();
    assert_eq!(producer.on_offer(), 2);
    producer.set_workers(0);
    assert_eq!(producer.on_offer(), 0);
    // With more workers than processors for them: as many as processors.
    producer.set_workers(8);
    for _ in 0..5 {
        producer.publish(Box::new(Long));
    }
    producer.work();
    assert_eq!(producer.on_offer(), 4);
}

#[test]
fn short_batches_and_those_of_a_producer_that_cannot_be_woken_are_not_left_to_workers() {
    let work_ready = Arc::new(Event::default());
    let wake: WakeReader = Box::new(|| ());
    let never = |_| -> io::Result<usize> { unreachable!("it should work") };
    let mut short = Producer::new(
        8,
        Seen::default(),
        Arc::clone(&work_ready),
        left(Some(wake)),
    );
    short.set_workers(2);
    short.publish(Box::new(Job {
        number: 0,
        spins: 1,
    }));
    assert!(short.read_beside_workers(Duration::MAX, never).is_none());
    let mut deaf = Producer::new(8, Counted::default(), work_ready, left(None));
    deaf.publish(Box::new(Long));
    deaf.drain();
    deaf.set_workers(2);
    deaf.publish(Box::new(Long));
    assert!(deaf.read_beside_workers(Duration::MAX, never).is_none());
    deaf.work();
    assert_eq!(deaf.on_offer(), 0);
}
