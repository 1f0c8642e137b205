use super::{
    algorithm_identifier::{decode, encode},
    choice::{NoCommonSignature, RsaPadding, choose},
    *,
};
use crate::authentication::Method;
use serde::Deserialize;
use std::collections::BTreeMap;

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(pair).collect()
}

/// What `tests/vectors/keys.py` made by another library.
#[derive(Deserialize)]
struct File {
    message: String,
    keys: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    private: BTreeMap<String, String>,
    public: String,
    signatures: BTreeMap<String, String>,
}

fn file() -> File {
    serde_json::from_str(include_str!("../../tests/vectors/keys.json"))
        .expect("as keys.py writes it")
}

impl File {
    fn private(&self, name: &str) -> PrivateKey {
        PrivateKey::from_pem(self.keys[name].private["pkcs8"].as_bytes()).expect("a key")
    }

    fn public(&self, name: &str) -> PublicKey {
        PublicKey::from_spki(&bytes(&self.keys[name].public)).expect("a key")
    }
}

const GOOD: [&str; 6] = ["rsa2048", "rsa3072", "p256", "p384", "p521", "ed25519"];

#[rustfmt::skip]
const SCHEMES: [(&str, Scheme); 14] = [
    ("pkcs1-sha1", Scheme::RsaPkcs1(Hash::Sha1)), ("pkcs1-sha256", Scheme::RsaPkcs1(Hash::Sha256)),
    ("pkcs1-sha384", Scheme::RsaPkcs1(Hash::Sha384)), ("pkcs1-sha512", Scheme::RsaPkcs1(Hash::Sha512)),
    ("pss-sha256", Scheme::RsaPss(Hash::Sha256)), ("pss-sha384", Scheme::RsaPss(Hash::Sha384)),
    ("pss-sha512", Scheme::RsaPss(Hash::Sha512)), ("ecdsa-sha256", Scheme::Ecdsa(Hash::Sha256)),
    ("ecdsa-sha384", Scheme::Ecdsa(Hash::Sha384)), ("ecdsa-sha512", Scheme::Ecdsa(Hash::Sha512)),
    ("fixed-sha256", Scheme::EcdsaFixed(Hash::Sha256)), ("fixed-sha384", Scheme::EcdsaFixed(Hash::Sha384)),
    ("fixed-sha512", Scheme::EcdsaFixed(Hash::Sha512)), ("ed25519", Scheme::Ed25519),
];

#[test]
fn signatures_of_another_library_are_good_by_their_own_scheme_and_by_no_other() {
    let file = file();
    let message = bytes(&file.message);
    let mut good = 0;
    for name in GOOD {
        let key = file.public(name);
        for (label, signature) in &file.keys[name].signatures {
            for (scheme_label, scheme) in SCHEMES {
                let verified = key.verify(scheme, &message, &bytes(signature)).is_ok();
                // RFC 4754 3: in the fixed encoding each curve has one hash.
                let other_hash = scheme_label.starts_with("fixed")
                    && key
                        .curve()
                        .is_some_and(|curve| scheme != Scheme::EcdsaFixed(curve.hash()));
                let expected = label == scheme_label && !other_hash;
                assert_eq!(verified, expected, "{name}: {label} as {scheme_label}");
                good += usize::from(verified);
            }
            let changed = [&message[1..], b"."].concat();
            assert!(
                SCHEMES
                    .iter()
                    .all(|row| key.verify(row.1, &changed, &bytes(signature)).is_err())
            );
        }
    }
    // 4 + 3 of each RSA key, 3 + 1 of each curve, 1.
    assert_eq!(good, 27);
}

#[test]
fn private_keys_of_every_form_are_read_and_sign_what_their_public_key_verifies() {
    let file = file();
    for name in GOOD {
        let public = file.public(name);
        for (form, text) in &file.keys[name].private {
            if form == "encrypted" {
                continue;
            }
            let key = PrivateKey::from_pem(text.as_bytes())
                .unwrap_or_else(|error| panic!("{name} {form}: {error}"));
            assert_eq!(*key.public(), public, "{name} {form}");
            let signed = SCHEMES
                .iter()
                .filter_map(|row| Some((row.1, key.sign(row.1, b"message")?)));
            let signed: Vec<_> = signed.collect();
            assert!(
                signed.iter().all(|(scheme, signature)| public
                    .verify(*scheme, b"message", signature)
                    .is_ok())
            );
            let expected = if key.is_rsa() {
                6
            } else if public.curve().is_some() {
                2
            } else {
                1
            };
            assert_eq!(signed.len(), expected, "{name} {form}");
        }
    }
}

#[test]
fn private_keys_that_cannot_be_used_are_named_for_what_they_are() {
    let file = file();
    let read = |name: &str, form: &str| {
        let key = PrivateKey::from_pem(file.keys[name].private[form].as_bytes());
        key.err().expect("not taken")
    };
    assert_eq!(read("rsa2048", "encrypted"), PrivateKeyError::Encrypted);
    assert_eq!(read("rsa1024", "pkcs8"), PrivateKeyError::Short);
    assert_eq!(read("secp256k1", "pkcs8"), PrivateKeyError::Unsupported);
    assert_eq!(
        read("secp256k1", "traditional"),
        PrivateKeyError::Unsupported
    );
    let text = |text: &str| {
        PrivateKey::from_pem(text.as_bytes())
            .err()
            .expect("not taken")
    };
    assert_eq!(text(""), PrivateKeyError::None);
    assert_eq!(
        text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        PrivateKeyError::None
    );
    let broken = "-----BEGIN PRIVATE KEY-----\n?\n-----END PRIVATE KEY-----\n";
    assert_eq!(text(broken), PrivateKeyError::Malformed);
    assert_eq!(
        text(&broken.replace('?', "AAAA")),
        PrivateKeyError::Unsupported
    );
}

