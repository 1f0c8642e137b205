//! Any bytes as what the kernel lists of nf_tables.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::routes::nftables::fuzz_body::answers(data));
