//! Name constraints, by chains that `tests/vectors/name_constraints.py` made and `openssl verify` judged.

use super::{bytes, verified_at};
use crate::certificate::{Certificate, CertificateError, Failure, Trust};
use serde::Deserialize;

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
    verdict: String,
    at: usize,
    words: String,
}

fn file() -> File {
    let text = include_str!("../../../tests/vectors/name_constraints.json");
    serde_json::from_str(text).expect("as name_constraints.py writes it")
}

impl Case {
    fn chain(&self) -> Result<Vec<Certificate>, CertificateError> {
        let read = |der: &String| Certificate::from_der(&bytes(der));
        self.chain.iter().map(read).collect()
    }

    fn judge(&self, chain: &[Certificate], now: u64) -> Result<(), Failure> {
        let mut trust = Trust::default();
        trust.add_roots(&bytes(&self.root)).expect("a root");
        trust.validate(chain, verified_at(now)).map(|_| ())
    }
}

#[test]
fn names_are_allowed_by_every_ca_above_them_or_refused_with_the_name_and_the_ca() {
    let file = file();
    for case in &file.cases {
        let title = &case.title;
        let chain = case.chain();
        if case.verdict == "Unreadable" {
            assert_eq!(
                chain.err(),
                Some(CertificateError::NameConstraints),
                "{title}"
            );
            continue;
        }
        let chain = chain.expect(title);
        match case.judge(&chain, file.now) {
            Ok(()) => assert_eq!(case.verdict, "good", "{title}"),
            Err(failure) => {
                assert_ne!(case.verdict, "good", "{title}: {failure}");
                let check = format!("{:?}", failure.check);
                assert!(check.starts_with(&case.verdict), "{title}: {failure}");
                assert!(
                    failure.to_string().contains(&case.words),
                    "{title}: {failure}"
                );
                let at_fault = chain[case.at].subject();
                let named = case.verdict.is_empty() || failure.certificate == at_fault;
                assert!(named, "{title}: {failure}");
            }
        }
    }
    assert!(file.cases.len() > 90);
}

/// The library is shown a CA whose constraint is hidden; with any bit of that CA changed, nothing is taken any more.
#[test]
fn no_bit_of_a_ca_with_hidden_constraints_can_be_changed() {
    let file = file();
    let case = file
        .cases
        .iter()
        .find(|case| case.title == "a subject in a permitted directory");
    let case = case.expect("the case");
    let chain = case.chain().expect("certificates");
    case.judge(&chain, file.now).expect("taken as it is");
    let ca = chain[1].der().to_vec();
    for bit in 0..ca.len() * 8 {
        let mut changed = ca.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let Ok(changed) = Certificate::from_der(&changed) else {
            continue;
        };
        let chain = [chain[0].clone(), changed];
        assert!(case.judge(&chain, file.now).is_err(), "bit {bit}");
    }
}

#[test]
fn a_constraint_that_is_cut_or_changed_is_refused_without_a_panic() {
    for case in file().cases.iter().step_by(5) {
        let der = bytes(&case.chain[case.chain.len() - 1]);
        for at in 0..der.len() {
            let mut changed = der.clone();
            changed[at] ^= 0xff;
            let _ = Certificate::from_der(&changed);
        }
    }
}
