//! Any bytes as an ESP packet, as it is and made genuine.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ipsec::esp::fuzz_body::packets(data));
