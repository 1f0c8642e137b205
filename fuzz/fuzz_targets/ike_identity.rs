//! Any bytes as an identity, on the wire and as text.
#![no_main]

#[path = "../bodies/ike_identity.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
