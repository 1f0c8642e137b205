//! Suites that RFCs give a name, and what is proposed where nothing is configured.

use super::Offer;
use crate::message::payload::Protocol;

/// What one name stands for, for IKE and for ESP.
#[derive(Debug)]
pub struct NamedSuite {
    /// The name, in lower case.
    pub name: &'static str,
    /// Which RFC names it.
    pub document: &'static str,
    ike: &'static str,
    esp: &'static str,
}

/// Every named suite.
#[rustfmt::skip]
pub static NAMED_SUITES: [NamedSuite; 9] = [
    NamedSuite { name: "vpn-a", document: "RFC 4308 2.1", ike: "3des-sha1-prfsha1-modp1024", esp: "3des-sha1" },
    NamedSuite { name: "vpn-b", document: "RFC 4308 2.2", ike: "aes128-aesxcbc-prfaesxcbc-modp2048", esp: "aes128-aesxcbc" },
    NamedSuite { name: "suite-b-gcm-128", document: "RFC 6379 3.1", ike: "aes128-sha256-prfsha256-ecp256", esp: "aes128gcm16" },
    NamedSuite { name: "suite-b-gcm-256", document: "RFC 6379 3.2", ike: "aes256-sha384-prfsha384-ecp384", esp: "aes256gcm16" },
    NamedSuite { name: "suite-b-gmac-128", document: "RFC 6379 3.3", ike: "aes128-sha256-prfsha256-ecp256", esp: "aes128gmac" },
    NamedSuite { name: "suite-b-gmac-256", document: "RFC 6379 3.4", ike: "aes256-sha384-prfsha384-ecp384", esp: "aes256gmac" },
    NamedSuite { name: "cnsa-gcm-256-ecdh-384", document: "RFC 9206 5", ike: "aes256gcm16-prfsha512-ecp384", esp: "aes256gcm16" },
    NamedSuite { name: "cnsa-gcm-256-dh-3072", document: "RFC 9206 5", ike: "aes256gcm16-prfsha512-modp3072", esp: "aes256gcm16" },
    NamedSuite { name: "cnsa-gcm-256-dh-4096", document: "RFC 9206 5", ike: "aes256gcm16-prfsha512-modp4096", esp: "aes256gcm16" },
];

impl NamedSuite {
    /// The suite of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        NAMED_SUITES.iter().find(|suite| suite.name == name)
    }

    /// Its algorithms by name. AH has no named suites: its text is that of ESP, which AH refuses.
    pub fn text(&self, protocol: Protocol) -> &'static str {
        match protocol {
            Protocol::IKE => self.ike,
            _ => self.esp,
        }
    }
}

const GROUPS: &str = "x25519-ecp256-ecp384-ecp521-modp3072-modp4096-modp2048";

/// What is proposed and taken where nothing is configured: no algorithm with a known weakness, AEAD before encrypt-then-MAC
/// (which older peers need), and of what is equally safe the fastest first. `aes_is_fast` says whether the processor has
/// instructions for AES; where it has none, ChaCha20 is several times faster.
pub fn default_offers(protocol: Protocol, aes_is_fast: bool) -> Vec<Offer> {
    let aead = match aes_is_fast {
        true => "aes256gcm16-aes128gcm16-chacha20poly1305",
        false => "chacha20poly1305-aes256gcm16-aes128gcm16",
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
    let offer = |text: &String| Offer::parse(text, protocol).expect("a suite of ours");
    texts.iter().map(offer).collect()
}
