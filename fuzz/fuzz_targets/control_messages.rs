//! Any bytes as the control messages of a raw socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dataplane::io::fuzz_body::control_messages(data));
