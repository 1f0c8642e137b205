//! What is proposed where nothing is configured.

use super::Offer;
use crate::message::payload::Protocol;

/// Groups in the order of preference.
const GROUPS: &str = "x25519-ecp256-ecp384-ecp521-modp3072-modp4096-modp2048";

/// What is proposed and accepted where nothing is configured: no algorithm with a known weakness, AEAD before
/// encrypt-then-MAC (which older peers need), and among equally safe algorithms the fastest first. `aes_is_fast`: the
/// processor has instructions for AES; without them ChaCha20 is several times faster.
pub fn default_offers(protocol: Protocol, aes_is_fast: bool) -> Vec<Offer> {
    let aead = if aes_is_fast {
        "aes256gcm16-aes128gcm16-chacha20poly1305"
    } else {
        "chacha20poly1305-aes256gcm16-aes128gcm16"
    };
    let texts = match protocol {
        Protocol::IKE => vec![
            format!("{aead}-prfsha384-prfsha512-prfsha256-{GROUPS}"),
            format!("aes256-aes128-sha384-sha512-sha256-{GROUPS}"),
        ],
        Protocol::AH => vec!["sha256-sha384-sha512".to_owned()],
        _ => vec![
            aead.to_owned(),
            "aes256-aes128-sha256-sha384-sha512".to_owned(),
        ],
    };
    // INVARIANT: a test reads all of them.
    let offer = |text: &String| Offer::parse(text, protocol).expect("a suite of the table");
    texts.iter().map(offer).collect()
}
