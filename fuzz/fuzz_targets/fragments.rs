//! Any bytes as packets one after the other, reassembled and cut again.
#![no_main]

#[path = "../bodies/fragments.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
