//! Any bytes as a packet with AH, as it is, and with AH put into it.
#![no_main]

#[path = "../bodies/ah_check.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
