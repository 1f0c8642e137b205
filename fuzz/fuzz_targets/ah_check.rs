//! Any bytes as a packet with AH, as it is, and with AH put into it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ipsec::ah::fuzz_body::packets(data));
