//! Any bytes as an IKE message, and as what an encrypted payload held.
#![no_main]

#[path = "../bodies/ike_message.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
