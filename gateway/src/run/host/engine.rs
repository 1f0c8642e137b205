//! The data plane's options from the command line.

use super::RunOptions;
use dataplane::buffers::BatchSize;
use dataplane::pipeline::affinity::Placement;
use dataplane::pipeline::wake;

/// Room for each packet of a batch that is larger than usual.
const BYTES_PER_ITEM: usize = 4096;

/// The data plane's options.
pub(super) fn options(options: &RunOptions) -> dataplane::Options {
    let cpus: Vec<_> = options
        .cpus
        .iter()
        .flat_map(|cpus| cpus.iter().copied())
        .collect();
    let default = BatchSize::default();
    let items = usize::from(options.batch);
    // The two reading threads, and the workers. A worker that is added only while a processor is idle takes no
    // processor from a reading thread.
    let readers = 2 + options.workers.at_first();
    let threads = readers.max(3);
    let processors = wake::processors(&cpus);
    dataplane::Options {
        workers: options.workers,
        batch: BatchSize {
            items,
            bytes: default.bytes.max(items * BYTES_PER_ITEM),
        },
        idle: options.wake.idle(readers, processors),
        workers_idle: options.wake.idle(threads, processors),
        poll_budget: options.poll_budget,
        placement: Placement {
            cpus,
            priority: options.priority,
        },
        seed: options.seed.map(seed),
        ..dataplane::Options::default()
    }
}

fn seed(number: u64) -> [u8; dataplane::iv::SEED_LEN] {
    let mut seed = [0; dataplane::iv::SEED_LEN];
    seed[..8].copy_from_slice(&number.to_be_bytes());
    seed
}
