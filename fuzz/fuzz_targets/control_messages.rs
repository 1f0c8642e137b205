//! Any bytes as what a raw socket tells beside a packet.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dataplane::io::fuzz_body::control_messages(data));
