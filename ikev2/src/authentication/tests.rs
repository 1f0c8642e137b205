use super::*;
use crate::signatures::choice::{RsaPadding, choose};

const PRF: Prf = Prf::HmacSha256;

/// A key of each kind that `tests/vectors/keys.py` made.
fn keys() -> Vec<PrivateKey> {
    let text = include_str!("../../tests/vectors/keys.json");
    let file: serde_json::Value = serde_json::from_str(text).expect("as keys.py writes it");
    let key = |name: &str| {
        let pem = file["keys"][name]["private"]["pkcs8"]
            .as_str()
            .expect("a key");
        PrivateKey::from_pem(pem.as_bytes()).expect("a key")
    };
    ["rsa2048", "p256", "p384", "p521", "ed25519"]
        .map(key)
        .into()
}

#[test]
fn what_is_signed_is_the_message_the_other_nonce_and_the_identity_under_its_key() {
    let signed = Signed {
        message: b"message",
        nonce: b"nonce",
        identity: b"\x02\0\0\0me",
    };
    let key = Secret::new(vec![7; 32]);
    let identity = PrfKey::new(PRF, &[7; 32]).compute(&[b"\x02\0\0\0me"]);
    assert_eq!(
        signed.octets(PRF, &key),
        [b"messagenonce", &identity[..]].concat()
    );
}

#[test]
fn a_shared_secret_is_padded_and_proves_itself_alone() {
    let secret = SharedSecret::new(PRF, b"secret");
    let padded = PrfKey::new(PRF, b"secret").compute(&[b"Key Pad for IKEv2"]);
    let proof = secret.prove(b"octets");
    assert_eq!(proof, PrfKey::new(PRF, &padded).compute(&[b"octets"]));
    assert_eq!(secret.check(2, &proof, b"octets"), Ok(()));
    let mismatch = Err(AuthenticationError::SecretMismatch);
    assert_eq!(
        SharedSecret::new(PRF, b"Secret").check(2, &proof, b"octets"),
        mismatch
    );
    assert_eq!(secret.check(2, &proof, b"Octets"), mismatch);
    assert_eq!(secret.check(2, &proof[1..], b"octets"), mismatch);
    assert_eq!(secret.check(2, &[], b"octets"), mismatch);
    let other = Err(AuthenticationError::OtherMethod(Method::DigitalSignature));
    assert_eq!(secret.check(14, &proof, b"octets"), other);
    assert_eq!(
        secret.check(13, &proof, b"octets"),
        Err(AuthenticationError::UnknownMethod(13))
    );
}

#[test]
fn what_each_key_signs_for_an_old_and_for_a_new_peer_is_good_and_nothing_else_is() {
    for key in keys() {
        for announced in [None, Some([2, 3, 4, 5].as_slice())] {
            let Ok((method, scheme)) = choose(&key, announced, RsaPadding::Pss) else {
                continue;
            };
            let data = sign(&key, method, scheme, b"octets").expect("as chosen");
            let check = |method: Method, data: &[u8], octets: &[u8]| {
                check_signature(key.public(), method.number(), data, octets)
            };
            assert_eq!(check(method, &data, b"octets"), Ok(scheme));
            assert!(check(method, &data, b"Octets").is_err());
            for len in 0..data.len() {
                assert!(
                    check(method, &data[..len], b"octets").is_err(),
                    "{scheme} cut to {len} bytes"
                );
            }
            for other in [1, 9, 10, 11, 14]
                .into_iter()
                .filter_map(Method::from_number)
            {
                assert_eq!(
                    check(other, &data, b"octets").is_ok(),
                    other == method,
                    "{scheme} as {other:?}"
                );
            }
            let shared = Err(AuthenticationError::OtherMethod(Method::SharedSecret));
            assert_eq!(check(Method::SharedSecret, &data, b"octets"), shared);
        }
    }
}

#[test]
fn method_14_begins_with_the_length_of_its_algorithm_identifier() {
    let key = &keys()[1];
    let scheme = Scheme::Ecdsa(Hash::Sha256);
    let data = sign(key, Method::DigitalSignature, scheme, b"octets").unwrap();
    assert_eq!(data[..3], [12, 0x30, 0x0a]);
    let check = |data: &[u8]| check_signature(key.public(), 14, data, b"octets");
    for wrong in [&[], &data[1..], &[255], &[0]] {
        assert_eq!(check(wrong), Err(AuthenticationError::Algorithm));
    }
}

/// RFC 4754 3: a P-384 key cannot make a signature of method 9, which is for P-256 only.
#[test]
fn a_curve_goes_with_its_own_method() {
    let key = &keys()[2];
    let scheme = Scheme::EcdsaFixed(Hash::Sha384);
    let data = sign(key, Method::Ecdsa(Curve::P384), scheme, b"octets").unwrap();
    let expected = SignatureError::WrongKey(Scheme::EcdsaFixed(Hash::Sha256));
    let found = check_signature(key.public(), 9, &data, b"octets");
    assert_eq!(found, Err(AuthenticationError::Signature(expected)));
}

#[test]
fn methods_have_the_numbers_of_the_registry() {
    for number in 0..=255 {
        let method = Method::from_number(number);
        assert_eq!(method.is_some(), [1, 2, 9, 10, 11, 14].contains(&number));
        assert!(method.is_none_or(|method| method.number() == number));
    }
}
