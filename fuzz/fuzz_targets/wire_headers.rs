//! Any bytes as every header there is.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ipsec::wire::fuzz_body::headers(data));
