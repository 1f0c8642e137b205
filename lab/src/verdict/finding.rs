//! What one look at the readings finds.

/// What limits, in a word, and a sentence with the evidence.
pub(super) type Finding = Option<(&'static str, String)>;

/// A thread that had a processor for this share of the time had it nearly always.
pub(super) const SATURATED_RATIO: f64 = 0.85;
