//! The lines of Wireshark's tables, by the names that Wireshark 4.0 has for algorithms. For one that it cannot decrypt
//! the line is a comment with the key, for other programs.

use ikev2::endpoint::{ChildSa, LoggedKeys};
use ikev2::message::payload::Protocol;
use ipsec::algorithm::{Encryption, Integrity};
use ipsec::suite::{Secret, Suite};
use std::fmt::Write as _;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// Text with keys: zeroed when dropped, and long enough from the beginning that it never moves.
type Text = Zeroizing<String>;

/// Bytes of two lines with the longest addresses, names and keys.
const MAX_LINES_BYTES: usize = 2048;

fn text() -> Text {
    Zeroizing::new(String::with_capacity(MAX_LINES_BYTES))
}

/// SPIs, SK_ei, SK_er, the cipher, SK_ai, SK_ar, the integrity algorithm.
pub(super) fn ike_line(keys: &LoggedKeys) -> Text {
    let mut line = text();
    let suite = &keys.initiator;
    let name = suite
        .encryption()
        .and_then(|(row, key)| ike_cipher(row, key));
    if name.is_none() {
        line.push_str("# Wireshark has no name for this cipher: ");
        line.push_str(suite.encryption().map_or("none", |(row, _)| row.name));
        line.push(' ');
    }
    hex(&mut line, &keys.spis.initiator);
    line.push(',');
    hex(&mut line, &keys.spis.responder);
    for suite in [&keys.initiator, &keys.responder] {
        line.push(',');
        hex(&mut line, key_of(suite.encryption().map(|(_, key)| key)));
    }
    let _ = write!(line, ",\"{}\"", name.unwrap_or_default());
    for suite in [&keys.initiator, &keys.responder] {
        line.push(',');
        hex(&mut line, key_of(suite.integrity().map(|(_, key)| key)));
    }
    let integrity = suite
        .integrity()
        .map_or("NONE [RFC4306]", |(row, _)| ike_integrity(row));
    let _ = writeln!(line, ",\"{integrity}\"");
    line
}

/// A line for each direction. None of AH, which encrypts nothing.
pub(super) fn esp_lines(child: &ChildSa) -> Text {
    let mut lines = text();
    if child.protocol == Protocol::ESP {
        let (here, there) = (child.local, child.remote);
        esp_line(&mut lines, (there, here), child.inbound_spi, &child.inbound);
        esp_line(
            &mut lines,
            (here, there),
            child.outbound_spi,
            &child.outbound,
        );
    }
    lines
}

fn esp_line(lines: &mut Text, ends: (IpAddr, IpAddr), spi: u32, suite: &Suite) {
    let Some((row, key)) = suite.encryption() else {
        return;
    };
    let name = esp_cipher(row);
    if name.is_none() {
        let _ = write!(
            lines,
            "# Wireshark has no name for this cipher: {} ",
            row.name
        );
    }
    let family = if ends.0.is_ipv6() { "IPv6" } else { "IPv4" };
    let (source, destination) = ends;
    let name = name.unwrap_or_default();
    let _ = write!(
        lines,
        "\"{family}\",\"{source}\",\"{destination}\",\"0x{spi:08x}\",\"{name}\","
    );
    quoted(lines, Some(key));
    let integrity = suite.integrity();
    let name = integrity.map_or("NULL", |(row, _)| esp_integrity(row));
    let _ = write!(lines, ",\"{name}\",");
    quoted(lines, integrity.map(|(_, key)| key));
    lines.push('\n');
}

/// A key as `"0x…"`, or `""`.
fn quoted(line: &mut Text, key: Option<&Secret>) {
    let key = key_of(key);
    line.push_str(if key.is_empty() { "\"" } else { "\"0x" });
    hex(line, key);
    line.push('"');
}

fn key_of(key: Option<&Secret>) -> &[u8] {
    key.map_or(&[], Secret::expose)
}

fn hex(line: &mut Text, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(line, "{byte:02x}");
    }
}

fn ike_cipher(row: Encryption, key: &Secret) -> Option<String> {
    let bits = 8 * (key.expose().len() - row.salt_len);
    let combined =
        |mode: &str| format!("AES-{mode}-{bits} with {} octet ICV [RFC5282]", row.icv_len);
    Some(match row.name {
        "3des-cbc" => "3DES [RFC2451]".to_owned(),
        "aes-cbc" => format!("AES-CBC-{bits} [RFC3602]"),
        "aes-ctr" => format!("AES-CTR-{bits} [RFC5930]"),
        "aes-gcm-16" | "aes-gcm-12" | "aes-gcm-8" => combined("GCM"),
        "aes-ccm-16" | "aes-ccm-12" | "aes-ccm-8" => combined("CCM"),
        _ => return None,
    })
}

