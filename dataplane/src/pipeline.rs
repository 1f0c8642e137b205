//! Order kept while many threads work: prepare → transform → commit, for either direction.
//!
//! ```text
//!   source ──► prepare ──► lane ──► transform ──► commit ──► sink
//!   └── the reading thread ──┘      any worker,   whoever finishes
//!                                   or itself     the head
//! ```

pub mod affinity;
pub mod choice;
pub mod event;
pub mod governor;
pub mod lane;
pub mod load;
pub mod meter;
pub mod priority;
pub mod pump;
pub mod wake;
pub mod worker;
