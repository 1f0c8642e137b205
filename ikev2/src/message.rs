//! IKE messages (RFC 7296 section 3): bytes, and what they say.
//!
//! What was parsed borrows the bytes it was read from. Printing it gives the same bytes again, but for reserved bits: these
//! are ignored when read and zero when sent, as the RFC wants.

mod header;
mod malformed;
mod payload_type;

pub use header::{ExchangeType, Flags, HEADER_LEN, Header, HeaderError, IkeSpi};
pub use malformed::{Malformed, Place};
pub use payload_type::PayloadType;
