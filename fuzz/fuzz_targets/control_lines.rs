//! Any bytes as a line of the control socket, from either end.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::control::fuzz_body::lines(data));
