//! The IKEv2 RFCs as pure code: no threads, no clock, no sockets, no randomness.
//!
//! Time and random bytes are arguments, so that every exchange can be repeated in a test. The modules in the order in
//! which a message passes through them:
//!
//! ```text
//!   message      bytes <-> header and payloads (RFC 7296 section 3)
//!   encrypted    seal and open encrypted payloads        fragments    join those that came in parts (RFC 7383)
//!   window       message IDs, requests sent again, answers kept for requests that come again
//!   negotiation  which algorithms and which traffic both ends agree on, and why not
//!   groups       key exchange: public values and the shared secret
//!   prf, keys    from the shared secret to every key (RFC 7296 2.13 to 2.18)
//!   signatures   signing keys, choice of the algorithm   authentication  the data that AUTH covers (RFC 7296 2.15)
//!   identity     the contents of ID payloads             certificate  chains that prove identities
//!   connection   what is configured about a peer         work         what needs secrets or much arithmetic
//!   endpoint     all IKE SAs: input in, actions out
//! ```

#![forbid(unsafe_code)]

// Unit tests run the bodies of fuzz targets, which name the crate as other crates do.
#[cfg(test)]
extern crate self as ikev2;

pub mod authentication;
pub mod certificate;
pub mod child_sa;
pub mod connection;
mod cookie;
pub mod encrypted;
pub mod endpoint;
mod exchange;
pub mod fragments;
pub mod groups;
pub mod identity;
mod ike_sa;
pub mod keys;
pub mod message;
mod nat;
pub mod negotiation;
pub mod prf;
mod serialized;
pub mod signatures;
pub mod window;
pub mod work;
