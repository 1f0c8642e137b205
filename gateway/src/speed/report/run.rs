//! What a row needs from the whole run.

/// What is the same in all rows.
pub(super) struct Run {
    pub(super) tsc_hertz: Option<f64>,
    pub(super) workers: u16,
    pub(super) name_width: usize,
}

impl Run {
    /// Cycles of the counter that all workers together spend on a byte.
    pub(super) fn cycles_per_byte(&self, packets_per_second: f64, bytes: usize) -> String {
        self.tsc_hertz.map_or("-".to_owned(), |hertz| {
            let cycles = hertz * f64::from(self.workers) / (packets_per_second * bytes as f64);
            format!("{cycles:.2}")
        })
    }
}

pub(super) fn gbit(packets_per_second: f64, bytes: usize) -> f64 {
    packets_per_second * (8 * bytes) as f64 / 1e9
}
