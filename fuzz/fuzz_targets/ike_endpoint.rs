//! A sequence of messages and commands between two IKE endpoints.
#![no_main]

#[path = "../bodies/ike_endpoint.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
