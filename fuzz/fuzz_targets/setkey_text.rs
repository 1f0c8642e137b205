//! Any bytes as a setkey text: parsed, lowered, printed, parsed again.
#![no_main]

#[path = "../bodies/setkey_text.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
