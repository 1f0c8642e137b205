//! Valid signatures, and invalid ones that incomplete checks would accept.

use crate::{bytes, cases};
use ikev2::signatures::{Hash, PublicKey, Scheme};
use serde::Deserialize;

#[derive(Deserialize)]
struct Tests {
    #[serde(rename = "publicKeyDer")]
    key: String,
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "tcId")]
    id: u32,
    msg: String,
    sig: String,
    result: String,
    flags: Vec<String>,
}

fn judge(name: &str, scheme: Scheme) {
    let all = cases::<Tests>(name);
    let mut judged = [0, 0];
    for group in &all.groups {
        let key = PublicKey::from_spki(&bytes(&group.key)).expect("a key");
        for case in &group.tests {
            let good = key
                .verify(scheme, &bytes(&case.msg), &bytes(&case.sig))
                .is_ok();
            // "acceptable" is what some standard allows: here, PKCS#1 without the NULL, which is refused.
            assert_eq!(
                good,
                case.result == "valid",
                "{name}, case {}: {:?}",
                case.id,
                case.flags
            );
            judged[usize::from(good)] += 1;
        }
    }
    assert_eq!(judged.iter().sum::<usize>(), all.number);
    assert!(judged.iter().all(|count| *count > 5), "{name}: {judged:?}");
}

#[test]
fn ecdsa_with_p_256() {
    judge("ecdsa_secp256r1_sha256", Scheme::Ecdsa(Hash::Sha256));
}

#[test]
fn ed25519() {
    judge("ed25519", Scheme::Ed25519);
}

#[test]
fn rsa_pkcs1() {
    judge("rsa_signature_2048_sha256", Scheme::RsaPkcs1(Hash::Sha256));
}

#[test]
fn rsa_pss() {
    judge("rsa_pss_2048_sha256_mgf1_32", Scheme::RsaPss(Hash::Sha256));
}