#[test]
fn public_keys_of_other_kinds_are_refused_by_name() {
    let file = file();
    let other = PublicKey::from_spki(&bytes(&file.keys["secp256k1"].public));
    assert_eq!(
        other,
        Err(PublicKeyError::Unsupported("1.3.132.0.10".into()))
    );
    assert_eq!(
        PublicKey::from_spki(&[0x30, 0]),
        Err(PublicKeyError::Malformed)
    );
    // An RSA key that is too short is read, but nothing is a signature of it.
    assert_eq!(file.public("rsa1024").describe(), "RSA");
}

#[test]
fn algorithm_identifiers_are_those_of_rfc_7427_and_8420() {
    let identified = SCHEMES.iter().filter(|row| encode(row.1).is_some());
    let mut count = 0;
    for (name, scheme) in identified {
        let der = encode(*scheme).unwrap();
        assert_eq!(decode(&der), Some(*scheme), "{name}");
        for len in 0..der.len() {
            assert_eq!(decode(&der[..len]), None, "{name} cut to {len} bytes");
        }
        assert_eq!(
            decode(&[der.as_slice(), &[0]].concat()),
            None,
            "{name} and a byte more"
        );
        count += 1;
    }
    assert_eq!(count, 10);
}

#[test]
fn parameters_of_rsa_may_be_null_or_absent_and_those_of_others_are_absent() {
    let absent = bytes("300b06092a864886f70d01010b");
    assert_eq!(decode(&absent), Some(Scheme::RsaPkcs1(Hash::Sha256)));
    let ecdsa_with_null = bytes("300c06082a8648ce3d0403020500");
    assert_eq!(decode(&ecdsa_with_null), None);
    let sha1 = bytes("300d06092a864886f70d0101050500");
    assert_eq!(decode(&sha1), None);
}

#[test]
fn parameters_of_pss_have_one_hash_and_a_salt_of_its_length() {
    let good = encode(Scheme::RsaPss(Hash::Sha256)).unwrap();
    let changed = |at: usize, to: u8| {
        let mut der = good.clone();
        der[at] = to;
        decode(&der)
    };
    let last = good.len() - 1;
    // The salt; the hash of the mask; the hash itself; MGF1.
    for (at, to) in [(last, 20), (last, 0), (last - 7, 2), (29, 2), (46, 9)] {
        assert_eq!(changed(at, to), None, "byte {at} as {to}");
    }
    assert_eq!(changed(last, 32), Some(Scheme::RsaPss(Hash::Sha256)));
    // RFC 4055 3.1: all fields left out mean SHA-1.
    assert_eq!(decode(&bytes("300d06092a864886f70d01010a3000")), None);
    assert_eq!(decode(&bytes("300b06092a864886f70d01010a")), None);
    // The trailer may be there if it is 1, and is nothing else.
    let with_trailer = |value: u8| {
        let mut der = good.clone();
        der.extend([0xa3, 0x03, 0x02, 0x01, value]);
        der[1] += 5;
        der[14] += 5;
        decode(&der)
    };
    assert_eq!(with_trailer(1), Some(Scheme::RsaPss(Hash::Sha256)));
    assert_eq!(with_trailer(2), None);
}

#[test]
fn the_method_follows_from_the_key_and_from_what_the_peer_announces() {
    let file = file();
    let chosen = |name: &str, announced: Option<&[u16]>| {
        choose(&file.private(name), announced, RsaPadding::Pss)
    };
    let digital = |scheme| Ok((Method::DigitalSignature, scheme));
    assert_eq!(
        chosen("rsa2048", Some(&[1, 4, 2])),
        digital(Scheme::RsaPss(Hash::Sha256))
    );
    assert_eq!(
        chosen("rsa2048", Some(&[4])),
        digital(Scheme::RsaPss(Hash::Sha512))
    );
    assert_eq!(
        chosen("rsa2048", Some(&[1, 5])),
        Err(NoCommonSignature::Hash(Hash::Sha256))
    );
    assert_eq!(
        chosen("p384", Some(&[2, 3])),
        digital(Scheme::Ecdsa(Hash::Sha384))
    );
    assert_eq!(
        chosen("p384", Some(&[2])),
        Err(NoCommonSignature::Hash(Hash::Sha384))
    );
    assert_eq!(chosen("ed25519", Some(&[2, 5])), digital(Scheme::Ed25519));
    assert_eq!(
        chosen("ed25519", Some(&[2])),
        Err(NoCommonSignature::Hash(Hash::Identity))
    );
    assert_eq!(chosen("ed25519", None), Err(NoCommonSignature::OldPeer));
    assert_eq!(
        chosen("rsa2048", None),
        Ok((Method::Rsa, Scheme::RsaPkcs1(Hash::Sha256)))
    );
    let classic = Ok((Method::Ecdsa(Curve::P521), Scheme::EcdsaFixed(Hash::Sha512)));
    assert_eq!(chosen("p521", None), classic);
    let pkcs1 = choose(&file.private("rsa3072"), Some(&[2]), RsaPadding::Pkcs1);
    assert_eq!(pkcs1, digital(Scheme::RsaPkcs1(Hash::Sha256)));
}
