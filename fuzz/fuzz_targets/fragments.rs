//! Any bytes as packets one after the other, reassembled and cut again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ipsec::wire::fuzz_body::fragments(data));
