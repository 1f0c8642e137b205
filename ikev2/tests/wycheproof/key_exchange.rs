//! Public values that are good, odd, or meant to give a secret away.

use crate::{bytes, cases};
use ikev2::groups::{Group, KeyPair};
use serde::Deserialize;

#[derive(Deserialize)]
struct Tests {
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "tcId")]
    id: u32,
    public: String,
    private: String,
    shared: String,
    result: String,
    flags: Vec<String>,
}

/// What the peer's value gives with this secret, where IKE can carry it.
fn shared(group: Group, secret_len: usize, case: &Case) -> Option<Vec<u8>> {
    let given = bytes(&case.private);
    let given = &given[given.len().saturating_sub(secret_len)..];
    let mut secret = vec![0; secret_len - given.len()];
    secret.extend_from_slice(given);
    let mut random = |wanted: &mut [u8]| wanted.copy_from_slice(&secret);
    let pair = KeyPair::generate(group, &mut random).expect("a secret of theirs");
    let public = bytes(&case.public);
    let public = match (group, public.as_slice()) {
        (Group::X25519, public) => public,
        // RFC 5903 7: without the byte for the form of encoding, and no compressed points.
        (_, [4, coordinates @ ..]) => coordinates,
        _ => return None,
    };
    pair.agree(public).ok().map(|secret| secret.to_vec())
}

fn judge(name: &str, group: Group, secret_len: usize, floor: usize) {
    let all = cases::<Tests>(name);
    let mut judged = [0, 0];
    for case in all.groups.iter().flat_map(|group| &group.tests) {
        let found = shared(group, secret_len, case);
        let zeroes = bytes(&case.shared).iter().all(|byte| *byte == 0);
        let compressed = case
            .flags
            .iter()
            .any(|flag| flag == "CompressedPublic" || flag == "CompressedPoint");
        // RFC 6989 2: a secret of zeroes is refused, although Wycheproof calls it acceptable.
        let good = case.result != "invalid" && !zeroes && !compressed;
        let expected = good.then(|| bytes(&case.shared));
        assert_eq!(
            found, expected,
            "{name}, case {}: {:?}",
            case.id, case.flags
        );
        judged[usize::from(good)] += 1;
    }
    assert_eq!(judged.iter().sum::<usize>(), all.number);
    assert!(judged[0] >= floor && judged[1] > 100, "{name}: {judged:?}");
}

#[test]
fn x25519_refuses_what_gives_zeroes_and_takes_all_else() {
    judge("x25519", Group::X25519, 32, 20);
}

#[test]
fn p_256_refuses_what_is_no_point_of_the_curve() {
    judge("ecdh_secp256r1_ecpoint", Group::P256, 32, 5);
}

#[test]
fn p_384_refuses_what_is_no_point_of_the_curve() {
    judge("ecdh_secp384r1_ecpoint", Group::P384, 48, 5);
}
