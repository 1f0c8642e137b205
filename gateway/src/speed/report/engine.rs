//! The whole engine: a row, its columns, its keys in JSON.

use super::run::{Run, gbit};
use crate::speed::hub::Footprint;
use crate::speed::options::Direction;
use crate::speed::statistics::interval;
use dataplane::bench::{StepTimes, median};
use serde::{Serialize, Serializer};

/// The note below the table, for a terminal.
pub(super) const NOTE: &str = "\
Prepare and commit are serial: more workers do not reduce them. Kernel: the ciphers alone on the same bytes and \
 number of
threads. With one thread, reading is not included in the time; with workers it is, because the reader is one of them.";

/// A ratio, and how far it may be off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) ratio: f64,
    pub(crate) interval: [f64; 2],
}

impl Compared {
    /// Of turns that alternated.
    pub(crate) fn of(figures: &[f64], others: &[f64]) -> Self {
        let ratios: Vec<f64> = figures.iter().zip(others).map(|(a, b)| a / b).collect();
        Self {
            ratio: median(&ratios),
            interval: interval(&ratios),
        }
    }

    fn cell(self) -> String {
        let [low, high] = self.interval;
        format!("   {:>5.2}x  {low:.2} to {high:.2}", self.ratio)
    }
}

/// What was found about the engine with one suite.
pub(crate) struct EngineRow {
    pub(crate) suite: String,
    pub(crate) direction: Direction,
    /// Of the packet inside.
    pub(crate) bytes: usize,
    pub(crate) packets_per_second: f64,
    pub(crate) step_times: StepTimes,
    /// Of all threads together.
    pub(crate) kernel_packets_per_second: f64,
    pub(crate) of_kernel: Compared,
    /// Several workers against one thread.
    pub(crate) speed_up: Option<Compared>,
    /// Many associations against one, on one thread.
    pub(crate) of_one_sa: Option<Compared>,
    pub(crate) footprint: Option<Footprint>,
}

impl Serialize for EngineRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Nanoseconds {
            read: f64,
            prepare: f64,
            transform: f64,
            commit: f64,
            serial: f64,
        }
        #[derive(Serialize)]
        struct Flat<'a> {
            suite: &'a str,
            direction: Direction,
            bytes: usize,
            gbit_per_second: f64,
            packets_per_second: f64,
            nanoseconds_per_packet: Nanoseconds,
            kernel_gbit_per_second: f64,
            kernel_packets_per_second: f64,
            ratio: f64,
            ratio_95: [f64; 2],
            speed_up: Option<f64>,
            speed_up_95: Option<[f64; 2]>,
            of_one_sa: Option<f64>,
            of_one_sa_95: Option<[f64; 2]>,
            bytes_per_sa: Option<usize>,
            bytes_per_policy: Option<usize>,
        }
        let step_times = &self.step_times;
        Flat {
            suite: &self.suite,
            direction: self.direction,
            bytes: self.bytes,
            gbit_per_second: gbit(self.packets_per_second, self.bytes),
            packets_per_second: self.packets_per_second,
            nanoseconds_per_packet: Nanoseconds {
                read: step_times.read,
                prepare: step_times.prepare,
                transform: step_times.transform,
                commit: step_times.commit,
                serial: step_times.serial(),
            },
            kernel_gbit_per_second: gbit(self.kernel_packets_per_second, self.bytes),
            kernel_packets_per_second: self.kernel_packets_per_second,
            ratio: self.of_kernel.ratio,
            ratio_95: self.of_kernel.interval,
            speed_up: self.speed_up.map(|of| of.ratio),
            speed_up_95: self.speed_up.map(|of| of.interval),
            of_one_sa: self.of_one_sa.map(|of| of.ratio),
            of_one_sa_95: self.of_one_sa.map(|of| of.interval),
            bytes_per_sa: self.footprint.map(|bytes| bytes.sa),
            bytes_per_policy: self.footprint.map(|bytes| bytes.policy),
        }
        .serialize(serializer)
    }
}

pub(super) fn head(run: &Run, has_workers: bool, has_many_sas: bool) -> String {
    let mut head = format!(
        "{:<width$}  {:<4}  {:>5}  {:>8}  {:>9}  {:>8}   {:>7}  {:>7}  {:>9} ns   {:>8}  {:>6}  {:<12}",
        "suite",
        "",
        "bytes",
        "Gbit/s",
        "Mpacket/s",
        "cycles/B",
        "prepare",
        "commit",
        "transform",
        "kernel",
        "ratio",
        "95 %",
        width = run.name_width
    );
    let asked = [(has_workers, "speed-up"), (has_many_sas, "of 1 SA")];
    for (_, title) in asked.into_iter().filter(|(asked, _)| *asked) {
        head += &format!("   {title:>8}{:>13}", "95 %");
    }
    head + "\n"
}

impl EngineRow {
    pub(super) fn line(&self, run: &Run) -> String {
        let mut line = format!(
            "{:<width$}  {}  {:>5}  {:>8.2}  {:>9.3}  {:>8}   {:>7.1}  {:>7.1}  {:>12.1}   {:>8.2}",
            self.suite,
            self.direction.word(),
            self.bytes,
            gbit(self.packets_per_second, self.bytes),
            self.packets_per_second / 1e6,
            run.cycles_per_byte(self.packets_per_second, self.bytes),
            self.step_times.prepare,
            self.step_times.commit,
            self.step_times.transform,
            gbit(self.kernel_packets_per_second, self.bytes),
            width = run.name_width
        );
        let compared = [Some(self.of_kernel), self.speed_up, self.of_one_sa];
        for of in compared.into_iter().flatten() {
            line += &of.cell();
        }
        line + "\n"
    }
}
