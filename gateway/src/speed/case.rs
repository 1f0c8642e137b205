//! One suite, direction and size: its keys, its turns, its row.

use super::machine;
use super::options::Direction;
use super::report::KernelRow;
use super::statistics::interval;
use super::suite::NamedSuite;
use super::turn::{Load, Worker};
use dataplane::bench::median;
use multibuffer::{Integrity, Key};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Turns of each side.
pub(super) const PAIRS: usize = 9;

#[derive(Clone)]
pub(super) struct Case {
    pub(super) suite: NamedSuite,
    pub(super) direction: Direction,
    pub(super) size: usize,
    pub(super) batch: usize,
    pub(super) sas: usize,
}

impl Case {
    /// The ciphers alone.
    pub(super) fn measure_kernel(&self, cpus: &[usize], time: Duration) -> KernelRow {
        let before = machine::allocated();
        let ours: Vec<Key> = (0..self.sas).map(|sa| self.key(sa, Key::new)).collect();
        let grown = machine::allocated().zip(before);
        let bytes_per_sa = grown.map(|(after, before)| after.saturating_sub(before) / self.sas);
        let library: Vec<Key> = (0..self.sas)
            .map(|sa| self.key(sa, Key::by_library))
            .collect();
        let loads = [self.load(&ours), self.load(&library)];
        let [ours, library] = turns(&loads, cpus, time / (2 * PAIRS as u32));
        let ratios: Vec<f64> = ours.iter().zip(&library).map(|(a, b)| a / b).collect();
        let len = self.size.next_multiple_of(loads[0].block_len());
        KernelRow {
            suite: self.suite.name.clone(),
            direction: self.direction,
            bytes: len,
            packets_per_second: median(&ours),
            library: self.suite.library(),
            library_packets_per_second: median(&library),
            ratio: median(&ratios),
            ratio_interval: interval(&ratios),
            bytes_per_sa,
        }
    }

    pub(super) fn load<'a>(&self, keys: &'a [Key]) -> Load<'a> {
        Load {
            keys,
            sealing: self.direction == Direction::Seal,
            size: self.size,
            batch: self.batch,
        }
    }

    pub(super) fn key<E: std::fmt::Debug>(
        &self,
        sa: usize,
        make: impl Fn(multibuffer::Cipher, &[u8], Integrity, &[u8], usize) -> Result<Key, E>,
    ) -> Key {
        let suite = &self.suite;
        let mac = suite.integrity.map_or(Integrity::None, |row| row.mac);
        let key = make(
            suite.cipher(),
            &suite.cipher_key(sa),
            mac,
            &suite.mac_key(sa),
            suite.icv_len(),
        );
        key.expect("the table's lengths fit the kernels")
    }
}

/// Packets per second of each turn of each load, all workers together. Turns alternate.
fn turns(loads: &[Load<'_>; 2], cpus: &[usize], time: Duration) -> [Vec<f64>; 2] {
    let barrier = Barrier::new(cpus.len());
    let figures = thread::scope(|scope| {
        let workers: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(number, &cpu)| {
                let barrier = &barrier;
                scope.spawn(move || work(loads, number, cpu, time, barrier))
            })
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .map(|figures| figures.expect("a worker that does not panic"))
            .collect::<Vec<_>>()
    });
    [0, 1].map(|side| {
        let sum = |pair: usize| figures.iter().map(|worker| worker[side][pair]).sum();
        (0..PAIRS).map(sum).collect()
    })
}

fn work(
    loads: &[Load<'_>; 2],
    number: usize,
    cpu: usize,
    time: Duration,
    barrier: &Barrier,
) -> [Vec<f64>; 2] {
    machine::pin(cpu);
    let mut workers = [
        Worker::new(&loads[0], number),
        Worker::new(&loads[1], number),
    ];
    let mut figures = [const { Vec::new() }; 2];
    for worker in &mut workers {
        worker.turn(time / 4, Instant::now());
    }
    for _ in 0..PAIRS {
        for (worker, figures) in workers.iter_mut().zip(&mut figures) {
            barrier.wait();
            figures.push(worker.turn(time, Instant::now()));
        }
    }
    figures
}
