//! Certificates: their content, whether a chain leads to a trusted root, and whether it names the peer.
//!
//! ```text
//!   certificate   one certificate: names, key, usage
//!   trust         roots and revocation lists, and the path from a peer's certificate to a root
//!   failure       which check of which certificate failed
//! ```
//!
//! rustls-webpki builds and checks paths; key usage and the names of IKE are checked here, because it does not know
//! them.

mod failure;
mod parsed;
mod trust;

pub use failure::{Check, Failure};
pub use parsed::{Certificate, CertificateError};
pub use rustls_pki_types::UnixTime;
pub use trust::{Revocation, Trust, TrustError, certificates};

#[cfg(test)]
mod tests;
