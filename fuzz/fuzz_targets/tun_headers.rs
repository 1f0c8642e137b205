//! Any bytes as a virtio header and its packet.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dataplane::io::fuzz_body::tun_headers(data));
