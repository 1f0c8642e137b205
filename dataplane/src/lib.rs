//! How packets move fast and stay in order: devices, batches, lanes and workers.
//!
//! ```text
//!   plaintext side                                                                     protected side
//!   TUN device ──► Trains ──► prepare ──► transform ──► commit ──► Bursts ──► UDP or raw socket     outbound.rs
//!   TUN device ◄── Trains ◄── commit  ◄── transform ◄── prepare ◄── Arrivals ◄── UDP or raw socket   inbound.rs
//!                            (in order)  (any thread)  (in order)
//! ```
//!
//! `outbound` and `inbound` mirror each other; [`io`] has devices and sockets; `pipeline` keeps order while many
//! threads transform; [`train`] is a super-packet (GSO, GRO) and its segments.

pub mod bench;
pub mod buffers;
pub mod clock;
pub mod counters;
pub mod dummy;
pub mod engine;
pub mod inbound;
pub mod io;
pub mod iv;
pub mod notice;
pub mod outbound;
pub mod path_mtu;
pub mod pipeline;
mod syn;
pub mod train;

pub use engine::{DataPlane, Ends, Options, Totals, Wakers};
pub use notice::{Hook, Notice};
