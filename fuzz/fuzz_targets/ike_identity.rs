//! Any bytes as an identity, on the wire and as text.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ikev2::identity::fuzz_body::identities(data));
