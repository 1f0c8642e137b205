//! Every interleaving of small lanes, by loom: `cargo test -p dataplane --features loom --lib model::`.

use super::*;
use loom::sync::atomic::AtomicBool;
use loom::thread;

struct Numbered {
    number: u64,
    transformed: bool,
}

impl Transform for Numbered {
    fn transform(&mut self) {
        assert!(!self.transformed, "transformed twice");
        self.transformed = true;
    }
}

/// Insists on order and counts.
struct Strict(Arc<AtomicU64>);

impl Commit<Numbered> for Strict {
    fn commit(&mut self, batch: Box<Numbered>) {
        assert!(batch.transformed, "committed before it was transformed");
        assert_eq!(batch.number, self.0.load(Ordering::Relaxed), "out of order");
        self.0.store(batch.number + 1, Ordering::Relaxed);
    }
}

type Ends = (Producer<Numbered, Strict>, Arc<AtomicU64>, Arc<Event>);

fn lane(slots: usize) -> Ends {
    let done = Arc::new(AtomicU64::new(0));
    let work_ready = Arc::new(Event::default());
    let mut producer = Producer::new(
        slots,
        Strict(Arc::clone(&done)),
        Arc::clone(&work_ready),
        LeftToWorkers::default(),
    );
    producer.set_workers(1);
    (producer, done, work_ready)
}

fn numbered(number: u64) -> Box<Numbered> {
    Box::new(Numbered {
        number,
        transformed: false,
    })
}

/// Transforms the batches on offer and ends. A real worker would sleep and continue, which adds no case to the model.
fn passing_worker(lane: &Arc<Lane<Numbered>>) -> thread::JoinHandle<()> {
    let lane = Arc::clone(lane);
    thread::spawn(move || while lane.run_one() {})
}

fn explore(threads: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // CHESS: nearly all faults of this kind need two preemptions; three leave a margin and end in seconds.
    builder.preemption_bound = Some(if threads > 2 { 2 } else { 3 });
    builder.check(model);
}

#[test]
fn two_workers_and_a_producer_commit_everything_in_order() {
    explore(3, || {
        let (mut producer, done, _) = lane(2);
        let workers = [
            passing_worker(producer.lane()),
            passing_worker(producer.lane()),
        ];
        producer.publish(numbered(0));
        producer.publish(numbered(1));
        producer.drain();
        assert_eq!(done.load(Ordering::Relaxed), 2);
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn what_two_workers_finish_at_the_same_time_waits_in_order_for_the_producer() {
    explore(3, || {
        let (mut producer, done, _) = lane(2);
        producer.publish(numbered(0));
        producer.publish(numbered(1));
        let workers = [
            passing_worker(producer.lane()),
            passing_worker(producer.lane()),
        ];
        for worker in workers {
            worker.join().unwrap();
        }
        // Workers never commit, and leave nothing on offer.
        assert_eq!(done.load(Ordering::Relaxed), 0);
        assert_eq!(producer.on_offer(), 0);
        producer.help();
        assert_eq!(done.load(Ordering::Relaxed), 2);
        assert_eq!(producer.in_flight(), 0);
    });
}

#[test]
fn a_full_ring_makes_the_producer_help_or_wait_and_goes_on() {
    explore(2, || {
        let (mut producer, done, _) = lane(1);
        let worker = passing_worker(producer.lane());
        for number in 0..3 {
            producer.publish(numbered(number));
        }
        producer.drain();
        assert_eq!(done.load(Ordering::Relaxed), 3);
        worker.join().unwrap();
    });
}

#[test]
fn a_sleeping_worker_is_woken_by_a_backlog_and_by_the_end() {
    explore(2, || {
        let (mut producer, done, work_ready) = lane(2);
        let stop = Arc::new(AtomicBool::new(false));
        let worker = {
            let (lane, work_ready) = (Arc::clone(producer.lane()), Arc::clone(&work_ready));
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    if !lane.run_one() {
                        let wanted = || stop.load(Ordering::SeqCst) || lane.has_work();
                        work_ready.wait_until(wanted);
                    }
                }
            })
        };
        producer.publish(numbered(0));
        producer.publish(numbered(1));
        producer.drain();
        stop.store(true, Ordering::SeqCst);
        work_ready.notify_all();
        worker.join().unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn workers_that_come_and_go_between_batches_leave_nothing_behind() {
    explore(2, || {
        let (mut producer, done, _) = lane(2);
        let worker = passing_worker(producer.lane());
        producer.publish(numbered(0));
        producer.set_workers(0);
        producer.publish(numbered(1));
        producer.help();
        // Inline: batches that no other thread had claimed are done.
        assert_eq!(producer.on_offer(), 0);
        producer.set_workers(1);
        producer.publish(numbered(2));
        producer.drain();
        assert_eq!(done.load(Ordering::Relaxed), 3);
        worker.join().unwrap();
    });
}
