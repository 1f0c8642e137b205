//! The pipeline of one direction: prepare → transform → commit, in order while many threads transform.
//!
//! ```text
//!   source ──► prepare ──► lane ──► transform ──► lane ──► commit ──► sink
//!   └── the reading thread ──┘      any worker,    └── the reading thread ──┘
//!                                   or itself
//! ```

pub mod affinity;
pub mod choice;
pub mod cpu_time;
pub mod event;
pub mod governor;
pub mod hold;
pub mod lane;
pub mod lane_stats;
pub(crate) mod migration;
pub mod priority;
pub mod pump;
pub mod source_sleep;
pub mod wake;
pub mod worker;
