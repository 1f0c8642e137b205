//! What is wrong in a spec, where, and what to write instead.

use std::ops::Range;

/// Something wrong at a place of the file.
#[derive(Debug)]
pub(super) struct Diagnostic {
    pub at: Range<usize>,
    pub what: String,
    pub advice: String,
}
