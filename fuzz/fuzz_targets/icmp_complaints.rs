//! What the network says of path MTUs: a claim and a quote.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::run::fuzz_body::messages(data));
