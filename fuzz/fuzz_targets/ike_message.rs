//! Any bytes as an IKE message, and as what an encrypted payload held.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ikev2::message::fuzz_body::messages(data));
