use super::*;
use crate::identity::Identity;
use serde::Deserialize;
use std::time::Duration;

mod name_constraints;

/// What `tests/vectors/certificates.py` made by another library.
#[derive(Deserialize)]
struct File {
    now: u64,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    title: String,
    chain: Vec<String>,
    root: String,
    lists: Vec<String>,
    required: bool,
    claimed: String,
    verdict: String,
    at: usize,
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(pair).collect()
}

fn verified_at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn file() -> File {
    let text = include_str!("../../tests/vectors/certificates.json");
    serde_json::from_str(text).expect("as certificates.py writes it")
}

impl Case {
    fn chain(&self) -> Vec<Certificate> {
        let read = |der: &String| Certificate::from_der(&bytes(der)).expect("a certificate");
        self.chain.iter().map(read).collect()
    }

    fn trust(&self) -> Trust {
        let mut trust = Trust::default();
        trust.add_roots(&bytes(&self.root)).expect("a root");
        for list in &self.lists {
            trust.add_revocation_lists(&bytes(list)).expect("a list");
        }
        if self.required {
            trust.revocation = Revocation::Required;
        }
        trust
    }
}

#[test]
fn chains_are_judged_as_wanted_and_the_certificate_at_fault_is_named() {
    let file = file();
    let now = verified_at(file.now);
    for case in &file.cases {
        let (chain, trust) = (case.chain(), case.trust());
        let claimed: Identity = case.claimed.parse().expect("an identity");
        let verdict = trust.authenticate(&chain, &claimed, now);
        let title = &case.title;
        match verdict {
            Ok(key) => {
                assert_eq!(case.verdict, "good", "{title}");
                assert_eq!(Ok(key), chain[0].key(), "{title}");
            }
            Err(failure) => {
                let found = format!("{:?}", failure.check);
                assert!(found.starts_with(&case.verdict), "{title}: {failure}");
                assert_eq!(
                    failure.certificate,
                    chain[case.at].subject(),
                    "{title}: {failure}"
                );
            }
        }
    }
    assert!(file.cases.len() > 50);
}

#[test]
fn no_peer_is_authenticated_without_a_root_or_a_certificate() {
    let case = &file().cases[0];
    let now = verified_at(file().now);
    let failure = Trust::default().validate(&case.chain(), now).unwrap_err();
    assert!(
        matches!(failure.check, Check::UnknownIssuer { .. }),
        "{failure}"
    );
    let failure = case.trust().validate(&[], now).unwrap_err();
    assert_eq!(failure.check, Check::None);
    let many = vec![case.chain()[0].clone(); 17];
    assert_eq!(
        case.trust().validate(&many, now).unwrap_err().check,
        Check::TooMany(17)
    );
}

#[test]
fn bytes_that_are_no_certificate_or_list_are_refused() {
    let der = bytes(&file().cases[0].root);
    for len in 0..der.len() {
        assert!(
            Certificate::from_der(&der[..len]).is_err(),
            "cut to {len} bytes"
        );
    }
    assert!(Certificate::from_der(&[der.as_slice(), &[0]].concat()).is_err());
    let long = vec![0x30; (64 << 10) + 1];
    assert_eq!(
        Certificate::from_der(&long).err(),
        Some(CertificateError::TooLong(long.len()))
    );
    let mut trust = Trust::default();
    assert_eq!(trust.add_roots(b"no certificate"), Err(TrustError::Nothing));
    assert!(matches!(
        trust.add_roots(&der[..9]),
        Err(TrustError::Unusable(1, _))
    ));
    assert!(matches!(
        trust.add_revocation_lists(&der),
        Err(TrustError::Unusable(1, _))
    ));
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(trust.add_roots(key.as_bytes()), Err(TrustError::Nothing));
}
