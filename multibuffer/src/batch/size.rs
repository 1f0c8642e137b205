//! How many jobs go together.

/// Jobs that are sorted by suite together.
pub(crate) const WINDOW_JOBS: usize = 256;

/// Jobs that go through cipher and MAC together: this many full packets stay in the second-level cache.
///
/// MEASURED: against 32, 4 to 10 % more at 64 bytes and the same at 1408 (Xeon, family 6 model 207; `--example
/// versus`).
pub(super) const STRIDE_JOBS: usize = 64;
