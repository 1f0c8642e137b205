//! One suite, direction and size through the whole engine, beside the ciphers alone on the same bytes.
//!
//! ```text
//!   turns:   engine inline │ ciphers alone │ engine with one association │ engine with workers │ engine inline │ …
//! ```
//!
//! The options decide which of the last two there are.

use super::case::{Case, PAIRS};
use super::hub::{Flow, Footprint, Hub};
use super::machine;
use super::options::Direction;
use super::report::{Compared, EngineRow};
use super::turn::Worker;
use crate::failure::Failure;
use dataplane::bench::{self, Bench, InboundBench, LaneBench, OutboundBench, StepTimes, median};
use dataplane::buffers::BatchSize;
use dataplane::pipeline::lane::Commit;
use dataplane::pipeline::pump::Prepare;
use ipsec::policy;
use multibuffer::Key;
use std::thread;
use std::time::{Duration, Instant};

/// ESP's trailer without its padding.
const TRAILER_BYTES: usize = 2;

/// An in-memory engine, and the memory of its databases.
type Made<R> = Result<(R, Option<Footprint>), Failure>;

impl Case {
    /// The whole engine.
    pub(super) fn measure_engine(
        &self,
        cpus: &[usize],
        time: Duration,
    ) -> Result<EngineRow, Failure> {
        let work = || {
            machine::pin(cpus[0]);
            match self.direction {
                Direction::Seal => self.compare(|sas| self.way_out(sas), cpus, time),
                Direction::Open => self.compare(|sas| self.way_in(sas), cpus, time),
            }
        };
        // A thread of its own, so that only it is kept on one CPU.
        let measured = thread::scope(|scope| scope.spawn(work).join());
        measured.expect("a measurement that does not panic")
    }

    fn way_out(&self, sas: usize) -> Made<OutboundBench> {
        let hub = self.hub(Flow::FromHub, sas);
        let (databases, footprint) = hub.databases(policy::Direction::Out)?;
        let bench = bench::outbound(databases, self.packets(&hub), self.batch_size());
        Ok((bench, footprint))
    }

    fn way_in(&self, sas: usize) -> Made<InboundBench> {
        let hub = self.hub(Flow::ToHub, sas);
        let (peers, _) = hub.databases(policy::Direction::Out)?;
        let sealed = bench::sealed(peers, self.packets(&hub), self.batch_size());
        let sealed = sealed.map_err(Failure::new)?;
        let (databases, footprint) = hub.databases(policy::Direction::In)?;
        let bench = bench::inbound(databases, sealed, self.batch_size());
        Ok((bench, footprint))
    }

    fn hub(&self, flow: Flow, sas: usize) -> Hub {
        Hub {
            suite: self.suite.clone(),
            flow,
            sas,
        }
    }

    /// The number of packets does not depend on that of associations, so that reading them displaces the same amount of
    /// cache.
    fn packets(&self, hub: &Hub) -> Vec<(Vec<u8>, dataplane::train::Offload)> {
        hub.packets(self.sas.max(self.batch), self.size)
    }

    fn batch_size(&self) -> BatchSize {
        const ROOM_FOR_HEADERS: usize = 128;
        let default = BatchSize::default();
        BatchSize {
            items: self.batch,
            bytes: default
                .bytes
                .max(self.batch * (self.size + ROOM_FOR_HEADERS)),
        }
    }

    fn compare<P, C>(
        &self,
        make: impl Fn(usize) -> Made<Bench<P, C>>,
        cpus: &[usize],
        time: Duration,
    ) -> Result<EngineRow, Failure>
    where
        P: Prepare,
        C: Commit<P::Batch> + 'static,
    {
        let (inline, footprint) = make(self.sas)?;
        let alone = (self.sas > 1).then(|| make(1)).transpose()?;
        let parallel = match cpus {
            [_, others @ ..] if !others.is_empty() => {
                let (bench, _) = make(self.sas)?;
                Some(bench.start(others.len(), others).map_err(Failure::new)?)
            }
            _ => None,
        };
        let keys: Vec<Key> = (0..self.sas).map(|sa| self.key(sa, Key::new)).collect();
        let padded = (self.size + TRAILER_BYTES).next_multiple_of(self.suite.align());
        let load = Case {
            size: padded,
            ..self.clone()
        }
        .load(&keys);
        let mut contest = Contest {
            inline,
            bare: Worker::new(&load, 0),
            alone: alone.map(|(bench, _)| bench),
            parallel,
        };
        let figures = contest.run(time).map_err(Failure::new)?;
        match contest.dropped() {
            0 => Ok(self.row(&figures, cpus.len(), footprint)),
            dropped => Err(Failure::new(format!(
                "the engine dropped {dropped} packets of {}, so the result is invalid: please report this",
                self.suite.name
            ))),
        }
    }

