//! Order kept while many threads work: prepare → transform → commit, for either direction.
//!
//! ```text
//!   source ──► prepare ──► lane ──► transform ──► commit ──► sink
//!   └── the reading thread ──┘      any worker,   whoever finishes
//!                                   or itself     the head
//! ```

pub mod affinity;
pub mod event;
pub mod lane;
pub mod pump;
pub mod wake;
pub mod worker;
