//! Certificates: what one says, whether a chain leads to somebody who is trusted, and whether it names the peer.
//!
//! ```text
//!   certificate   one certificate: names, key, usage
//!   trust         roots and revocation lists, and the road from a peer's certificate to a root
//!   failure       which check of which certificate failed
//! ```
//!
//! rustls-webpki builds and checks paths; key usage and the names of IKE are checked here, because it knows them not.

mod failure;
pub mod fuzz_body;
mod parsed;
mod trust;

pub use failure::{Check, Failure};
pub use parsed::{Certificate, CertificateError};
pub use rustls_pki_types::UnixTime;
pub use trust::{Revocation, Trust, TrustError};

#[cfg(test)]
mod tests;
