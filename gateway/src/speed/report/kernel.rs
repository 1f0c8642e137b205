//! The ciphers alone: a row, its columns, its keys in JSON.

use super::run::{Run, gbit};
use crate::speed::options::Direction;
use serde::{Serialize, Serializer};

/// The note below the table, for a terminal.
pub(super) const NOTE: &str =
    "The library processes one packet at a time, with expanded keys and cached HMAC states.";

/// What was found about the ciphers of one suite.
pub(crate) struct KernelRow {
    pub(crate) suite: String,
    pub(crate) direction: Direction,
    pub(crate) bytes: usize,
    pub(crate) packets_per_second: f64,
    pub(crate) library: &'static str,
    pub(crate) library_packets_per_second: f64,
    pub(crate) ratio: f64,
    pub(crate) ratio_interval: [f64; 2],
    pub(crate) bytes_per_sa: Option<usize>,
}

impl Serialize for KernelRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            suite: &'a str,
            direction: Direction,
            bytes: usize,
            gbit_per_second: f64,
            packets_per_second: f64,
            library: &'a str,
            library_gbit_per_second: f64,
            library_packets_per_second: f64,
            ratio: f64,
            ratio_95: [f64; 2],
            bytes_per_sa: Option<usize>,
        }
        Flat {
            suite: &self.suite,
            direction: self.direction,
            bytes: self.bytes,
            gbit_per_second: gbit(self.packets_per_second, self.bytes),
            packets_per_second: self.packets_per_second,
            library: self.library,
            library_gbit_per_second: gbit(self.library_packets_per_second, self.bytes),
            library_packets_per_second: self.library_packets_per_second,
            ratio: self.ratio,
            ratio_95: self.ratio_interval,
            bytes_per_sa: self.bytes_per_sa,
        }
        .serialize(serializer)
    }
}

pub(super) fn head(run: &Run) -> String {
    format!(
        "{:<width$}  {:<4}  {:>5}  {:>8}  {:>8}  {:>8}   {:>8}  {:<10}  {:>6}  {:<13}\n",
        "suite",
        "",
        "bytes",
        "Gbit/s",
        "Mpacket/s",
        "cycles/B",
        "Gbit/s",
        "library",
        "ratio",
        "95 %",
        width = run.name_width
    )
}

impl KernelRow {
    pub(super) fn line(&self, run: &Run) -> String {
        let [low, high] = self.ratio_interval;
        format!(
            "{:<width$}  {}  {:>5}  {:>8.2}  {:>9.3}  {:>8}   {:>8.2}  {:<10}  {:>5.2}x  {low:.2} to {high:.2}\n",
            self.suite,
            self.direction.word(),
            self.bytes,
            gbit(self.packets_per_second, self.bytes),
            self.packets_per_second / 1e6,
            run.cycles_per_byte(self.packets_per_second, self.bytes),
            gbit(self.library_packets_per_second, self.bytes),
            self.library,
            self.ratio,
            width = run.name_width
        )
    }
}
