//! The suites of the lab, one row each, with their names in the setkey language, in strongSwan's proposals and in
//! Wireshark's key table.

/// One way to protect packets.
#[derive(Debug, PartialEq, Eq)]
pub struct Suite {
    /// As a spec names it.
    pub name: &'static str,
    /// As a reader sees it.
    pub label: &'static str,
    /// `-E` of setkey; empty for AH.
    pub cipher: &'static str,
    /// Bytes of its key, with the salt for counter modes.
    pub cipher_key: usize,
    /// `-A` of setkey; empty without.
    pub hash: &'static str,
    /// Bytes of its key.
    pub hash_key: usize,
    /// strongSwan's name of the ESP proposal, where kernel-libipsec can do it.
    pub strongswan: Option<&'static str>,
    /// Wireshark's names of cipher and integrity algorithm, where it can decrypt the suite and verify its ICV: the 4.0
    /// of Debian 12 cannot do ChaCha20-Poly1305, and without an ICV there is nothing to verify.
    pub wireshark: Option<(&'static str, &'static str)>,
}

const SHA1: &str = "HMAC-SHA-1-96 [RFC2404]";
const MD5: &str = "HMAC-MD5-96 [RFC2403]";
const DES: &str = "DES-CBC [RFC2405]";
const TRIPLE_DES: &str = "TripleDES-CBC [RFC2451]";
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
pub(crate) const SUITES: [Suite; 25] = [
    row("null", "NULL", ("null", 0), ("", 0), None, None),
    row("null-sha1", "NULL + SHA1", ("null", 0), ("hmac-sha1", 20), Some("null-sha1"), Some(("NULL", SHA1))),
    row("aes-128-gcm", "AES-128-GCM", ("aes-gcm-16", 20), ("", 0), Some("aes128gcm16"), Some((GCM, "NULL"))),
    row("aes-256-gcm", "AES-256-GCM", ("aes-gcm-16", 36), ("", 0), Some("aes256gcm16"), Some((GCM, "NULL"))),
    row("chacha20-poly1305", "ChaCha20-Poly1305", ("chacha20-poly1305", 36), ("", 0), Some("chacha20poly1305"), None),
    row("aes-128-cbc", "AES-128-CBC", ("aes-cbc", 16), ("", 0), None, None),
    row("aes-192-cbc", "AES-192-CBC", ("aes-cbc", 24), ("", 0), None, None),
    row("aes-256-cbc", "AES-256-CBC", ("aes-cbc", 32), ("", 0), None, None),
    row("aes-128-cbc-md5", "AES-128-CBC + MD5", ("aes-cbc", 16), ("hmac-md5", 16), Some("aes128-md5"), Some((CBC, MD5))),
    row("aes-192-cbc-md5", "AES-192-CBC + MD5", ("aes-cbc", 24), ("hmac-md5", 16), Some("aes192-md5"), Some((CBC, MD5))),
    row("aes-256-cbc-md5", "AES-256-CBC + MD5", ("aes-cbc", 32), ("hmac-md5", 16), Some("aes256-md5"), Some((CBC, MD5))),
    row("aes-128-cbc-sha1", "AES-128-CBC + SHA1", ("aes-cbc", 16), ("hmac-sha1", 20), Some("aes128-sha1"), Some((CBC, SHA1))),
    row("aes-192-cbc-sha1", "AES-192-CBC + SHA1", ("aes-cbc", 24), ("hmac-sha1", 20), Some("aes192-sha1"), Some((CBC, SHA1))),
    row("aes-256-cbc-sha1", "AES-256-CBC + SHA1", ("aes-cbc", 32), ("hmac-sha1", 20), Some("aes256-sha1"), Some((CBC, SHA1))),
    row("aes-128-cbc-sha256", "AES-128-CBC + SHA256", ("aes-cbc", 16), ("hmac-sha2-256", 32), Some("aes128-sha256"), Some((CBC, SHA256))),
    row("aes-256-cbc-sha256", "AES-256-CBC + SHA256", ("aes-cbc", 32), ("hmac-sha2-256", 32), Some("aes256-sha256"), Some((CBC, SHA256))),
    row("des", "DES", ("des-cbc", 8), ("", 0), None, None),
    row("des-md5", "DES + MD5", ("des-cbc", 8), ("hmac-md5", 16), None, Some((DES, MD5))),
    row("des-sha1", "DES + SHA1", ("des-cbc", 8), ("hmac-sha1", 20), None, Some((DES, SHA1))),
    row("3des", "3DES", ("3des-cbc", 24), ("", 0), None, None),
    row("3des-md5", "3DES + MD5", ("3des-cbc", 24), ("hmac-md5", 16), Some("3des-md5"), Some((TRIPLE_DES, MD5))),
    row("3des-sha1", "3DES + SHA1", ("3des-cbc", 24), ("hmac-sha1", 20), Some("3des-sha1"), Some((TRIPLE_DES, SHA1))),
    row("ah-md5", "AH, MD5", ("", 0), ("hmac-md5", 16), None, None),
    row("ah-sha1", "AH, SHA1", ("", 0), ("hmac-sha1", 20), None, None),
    row("ah-sha256", "AH, SHA256", ("", 0), ("hmac-sha2-256", 32), None, None),
];

/// The suite of this name.
pub(crate) fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

impl Suite {
    /// Whether it hides what is sent.
    pub fn hides(&self) -> bool {
        !matches!(self.cipher, "null" | "")
    }

    /// Whether it is AH alone.
    pub fn is_ah(&self) -> bool {
        self.cipher.is_empty()
    }

    /// Bytes of IV in each packet.
    pub fn iv(&self) -> u32 {
        match self.cipher {
            "aes-cbc" => 16,
            "null" | "" => 0,
            _ => 8,
        }
    }

    /// Bytes the cipher works on at a time; 1 for a stream.
    pub fn block(&self) -> u32 {
        match self.cipher {
            "aes-cbc" => 16,
            "des-cbc" | "3des-cbc" => 8,
            _ => 1,
        }
    }

    /// Bytes of ICV that the cipher itself adds.
    pub fn cipher_icv(&self) -> u32 {
        match self.cipher {
            "aes-gcm-16" | "chacha20-poly1305" => 16,
            _ => 0,
        }
    }

    /// Bytes of ICV that the hash adds: RFC 2403, RFC 2404 and RFC 4868 cut it.
    pub fn hash_icv(&self) -> u32 {
        match self.hash {
            "" => 0,
            "hmac-sha2-256" => 16,
            _ => 12,
        }
    }
}
