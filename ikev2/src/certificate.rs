//! Certificates: their content, whether a chain leads to a trusted root, and whether it names the peer.
//!
//! ```text
//!   certificate   one certificate: names, key, usage
//!   constraints   which names a CA allows below it
//!   trust         roots and revocation lists, and the path from a peer's certificate to a root
//!   failure       which check of which certificate failed
//! ```
//!
//! rustls-webpki builds and checks paths; key usage, the names of IKE, and name constraints of names in a directory,
//! mail addresses and URIs are checked here, because it does not know them.

mod constraints;
mod failure;
mod parsed;
mod trust;

pub use failure::{Check, Failure, NameRule};
pub use parsed::{Certificate, CertificateError};
pub use rustls_pki_types::UnixTime;
pub use trust::{Revocation, Trust, TrustError, certificates};

#[cfg(test)]
mod tests;
