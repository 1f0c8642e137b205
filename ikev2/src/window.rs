//! Message IDs, windows and retransmission (RFC 7296 2.1 to 2.3), as functions of state and time.
//!
//! Each end of an IKE SA has one of both for the requests of each direction:
//!
//! ```text
//!   Requests    those sent: which ID comes next, which are unanswered, when each is sent again, when to give up
//!   Responses   those received: which are new, and the answer to each: a request sent again gets the same bytes
//! ```

mod requests;
mod responses;

pub use requests::{Due, Requests, Schedule};
pub use responses::{Received, Responses};

/// How many requests may be unanswered at a time, however many the peer allows (RFC 7296 2.3: 1 unless it says more).
pub const MAX_WINDOW: u32 = 16;

/// The datagrams of one message: several if it was cut into fragments.
pub type Datagrams = Vec<Vec<u8>>;

#[cfg(test)]
mod tests;
