//! One security association: its configuration, fixed for life, apart from its state, which outlives snapshots.
//!
//! ```text
//!   SaConfig ── immutable, part of every Snapshot ──►  Sa { config, key, state: Arc<SaState> }
//!   SaState  ── sequence numbers, replay window, lifetimes, counters: shared by all snapshots that hold the SA
//! ```
//!
//! An update replaces the configuration and keeps the state; delete and add makes a new state (RFC 4301 4.4.2.1).

mod association;
mod config;
mod identifiers;
mod lifetime_limits;
mod offload;
mod phase;
pub mod replay;
mod state;

pub use association::Sa;
pub use config::{DontFragment, Dscp, Mode, SaConfig, UdpEncapsulation};
pub use identifiers::{Protocol, Reqid, SaId, SequenceNumber, Spi};
pub use lifetime_limits::{LifetimeLimits, Lifetimes};
pub use offload::{Offload, OffloadKind};
pub use phase::Phase;
pub use state::{LifetimeEvent, LockedState, SaState, SaUsage, SavedCounters, SequenceTooHigh};
