//! Any bytes as a peer's certificates, roots and revocation lists.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ikev2::certificate::fuzz_body::certificates(data));
