//! Message IDs, windows and retransmission (RFC 7296 2.1 to 2.3), as functions of state and time.
//!
//! Each end of an IKE SA has one of each:
//!
//! ```text
//!   Requests    those sent: which ID comes next, which are unanswered, when each is sent again, when to give up
//!   Responses   those received: which are new, and the answer to each: a request sent again gets the same bytes
//! ```

mod by_id;
mod requests;
mod responses;

pub use requests::{Due, Requests, Schedule};
pub use responses::{Received, Responses};

/// How many requests may be unanswered at a time, even if the peer allows more (RFC 7296 2.3: without SET_WINDOW_SIZE
/// it allows 1).
pub const MAX_WINDOW: u32 = 16;

/// The datagrams of one message: several if it was cut into fragments.
pub type Datagrams = Vec<Vec<u8>>;

#[cfg(test)]
mod tests;
