//! What is kept of a trial: one JSON object on one line, self-contained, appended and synced as the trial ends. A
//! report needs nothing else, also on another machine and years later.

mod entry;
mod journal;
mod provenance;

use std::collections::BTreeSet;

pub use entry::{Outcome, Record, SCHEMA, Verdict};
pub use journal::{Journal, packed, read_all, read_text};
pub use provenance::Provenance;

/// The trials that need not run again, as `(round, order)`: those that came to an end, and with round 0 the contenders
/// that were found absent. One that the user interrupted is run again.
pub fn done(records: &[Record]) -> BTreeSet<(usize, usize)> {
    let ended = records
        .iter()
        .filter(|record| !matches!(record.outcome, Outcome::Interrupted { .. }));
    ended.map(|record| (record.round, record.order)).collect()
}

/// Why records do not go together.
pub const MIXED: &str = "these records mix a real and an emulated machine, whose figures cannot be compared. Run them into separate folders";

/// Whether some records are emulated and some are not.
pub fn mixed(records: &[Record]) -> bool {
    let emulated = records.iter().filter(|record| record.provenance.emulated);
    ![0, records.len()].contains(&emulated.count())
}
