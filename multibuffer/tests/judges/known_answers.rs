//! Known answers of the RFCs, NIST and OpenSSL through `seal`, `open` and `sign`.

mod files;
mod macs;

use std::collections::HashMap;

use multibuffer::{Cipher, Integrity, Iv, Key};

use crate::harness::{self, Packet, hex, vector_file};

/// One vector: key, input and the expected output.
struct Answer {
    name: String,
    cipher: Cipher,
    key: Vec<u8>,
    iv: Vec<u8>,
    aad: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    icv_len: usize,
}

impl Answer {
    fn judge(self) {
        let Self {
            name,
            cipher,
            key,
            iv,
            aad,
            plain,
            sealed,
            icv_len,
        } = self;
        let key = Key::new(cipher, &key, Integrity::None, &[], icv_len)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let cuts = [plain.len() / 4, plain.len() / 2];
        let packet = Packet {
            aad,
            aad_tail: vec![],
            iv: Iv::new(&iv),
            plain,
            cuts,
        };
        assert_eq!(harness::seal_one(&key, &packet), sealed, "{name}");
        assert_eq!(
            harness::open_one(&key, &packet, &sealed),
            Some(packet.plain),
            "{name}"
        );
    }
}

fn cbc(cipher: Cipher, key: &str, iv: &str, plain: &str, sealed: &str) {
    let [key, iv, plain, sealed] = [key, iv, plain, sealed].map(hex);
    let name = format!("{cipher:?}");
    Answer {
        name,
        cipher,
        key,
        iv,
        aad: vec![],
        plain,
        sealed,
        icv_len: 0,
    }
    .judge();
}

/// The stanzas of a NIST-style text file: `name = value` lines between empty ones. Lines without `=` are ignored.
fn stanzas(name: &str) -> Vec<HashMap<String, String>> {
    let text = String::from_utf8(vector_file(&format!("kat/{name}")))
        .expect("text")
        .replace('\r', "");
    let stanza = |block: &str| {
        let lines = block
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once('='));
        lines
            .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_string()))
            .collect()
    };
    text.split("\n\n")
        .map(stanza)
        .filter(|fields: &HashMap<_, _>| fields.len() > 2)
        .collect()
}

#[test]
fn aes_cbc_answers_of_nist() {
    let mut judged = 0;
    for file in [
        "CBCGFSbox128",
        "CBCKeySbox256",
        "CBCMMT128",
        "CBCMMT192",
        "CBCMMT256",
    ] {
        for case in stanzas(&format!("ciphers__AES__CBC__{file}.rsp")) {
            cbc(
                Cipher::AesCbc,
                &case["key"],
                &case["iv"],
                &case["plaintext"],
                &case["ciphertext"],
            );
            judged += 1;
        }
    }
    assert_eq!(judged, 106);
}

#[test]
fn triple_des_answers_of_nist() {
    let mut judged = 0;
    for file in [
        "TCBCMMT1",
        "TCBCMMT2",
        "TCBCMMT3",
        "TCBCsubtab",
        "TCBCvarkey",
        "TCBCvartext",
    ] {
        for case in stanzas(&format!("ciphers__3DES__CBC__{file}.rsp")) {
            let key = match case.get("keys") {
                Some(each) => each.repeat(3),
                None => [&*case["key1"], &case["key2"], &case["key3"]].concat(),
            };
            cbc(
                Cipher::TripleDesCbc,
                &key,
                &case["iv"],
                &case["plaintext"],
                &case["ciphertext"],
            );
            if let Some(single) = case.get("keys") {
                // Three equal keys are single DES.
                cbc(
                    Cipher::DesCbc,
                    single,
                    &case["iv"],
                    &case["plaintext"],
                    &case["ciphertext"],
                );
            }
            judged += 1;
        }
    }
    assert_eq!(judged, 338);
}

#[test]
fn des_cbc_answer_of_fips_81() {
    let plain = "4e6f77206973207468652074696d6520666f7220616c6c20";
    let sealed = "e5c7cdde872bf27c43e934008c389c0f683788499a7c05f6";
    cbc(
        Cipher::DesCbc,
        "0123456789abcdef",
        "1234567890abcdef",
        plain,
        sealed,
    );
}

