//! Any bytes as every header there is.
#![no_main]

#[path = "../bodies/wire_headers.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
