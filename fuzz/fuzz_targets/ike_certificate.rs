//! Any bytes as a peer's certificates, roots and revocation lists.
#![no_main]

#[path = "../bodies/ike_certificate.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
