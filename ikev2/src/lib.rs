//! What the IKEv2 RFCs say, as pure code: no threads, no clock, no sockets, no randomness.
//!
//! Time and random bytes are arguments, so that every exchange can be repeated in a test. The modules in the order in
//! which a message meets them:
//!
//! ```text
//!   message      bytes <-> header and payloads (RFC 7296 section 3)
//! ```

#![forbid(unsafe_code)]

pub mod message;
