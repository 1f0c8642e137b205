//! Order kept while many threads work: prepare → transform → commit, for either direction.
//!
//! ```text
//!   source ──► prepare ──► lane ──► transform ──► lane ──► commit ──► sink
//!   └── the reading thread ──┘      any worker,    └── the reading thread ──┘
//!                                   or itself
//! ```

pub mod affinity;
pub mod choice;
pub(crate) mod crossing;
pub mod event;
pub mod governor;
pub mod lane;
pub mod load;
pub mod meter;
pub mod priority;
pub mod pump;
pub mod wake;
pub mod worker;
