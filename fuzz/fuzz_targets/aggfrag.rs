//! Any bytes as AGGFRAG payloads.
#![no_main]

#[path = "../bodies/aggfrag.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
