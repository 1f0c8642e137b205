//! Any bytes as a capture file, pcap or pcapng.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::capture::fuzz_body::file(data));
