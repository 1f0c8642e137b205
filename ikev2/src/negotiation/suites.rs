//! Suites that RFCs give a name.

use crate::message::payload::Protocol;

/// The algorithms of one name, for IKE and for ESP.
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
