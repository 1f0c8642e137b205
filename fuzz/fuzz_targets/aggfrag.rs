#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ipsec::aggfrag::fuzz_body::payloads(data));
