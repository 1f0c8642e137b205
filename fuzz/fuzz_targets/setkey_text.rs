//! Any bytes as a setkey text: parsed, lowered, printed, parsed again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ipsec::setkey::check_any_text(data));
