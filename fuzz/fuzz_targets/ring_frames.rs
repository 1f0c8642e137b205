//! Any bytes as a frame of a packet ring.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dataplane::io::fuzz_body::ring_frames(data));
