//! The suites the lab can ask for, one row each, in the words of everybody who must understand them: the setkey language,
//! strongSwan's proposals and Wireshark's key table.

/// One way to protect packets.
#[derive(Debug, PartialEq, Eq)]
pub struct Suite {
    /// As a spec says it.
    pub name: &'static str,
    /// As a reader sees it.
    pub label: &'static str,
    /// `-E` of setkey.
    pub cipher: &'static str,
    /// Bytes of its key, with the salt for counter modes.
    pub cipher_key: usize,
    /// `-A` of setkey; empty without.
    pub hash: &'static str,
    /// Bytes of its key.
    pub hash_key: usize,
    /// strongSwan's name of the ESP proposal, where kernel-libipsec can do it.
    pub strongswan: Option<&'static str>,
    /// Wireshark's names of cipher and integrity algorithm, where it can decrypt the suite and verify its ICV: the 4.0 of
    /// Debian 12 cannot do ChaCha20-Poly1305, and without an ICV there is nothing to verify.
    pub wireshark: Option<(&'static str, &'static str)>,
}

const SHA1: &str = "HMAC-SHA-1-96 [RFC2404]";
const SHA256: &str = "HMAC-SHA-256-128 [RFC4868]";
const CBC: &str = "AES-CBC [RFC3602]";
const GCM: &str = "AES-GCM with 16 octet ICV [RFC4106]";

#[rustfmt::skip]
const fn row(
    name: &'static str, label: &'static str,
    (cipher, cipher_key): (&'static str, usize), (hash, hash_key): (&'static str, usize),
    strongswan: Option<&'static str>, wireshark: Option<(&'static str, &'static str)>,
) -> Suite {
    Suite { name, label, cipher, cipher_key, hash, hash_key, strongswan, wireshark }
}

/// Every suite.
#[rustfmt::skip]
pub const SUITES: [Suite; 10] = [
    row("null", "NULL", ("null", 0), ("", 0), None, None),
    row("null-sha1", "NULL + SHA1", ("null", 0), ("hmac-sha1", 20), Some("null-sha1"), Some(("NULL", SHA1))),
    row("aes-128-gcm", "AES-128-GCM", ("aes-gcm-16", 20), ("", 0), Some("aes128gcm16"), Some((GCM, "NULL"))),
    row("aes-256-gcm", "AES-256-GCM", ("aes-gcm-16", 36), ("", 0), Some("aes256gcm16"), Some((GCM, "NULL"))),
    row("chacha20-poly1305", "ChaCha20-Poly1305", ("chacha20-poly1305", 36), ("", 0), Some("chacha20poly1305"), None),
    row("aes-128-cbc-sha1", "AES-128-CBC + SHA1", ("aes-cbc", 16), ("hmac-sha1", 20), Some("aes128-sha1"), Some((CBC, SHA1))),
    row("aes-192-cbc-sha1", "AES-192-CBC + SHA1", ("aes-cbc", 24), ("hmac-sha1", 20), Some("aes192-sha1"), Some((CBC, SHA1))),
    row("aes-256-cbc-sha1", "AES-256-CBC + SHA1", ("aes-cbc", 32), ("hmac-sha1", 20), Some("aes256-sha1"), Some((CBC, SHA1))),
    row("aes-256-cbc-sha256", "AES-256-CBC + SHA256", ("aes-cbc", 32), ("hmac-sha2-256", 32), Some("aes256-sha256"), Some((CBC, SHA256))),
    row("3des-sha1", "3DES + SHA1", ("3des-cbc", 24), ("hmac-sha1", 20), Some("3des-sha1"), Some(("TripleDES-CBC [RFC2451]", SHA1))),
];

/// The suite of this name.
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

impl Suite {
    /// Whether it hides what is sent.
    pub fn hides(&self) -> bool {
        self.cipher != "null"
    }
}
