//! One worker's turn: batch after batch, until its time is over.

use super::machine::own_time;
use multibuffer::{Iv, Key, OpenJob, SealJob, Verdict};
use std::time::{Duration, Instant};

/// What every worker of a case does.
pub(super) struct Load<'a> {
    pub(super) keys: &'a [Key],
    pub(super) sealing: bool,
    pub(super) size: usize,
    pub(super) batch: usize,
}

impl Load<'_> {
    pub(super) fn block_len(&self) -> usize {
        self.keys[0].block_len()
    }
}

/// SPI and sequence number.
const AAD: [u8; 8] = [0, 0, 1, 0, 0, 0, 0, 1];

/// How many sets of packets a worker processes between two reads of the clock, each of which may be a system call.
const PACKET_SETS: usize = 16;

/// A worker with packets of its own.
pub(super) struct Worker<'l, 'k> {
    load: &'l Load<'k>,
    iv: Iv,
    plain: Vec<u8>,
    sets: Vec<Vec<Vec<u8>>>,
    /// The association of the next packet.
    sa: usize,
}

impl<'l, 'k> Worker<'l, 'k> {
    pub(super) fn new(load: &'l Load<'k>, number: usize) -> Self {
        let key = &load.keys[0];
        let len = load.size.next_multiple_of(key.block_len());
        Self {
            load,
            iv: Iv::new(&[0x5a; 16][..key.iv_len()]),
            plain: (0..len).map(|at| (at * 7 + number) as u8).collect(),
            sets: vec![vec![vec![0; len + key.icv_len()]; load.batch]; PACKET_SETS],
            // Workers start at different associations, so that they do not use each other's cache contents.
            sa: number * load.keys.len() / 7,
        }
    }

    /// Packets per second of what this load does.
    pub(super) fn turn(&mut self, time: Duration, start: Instant) -> f64 {
        let (mut spent, mut batches) = (Duration::ZERO, 0);
        while batches == 0 || start.elapsed() < time {
            let from = self.sa;
            let sealing = self.seal_all();
            spent += if self.load.sealing {
                sealing
            } else {
                // With the keys that they were sealed with.
                self.sa = from;
                self.open_all()
            };
            batches += self.sets.len();
        }
        (batches * self.load.batch) as f64 / spent.as_secs_f64().max(1e-9)
    }

    /// Seals all sets, and returns how long that took.
    fn seal_all(&mut self) -> Duration {
        let (first, rest) = self.plain.split_at(self.plain.len().min(20));
        let (middle, last) = rest.split_at(rest.len() - rest.len().min(10));
        let (keys, sa, iv) = (self.load.keys, &mut self.sa, self.iv);
        let mut batches = batches(&mut self.sets, |output| SealJob {
            key: next_key(keys, sa),
            aad: &AAD,
            aad_tail: &[],
            iv,
            input: [first, middle, last],
            output,
        });
        timed(&mut batches, multibuffer::seal)
    }

    fn open_all(&mut self) -> Duration {
        let (keys, sa, iv) = (self.load.keys, &mut self.sa, self.iv);
        let mut batches = batches(&mut self.sets, |text| OpenJob {
            key: next_key(keys, sa),
            aad: &AAD,
            aad_tail: &[],
            iv,
            text,
            verdict: Verdict::Pending,
        });
        let spent = timed(&mut batches, multibuffer::open);
        let mut jobs = batches.iter().flatten();
        assert!(
            jobs.all(|job| job.verdict == Verdict::Genuine),
            "a fast wrong answer is no answer"
        );
        spent
    }
}

/// A job for each packet, set by set.
fn batches<'s, Job>(
    sets: &'s mut [Vec<Vec<u8>>],
    mut job: impl FnMut(&'s mut [u8]) -> Job,
) -> Vec<Vec<Job>> {
    let mut batch = |set: &'s mut Vec<Vec<u8>>| set.iter_mut().map(|bytes| job(bytes)).collect();
    sets.iter_mut().map(&mut batch).collect()
}

/// How long this thread works on them.
fn timed<Job>(batches: &mut [Vec<Job>], work: fn(&mut [Job])) -> Duration {
    let start = own_time();
    batches.iter_mut().for_each(|jobs| work(jobs));
    own_time() - start
}

/// Associations are used in an order that no prefetcher follows: the step is a prime, so that all are used.
pub(super) const SA_STRIDE: usize = 1_000_003;

fn next_key<'k>(keys: &'k [Key], sa: &mut usize) -> &'k Key {
    *sa = (*sa + SA_STRIDE) % keys.len();
    &keys[*sa]
}
