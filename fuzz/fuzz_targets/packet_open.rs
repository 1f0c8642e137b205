//! Any bytes as an ESP packet, as it is, and sealed with a valid ICV.
#![no_main]

#[path = "../bodies/packet_open.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