fn ike_integrity(row: Integrity) -> &'static str {
    match row.name {
        "hmac-md5" => "HMAC_MD5_96 [RFC2403]",
        "hmac-sha1" => "HMAC_SHA1_96 [RFC2404]",
        "hmac-sha2-256" => "HMAC_SHA2_256_128 [RFC4868]",
        "hmac-sha2-384" => "HMAC_SHA2_384_192 [RFC4868]",
        "hmac-sha2-512" => "HMAC_SHA2_512_256 [RFC4868]",
        _ => "ANY 96-bits of Authentication [No Checking]",
    }
}

fn esp_cipher(row: Encryption) -> Option<&'static str> {
    Some(match row.name {
        "null" => "NULL",
        "des-cbc" => "DES-CBC [RFC2405]",
        "3des-cbc" => "TripleDES-CBC [RFC2451]",
        "aes-cbc" => "AES-CBC [RFC3602]",
        "aes-ctr" => "AES-CTR [RFC3686]",
        "aes-gcm-16" => "AES-GCM with 16 octet ICV [RFC4106]",
        "aes-gcm-12" => "AES-GCM with 12 octet ICV [RFC4106]",
        "aes-gcm-8" => "AES-GCM with 8 octet ICV [RFC4106]",
        "blowfish-cbc" => "BLOWFISH-CBC [RFC2451]",
        "cast128-cbc" => "CAST5-CBC [RFC2144]",
        _ => return None,
    })
}

fn esp_integrity(row: Integrity) -> &'static str {
    match row.name {
        "hmac-md5" => "HMAC-MD5-96 [RFC2403]",
        "hmac-sha1" => "HMAC-SHA-1-96 [RFC2404]",
        "hmac-sha2-256" => "HMAC-SHA-256-128 [RFC4868]",
        "hmac-sha2-384" => "HMAC-SHA-384-192 [RFC4868]",
        "hmac-sha2-512" => "HMAC-SHA-512-256 [RFC4868]",
        _ => "ANY 96 bit authentication [no checking]",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ikev2::keys::IkeSpis;

    fn suite(cipher: &str, key: usize, integrity: Option<(&str, usize)>) -> Suite {
        let secret = |len| Secret::new(vec![0xab; len]);
        let encryption = (Encryption::named(cipher).unwrap(), secret(key));
        let integrity = integrity.map(|(name, len)| (Integrity::named(name).unwrap(), secret(len)));
        Suite::new(Some(encryption), integrity, None).unwrap()
    }

    fn logged(suite: Suite) -> LoggedKeys {
        LoggedKeys {
            spis: IkeSpis {
                initiator: [1; 8],
                responder: [2; 8],
            },
            initiator: suite.clone(),
            responder: suite,
        }
    }

    #[test]
    fn lines_name_algorithms_as_wireshark_does() {
        let gcm = ike_line(&logged(suite("aes-gcm-16", 36, None)));
        let key = "ab".repeat(36);
        assert_eq!(
            *gcm,
            format!(
                "0101010101010101,0202020202020202,{key},{key},\"AES-GCM-256 with 16 octet ICV [RFC5282]\",,,\
                 \"NONE [RFC4306]\"\n"
            )
        );
        let mut line = text();
        let ends = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        esp_line(
            &mut line,
            ends,
            0x1001,
            &suite("aes-cbc", 16, Some(("hmac-sha2-256", 32))),
        );
        let (cipher, hash) = ("ab".repeat(16), "ab".repeat(32));
        assert_eq!(
            *line,
            format!(
                "\"IPv4\",\"192.0.2.1\",\"192.0.2.2\",\"0x00001001\",\"AES-CBC [RFC3602]\",\"0x{cipher}\",\
                 \"HMAC-SHA-256-128 [RFC4868]\",\"0x{hash}\"\n"
            )
        );
    }

    #[test]
    fn what_wireshark_cannot_decrypt_is_a_comment() {
        let chacha = suite("chacha20-poly1305", 36, None);
        let mut line = text();
        let ends = (
            "2001:db8::1".parse().unwrap(),
            "2001:db8::2".parse().unwrap(),
        );
        esp_line(&mut line, ends, 7, &chacha);
        assert!(
            line.starts_with("# ") && line.contains("chacha20-poly1305"),
            "{}",
            *line
        );
        assert!(ike_line(&logged(chacha)).starts_with("# "));
    }

    #[test]
    fn the_longest_lines_fit_without_moving() {
        let longest = suite("blowfish-cbc", 56, Some(("hmac-sha2-512", 64)));
        let mut lines = text();
        let ends = (
            "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap(),
            "2001:db8::2".parse().unwrap(),
        );
        esp_line(&mut lines, ends, u32::MAX, &longest);
        esp_line(&mut lines, ends, u32::MAX, &longest);
        let ike = ike_line(&logged(suite("aes-cbc", 32, Some(("hmac-sha2-512", 64)))));
        assert!(lines.len() < MAX_LINES_BYTES && ike.len() < MAX_LINES_BYTES);
    }
}