    fn row(&self, figures: &Figures, threads: usize, footprint: Option<Footprint>) -> EngineRow {
        let of = |part: fn(&StepTimes) -> f64| {
            median(&figures.inline.iter().map(part).collect::<Vec<_>>())
        };
        let inline: Vec<f64> = figures.rates(StepTimes::engine);
        let is_parallel = !figures.parallel.is_empty();
        let rates = if is_parallel {
            &figures.parallel
        } else {
            &inline
        };
        let ideal: Vec<f64> = figures
            .bare
            .iter()
            .map(|rate| rate * threads as f64)
            .collect();
        EngineRow {
            suite: self.suite.name.clone(),
            direction: self.direction,
            bytes: self.size,
            packets_per_second: median(rates),
            step_times: StepTimes {
                read: of(|step_times| step_times.read),
                prepare: of(|step_times| step_times.prepare),
                transform: of(|step_times| step_times.transform),
                commit: of(|step_times| step_times.commit),
            },
            kernel_packets_per_second: median(&ideal),
            of_kernel: Compared::of(rates, &ideal),
            // With several workers the reader works too, so reading is part of both measurements.
            speed_up: is_parallel.then(|| {
                Compared::of(
                    rates,
                    &figures.rates(|step_times| step_times.read + step_times.engine()),
                )
            }),
            of_one_sa: (!figures.alone.is_empty()).then(|| Compared::of(&inline, &figures.alone)),
            // For a single association it would be the memory of the tables around it.
            footprint: footprint.filter(|_| self.sas > 1),
        }
    }
}

/// The candidates that take turns.
struct Contest<'l, 'k, P: Prepare, C> {
    inline: Bench<P, C>,
    bare: Worker<'l, 'k>,
    alone: Option<Bench<P, C>>,
    parallel: Option<LaneBench<P, C>>,
}

/// The result of each turn: time per step, or packets per second.
#[derive(Default)]
struct Figures {
    inline: Vec<StepTimes>,
    bare: Vec<f64>,
    alone: Vec<f64>,
    parallel: Vec<f64>,
}

impl Figures {
    fn rates(&self, nanoseconds: impl Fn(&StepTimes) -> f64) -> Vec<f64> {
        self.inline
            .iter()
            .map(|step_times| 1e9 / nanoseconds(step_times))
            .collect()
    }
}

impl<P, C> Contest<'_, '_, P, C>
where
    P: Prepare,
    C: Commit<P::Batch> + 'static,
{
    fn run(&mut self, time: Duration) -> std::io::Result<Figures> {
        let turns = 2 + u32::from(self.alone.is_some()) + u32::from(self.parallel.is_some());
        let time = time / (turns * PAIRS as u32);
        self.round(time / 4, &mut Figures::default())?;
        let mut figures = Figures::default();
        for _ in 0..PAIRS {
            self.round(time, &mut figures)?;
        }
        Ok(figures)
    }

    fn round(&mut self, time: Duration, figures: &mut Figures) -> std::io::Result<()> {
        figures.inline.push(self.inline.step_times(time)?);
        figures.bare.push(self.bare.turn(time, Instant::now()));
        if let Some(alone) = &mut self.alone {
            figures.alone.push(1e9 / alone.step_times(time)?.engine());
        }
        if let Some(parallel) = &mut self.parallel {
            figures.parallel.push(parallel.rate(time)?);
        }
        Ok(())
    }

    fn dropped(&self) -> u64 {
        let alone = self.alone.as_ref().map_or(0, Bench::dropped);
        let parallel = self.parallel.as_ref().map_or(0, LaneBench::dropped);
        self.inline.dropped() + alone + parallel
    }
}
