use super::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    bits: usize,
    prime: String,
    exponents: [String; 2],
    publics: [String; 2],
    secret: String,
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(pair).collect()
}

/// One case a group, computed by Python's integers from the primes of the RFCs: `tests/vectors/modp.py` makes them
/// again.
fn cases() -> Vec<Case> {
    let text = include_str!("../../tests/vectors/modp.json");
    serde_json::from_str(text).expect("the file beside modp.py")
}

fn group(bits: usize) -> ModpGroup {
    let fits = |group: &ModpGroup| group.public_len() * 8 == bits;
    ModpGroup::ALL
        .into_iter()
        .find(fits)
        .expect("a group of ours")
}

#[test]
fn both_sides_compute_the_public_values_and_the_secret_that_integers_do() {
    let cases = cases();
    assert_eq!(cases.len(), ModpGroup::ALL.len());
    for case in cases {
        let group = group(case.bits);
        for (own, peer) in [(0, 1), (1, 0)] {
            let exponent = Zeroizing::new(bytes(&case.exponents[own]));
            let key = ModpKey::with_exponent(group, exponent);
            assert_eq!(key.public(), bytes(&case.publics[own]), "{group:?}");
            let secret = key.agree(&bytes(&case.publics[peer])).unwrap();
            // RFC 7296 2.14: padded to the length of the prime. Each case has a secret that begins with a zero.
            assert_eq!(secret[..], bytes(&case.secret), "{group:?}");
            assert_eq!(secret[0], 0);
        }
    }
}

/// The primes that the library has are those of the RFCs, and the public values that give the secret away are refused.
#[test]
fn values_of_small_order_and_unreduced_ones_are_refused() {
    for case in cases() {
        let group = group(case.bits);
        let key = ModpKey::new(group, &vec![0x5a; group.exponent_len()]);
        let prime = bytes(&case.prime);
        let less = |by: u8| {
            let mut value = prime.clone();
            *value.last_mut().unwrap() -= by;
            value
        };
        let small = |value: u8| {
            let mut bytes = vec![0; group.public_len()];
            *bytes.last_mut().unwrap() = value;
            bytes
        };
        for refused in [
            small(0),
            small(1),
            less(1),
            prime.clone(),
            vec![0xff; prime.len()],
        ] {
            assert!(key.agree(&refused) == Err(PublicValueError::OutOfRange));
        }
        for taken in [small(2), less(2)] {
            assert!(key.agree(&taken).is_ok(), "{group:?}");
        }
    }
}

#[test]
fn a_public_value_is_as_long_as_the_prime() {
    let group = ModpGroup::Modp2048;
    let key = ModpKey::new(group, &[7; 32]);
    let public = key.public();
    assert_eq!(public.len(), 256);
    for wrong in [&public[1..], &[&[0], public].concat(), &[]] {
        let length = PublicValueError::Length {
            expected: 256,
            received: wrong.len(),
        };
        assert!(key.agree(wrong) == Err(length));
    }
}

#[test]
fn an_exponent_of_zeroes_is_made_one_of_full_length() {
    let key = ModpKey::new(ModpGroup::Modp1024, &[0; 32]);
    assert_eq!(key.exponent[0], 0x80);
}

#[test]
#[should_panic(expected = "bytes of the exponent")]
fn too_little_randomness_is_an_error_of_the_caller() {
    ModpKey::new(ModpGroup::Modp3072, &[0; 32]);
}
