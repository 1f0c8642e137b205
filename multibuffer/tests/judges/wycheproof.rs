//! Project Wycheproof's vectors through `seal`, `open` and `sign`: the valid must pass, the others must not.

use std::io::Read;

use multibuffer::{Cipher, Integrity, Iv, Key};
use serde::Deserialize;

use crate::harness::{self, Packet, hex};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    test_groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    #[serde(default)]
    iv_size: usize,
    #[serde(default)]
    tag_size: usize,
    tests: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    tc_id: u32,
    key: String,
    #[serde(default)]
    iv: String,
    #[serde(default)]
    aad: String,
    msg: String,
    #[serde(default)]
    ct: String,
    #[serde(default)]
    tag: String,
    result: String,
}

impl Case {
    fn is_valid(&self) -> bool {
        self.result == "valid"
    }
}

fn groups(name: &str) -> Vec<Group> {
    let packed = harness::vector_file(&format!("wycheproof/{name}_test.json.gz"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice())
        .read_to_string(&mut text)
        .expect("a gzip file");
    serde_json::from_str::<File>(&text)
        .expect("the published format")
        .test_groups
}

/// How many cases were judged, by result: guards against filters that let nothing through.
#[derive(PartialEq, Eq, Debug, Default)]
struct Judged {
    valid: usize,
    invalid: usize,
}

impl Judged {
    fn count(&mut self, case: &Case) {
        *if case.is_valid() {
            &mut self.valid
        } else {
            &mut self.invalid
        } += 1;
    }
}

fn judge_aead(name: &str, cipher: Cipher) -> Judged {
    let mut judged = Judged::default();
    // ESP's nonces are 12 bytes; the other sizes cannot be expressed in its keys and IVs.
    for case in groups(name)
        .iter()
        .filter(|group| group.iv_size == 96)
        .flat_map(|group| &group.tests)
    {
        let (salt, iv) = (hex(&case.iv[..8]), hex(&case.iv[8..]));
        let key_bytes = [hex(&case.key), salt].concat();
        let key = Key::new(cipher, &key_bytes, Integrity::None, &[], 16).expect("a legal key");
        let plain = hex(&case.msg);
        let cuts = [plain.len() / 3, plain.len() / 2];
        let packet = Packet {
            aad: hex(&case.aad),
            aad_tail: Vec::new(),
            iv: Iv::new(&iv),
            plain,
            cuts,
        };
        let sealed = [hex(&case.ct), hex(&case.tag)].concat();
        assert_eq!(
            harness::open_one(&key, &packet, &sealed).is_some(),
            case.is_valid(),
            "{name} {}",
            case.tc_id
        );
        assert_eq!(
            harness::seal_one(&key, &packet) == sealed,
            case.is_valid(),
            "{name} {}",
            case.tc_id
        );
        judged.count(case);
    }
    judged
}

#[test]
fn aes_gcm() {
    assert_eq!(
        judge_aead("aes_gcm", Cipher::AesGcm { icv_len: 16 }),
        Judged {
            valid: 116,
            invalid: 81
        }
    );
}

#[test]
fn chacha20_poly1305() {
    assert_eq!(
        judge_aead("chacha20_poly1305", Cipher::ChaCha20Poly1305),
        Judged {
            valid: 256,
            invalid: 60
        }
    );
}

fn judge_mac(name: &str, integrity: Integrity) -> Judged {
    let mut judged = Judged::default();
    for group in groups(name) {
        for case in &group.tests {
            judged.count(case);
            let made = Key::new(
                Cipher::Null,
                &[],
                integrity,
                &hex(&case.key),
                group.tag_size / 8,
            );
            let Ok(key) = made else {
                assert!(
                    !case.is_valid(),
                    "{name} {}: a legal key was refused",
                    case.tc_id
                );
                continue;
            };
            let message = hex(&case.msg);
            let icv = harness::sign_one(&key, Iv::default(), [&[], &message, &[]]);
            assert_eq!(
                icv == hex(&case.tag),
                case.is_valid(),
                "{name} {}",
                case.tc_id
            );
            let packet = Packet {
                aad: message,
                aad_tail: vec![],
                iv: Iv::default(),
                plain: vec![],
                cuts: [0; 2],
            };
            let opened = harness::open_one(&key, &packet, &hex(&case.tag));
            assert_eq!(opened.is_some(), case.is_valid(), "{name} {}", case.tc_id);
        }
    }
    judged
}

#[test]
fn hmac_sha1() {
    assert_eq!(
        judge_mac("hmac_sha1", Integrity::HmacSha1),
        Judged {
            valid: 66,
            invalid: 104
        }
    );
}

#[test]
fn hmac_sha256() {
    assert_eq!(
        judge_mac("hmac_sha256", Integrity::HmacSha256),
        Judged {
            valid: 66,
            invalid: 108
        }
    );
}

#[test]
fn hmac_sha384() {
    assert_eq!(
        judge_mac("hmac_sha384", Integrity::HmacSha384),
        Judged {
            valid: 66,
            invalid: 108
        }
    );
}

#[test]
fn hmac_sha512() {
    assert_eq!(
        judge_mac("hmac_sha512", Integrity::HmacSha512),
        Judged {
            valid: 66,
            invalid: 108
        }
    );
}

#[test]
fn aes_cmac() {
    assert_eq!(
        judge_mac("aes_cmac", Integrity::AesCmac),
        Judged {
            valid: 63,
            invalid: 248
        }
    );
}

#[test]
fn aes_gmac_signs_and_opens() {
    let mut judged = Judged::default();
    for case in groups("aes_gmac")
        .iter()
        .filter(|group| group.iv_size == 96)
        .flat_map(|group| &group.tests)
    {
        let key_bytes = [hex(&case.key), hex(&case.iv[..8])].concat();
        // In ESP it is a cipher, in AH an integrity algorithm.
        let keys = [
            Key::new(Cipher::AesGmac, &key_bytes, Integrity::None, &[], 16),
            Key::new(Cipher::Null, &[], Integrity::AesGmac, &key_bytes, 16),
        ];
        for key in keys.map(|key| key.expect("a legal key")) {
            let message = hex(&case.msg);
            let third = message.len() / 3;
            let input = [&message[..third], &message[third..], &[]];
            let icv = harness::sign_one(&key, Iv::new(&hex(&case.iv[8..])), input);
            assert_eq!(icv == hex(&case.tag), case.is_valid(), "{}", case.tc_id);
        }
        judged.count(case);
    }
    assert_eq!(
        judged,
        Judged {
            valid: 45,
            invalid: 162
        }
    );
}

/// The padding of PKCS #5 is the caller's here, as ESP's is: the valid cases are sealed and opened with theirs.
#[test]
fn aes_cbc() {
    let mut judged = 0;
    for case in groups("aes_cbc_pkcs5")
        .iter()
        .flat_map(|group| &group.tests)
        .filter(|case| case.is_valid())
    {
        let key = Key::new(Cipher::AesCbc, &hex(&case.key), Integrity::None, &[], 0)
            .expect("a legal key");
        let mut plain = hex(&case.msg);
        let padding = 16 - plain.len() % 16;
        plain.extend(vec![padding as u8; padding]);
        let cuts = [(plain.len() - padding) / 3, plain.len() - padding];
        let packet = Packet {
            aad: vec![],
            aad_tail: vec![],
            iv: Iv::new(&hex(&case.iv)),
            plain,
            cuts,
        };
        let sealed = hex(&case.ct);
        assert_eq!(harness::seal_one(&key, &packet), sealed, "{}", case.tc_id);
        assert_eq!(
            harness::open_one(&key, &packet, &sealed),
            Some(packet.plain),
            "{}",
            case.tc_id
        );
        judged += 1;
    }
    assert_eq!(judged, 72);
}
