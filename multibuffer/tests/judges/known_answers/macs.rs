//! MACs of the RFCs and NIST.

use multibuffer::{Cipher, Integrity, Iv, Key};

use super::stanzas;
use crate::harness::{self, hex, vector_file};

#[test]
fn hmac_answers_of_rfc_2202_and_4231() {
    let files = [
        ("rfc-2202-md5", Integrity::HmacMd5, 16),
        ("rfc-2202-sha1", Integrity::HmacSha1, 20),
        ("rfc-4231-sha256", Integrity::HmacSha256, 32),
        ("rfc-4231-sha384", Integrity::HmacSha384, 48),
        ("rfc-4231-sha512", Integrity::HmacSha512, 64),
    ];
    let mut judged = 0;
    for (file, integrity, output) in files {
        for case in stanzas(&format!("HMAC__{file}.txt")) {
            let expected = hex(&case["md"]);
            let (key, icv_len) = (hex(&case["key"]), expected.len().min(output));
            judge_mac(integrity, &key, &hex(&case["msg"]), &expected[..icv_len]);
            judged += 1;
        }
    }
    assert_eq!(judged, 32);
}

#[test]
fn hmac_ripemd_160_answers_of_rfc_2286() {
    let expected = hex("24cb4bd67d20fc1a5d2ed7732dcc39377f0a5668");
    judge_mac(
        Integrity::HmacRipemd160,
        &[0x0b; 20],
        b"Hi There",
        &expected,
    );
    let expected = hex("dda6c0213a485a9e24f4742064a7f033b43c4069");
    judge_mac(
        Integrity::HmacRipemd160,
        b"Jefe",
        b"what do ya want for nothing?",
        &expected,
    );
    let expected = hex("b0b105360de759960ab4f35298e116e295d8e7c1");
    judge_mac(
        Integrity::HmacRipemd160,
        &[0xaa; 20],
        &[0xdd; 50],
        &expected,
    );
}

#[test]
fn cmac_answers_of_sp_800_38b() {
    let cases = stanzas("CMAC__nist-800-38b-aes128.txt");
    for case in &cases {
        let message = hex(case.get("message").map_or("", String::as_str));
        judge_mac(
            Integrity::AesCmac,
            &hex(&case["key"]),
            &message,
            &hex(&case["output"]),
        );
    }
    assert_eq!(cases.len(), 4);
}

#[test]
fn xcbc_answers_of_rfc_3566() {
    let file: serde_json::Value =
        serde_json::from_slice(&vector_file("kat/xcbc_test.json")).expect("JSON");
    let groups = file["testGroups"].as_array().expect("groups");
    let mut judged = 0;
    for case in groups
        .iter()
        .flat_map(|group| group["tests"].as_array().expect("tests"))
    {
        let [key, message, tag] =
            ["key", "msg", "tag"].map(|name| hex(case[name].as_str().expect("text")));
        judge_mac(Integrity::AesXcbc, &key, &message, &tag);
        judged += 1;
    }
    assert_eq!(judged, 7);
}

fn judge_mac(integrity: Integrity, key: &[u8], message: &[u8], expected: &[u8]) {
    let key = Key::new(Cipher::Null, &[], integrity, key, expected.len()).expect("a legal key");
    let (head, tail) = message.split_at(message.len() / 3);
    assert_eq!(
        harness::sign_one(&key, Iv::default(), [head, &[], tail]),
        expected,
        "{integrity:?}"
    );
}