#[test]
fn camellia_answers_of_rfc_3713() {
    let key = "0123456789abcdeffedcba9876543210";
    let (iv, plain) = ("00".repeat(16), key);
    cbc(
        Cipher::CamelliaCbc,
        key,
        &iv,
        plain,
        "67673138549669730857065648eabe43",
    );
    let longer = format!("{key}0011223344556677");
    cbc(
        Cipher::CamelliaCbc,
        &longer,
        &iv,
        plain,
        "b4993401b3e996f84ee5cee7d79b09b9",
    );
    let longest = format!("{longer}8899aabbccddeeff");
    cbc(
        Cipher::CamelliaCbc,
        &longest,
        &iv,
        plain,
        "9acc237dff16d76c20ef7c919e3a7509",
    );
}

#[test]
fn cast_128_answers_of_rfc_2144() {
    let (iv, plain) = ("00".repeat(8), "0123456789abcdef");
    cbc(
        Cipher::Cast128Cbc,
        "0123456712345678234567893456789a",
        &iv,
        plain,
        "238b4fe5847e44b2",
    );
    cbc(
        Cipher::Cast128Cbc,
        "01234567123456782345",
        &iv,
        plain,
        "eb6a711a2c02271b",
    );
    cbc(
        Cipher::Cast128Cbc,
        "0123456712",
        &iv,
        plain,
        "7ac816d16e9b302e",
    );
}

#[test]
fn blowfish_cbc_answer_of_its_author() {
    let plain = "37363534333231204e6f77206973207468652074696d6520666f722000000000";
    let sealed = "6b77b4d63006dee605b156e27403979358deb9e7154616d959f1652bd5ff92cc";
    cbc(
        Cipher::BlowfishCbc,
        "0123456789abcdeff0e1d2c3b4a59687",
        "fedcba9876543210",
        plain,
        sealed,
    );
}

#[test]
fn aes_ctr_answers_of_rfc_3686() {
    let nonce = "00000030";
    let key = format!("ae6852f8121067cc4bf7a5765577f39e{nonce}");
    let plain = "53696e676c6520626c6f636b206d7367";
    cbc(
        Cipher::AesCtr,
        &key,
        "0000000000000000",
        plain,
        "e4095d4fb7a7b3792d6175a3261311b8",
    );
    let plain = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let sealed = "5104a106168a72d9790d41ee8edad388eb2e1efc46da57c8fce630df9141be28";
    cbc(
        Cipher::AesCtr,
        "7e24067817fae0d743d6ce1f32539163006cb6db",
        "c0543b59da48d90b",
        plain,
        sealed,
    );
}

/// A value of BoringSSL's test files: hexadecimal, or text in quotes.
fn quoted_or_hex(value: &str) -> Vec<u8> {
    match value.strip_prefix('"') {
        Some(text) => text.trim_end_matches('"').as_bytes().to_vec(),
        None => hex(value),
    }
}

#[test]
fn chacha20_poly1305_answers_of_boringssl() {
    let mut judged = 0;
    for case in stanzas("ciphers__ChaCha20Poly1305__boringssl.txt") {
        let [key, nonce, plain, aad, text, tag] =
            ["key", "nonce", "in", "ad", "ct", "tag"].map(|name| quoted_or_hex(&case[name]));
        let (salt, iv) = nonce.split_at(4);
        let (key, iv, sealed) = ([&key, salt].concat(), iv.to_vec(), [text, tag].concat());
        let name = format!("case {}", case["count"]);
        Answer {
            name,
            cipher: Cipher::ChaCha20Poly1305,
            key,
            iv,
            aad,
            plain,
            sealed,
            icv_len: 16,
        }
        .judge();
        judged += 1;
    }
    assert_eq!(judged, 66);
}

#[test]
fn chacha20_poly1305_answers_of_openssl() {
    let mut judged = 0;
    for case in stanzas("ciphers__ChaCha20Poly1305__openssl.txt") {
        let field = |name: &str| hex(case.get(name).map_or("", String::as_str));
        let (nonce, plain) = (field("iv"), field("plaintext"));
        if nonce.len() != 12 {
            continue;
        }
        let (salt, iv) = nonce.split_at(4);
        let key_bytes = [field("key"), salt.to_vec()].concat();
        let key = Key::new(
            Cipher::ChaCha20Poly1305,
            &key_bytes,
            Integrity::None,
            &[],
            16,
        )
        .expect("a legal key");
        let cuts = [0, plain.len()];
        let packet = Packet {
            aad: field("aad"),
            aad_tail: vec![],
            iv: Iv::new(iv),
            plain,
            cuts,
        };
        let sealed = [field("ciphertext"), field("tag")].concat();
        let opened = harness::open_one(&key, &packet, &sealed);
        let expected = (!case.contains_key("result")).then_some(packet.plain);
        assert_eq!(opened, expected, "case {}", case["count"]);
        judged += 1;
    }
    assert_eq!(judged, 5);
}
