use super::*;
use crate::{
    message::payload::Protocol,
    negotiation::{KeyExchangeOffered, Offer, Outcome, choose},
};

const SECRET: u32 = 7;

fn chosen(text: &str, protocol: Protocol) -> Chosen {
    let offer = Offer::parse(text, protocol).unwrap();
    let spi: &[u8] = if protocol == Protocol::IKE {
        &[]
    } else {
        &[1; 4]
    };
    let group = offer
        .of(crate::message::payload::TransformType::KEY_EXCHANGE)
        .next();
    let group = group.map_or(KeyExchangeOffered::Absent, |group| {
        KeyExchangeOffered::Payload(group.id)
    });
    match choose(
        &[offer.proposal(1, spi)],
        std::slice::from_ref(&offer),
        group,
    ) {
        Ok(Outcome::Chosen(chosen)) => chosen,
        other => panic!("{other:?}"),
    }
}

/// Over the border of a process and back.
fn carried<T: Serialize + for<'de> Deserialize<'de>>(value: &T) -> T {
    let text = serde_json::to_string(value).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn perform(secrets: &Secrets, work: Work) -> Result<Output, WorkError> {
    let mut next = 0u8;
    let mut random = |bytes: &mut [u8]| {
        for byte in bytes {
            next = next.wrapping_mul(5).wrapping_add(77);
            *byte = next;
        }
    };
    let result = secrets.perform(carried(&work), &mut random);
    carried(&Done {
        id: WorkId(1),
        result,
    })
    .result
}

fn ike_keys(output: Result<Output, WorkError>) -> Box<IkeKeyParts> {
    match output {
        Ok(Output::IkeKeys(keys)) => keys,
        _ => panic!("no keys"),
    }
}

/// Both ends of a key exchange: the keys of the initiator and of the responder.
fn exchanged(secrets: &Secrets, suite: &str) -> (Box<IkeKeyParts>, Box<IkeKeyParts>) {
    let chosen = chosen(suite, Protocol::IKE);
    let group = chosen.group().unwrap().transform();
    let Ok(Output::Begun { begun, public }) = perform(secrets, Work::BeginExchange { group })
    else {
        panic!("no key pair");
    };
    let work = |exchange| Work::IkeKeys {
        exchange,
        chosen: chosen.clone(),
        nonces: (vec![1; 32], vec![2; 32]),
        spis: IkeSpis {
            initiator: [3; 8],
            responder: [4; 8],
        },
        replaced: None,
    };
    let answer = work(ExchangeStep::Answer {
        group,
        peer: public,
    });
    let responder = ike_keys(perform(secrets, answer));
    let peer = responder.public.clone();
    let initiator = ike_keys(perform(
        secrets,
        work(ExchangeStep::Complete { begun, peer }),
    ));
    (initiator, responder)
}

#[test]
fn both_ends_derive_the_same_keys_and_children_over_any_border() {
    for suite in [
        "aes256gcm16-prfsha384-x25519",
        "aes128-sha256-ecp256",
        "aes128-sha1-modp2048",
    ] {
        let secrets = Secrets::new();
        let (initiator, responder) = exchanged(&secrets, suite);
        assert!(initiator.initiator == responder.initiator);
        assert!(initiator.responder == responder.responder);
        assert!(initiator.pi == responder.pi && initiator.pr == responder.pr);
        assert!(initiator.pi != initiator.pr && initiator.initiator != initiator.responder);
        assert!(initiator.sk_d != responder.sk_d && initiator.public.is_empty());
        assert_eq!(secrets.held(), (0, 2));

        let child = |sk_d| {
            let work = Work::ChildKeys {
                sk_d,
                exchange: None,
                chosen: chosen("aes256gcm16", Protocol::ESP),
                nonces: (vec![5; 16], vec![6; 16]),
            };
            match perform(&secrets, work) {
                Ok(Output::ChildKeys {
                    initiator,
                    responder,
                    ..
                }) => (initiator, responder),
                _ => panic!("no keys"),
            }
        };
        assert!(child(initiator.sk_d) == child(responder.sk_d));
        secrets.forget_all();
        assert_eq!(secrets.held(), (0, 0));
    }
}

#[test]
fn a_handle_is_good_for_one_exchange_and_until_it_is_forgotten() {
    let secrets = Secrets::new();
    let chosen = chosen("aes256gcm16-prfsha384-x25519", Protocol::IKE);
    let Ok(Output::Begun { begun, public }) = perform(&secrets, Work::BeginExchange { group: 31 })
    else {
        panic!("no key pair");
    };
    let complete = || Work::IkeKeys {
        exchange: ExchangeStep::Complete {
            begun,
            peer: public.clone(),
        },
        chosen: chosen.clone(),
        nonces: (vec![1; 32], vec![2; 32]),
        spis: IkeSpis {
            initiator: [3; 8],
            responder: [4; 8],
        },
        replaced: None,
    };
    let keys = ike_keys(perform(&secrets, complete()));
    assert_eq!(
        perform(&secrets, complete()).err(),
        Some(WorkError::UnknownHandle)
    );
    let forgotten = perform(&secrets, Work::Forget(vec![keys.sk_d]));
    assert!(matches!(forgotten, Ok(Output::Forgotten)));
    assert_eq!(secrets.held(), (0, 0));
}

#[test]
fn a_public_value_of_the_wrong_length_gives_no_secret() {
    let secrets = Secrets::new();
    let work = Work::IkeKeys {
        exchange: ExchangeStep::Answer {
            group: 31,
            peer: vec![9; 31],
        },
        chosen: chosen("aes256gcm16-prfsha384-x25519", Protocol::IKE),
        nonces: (vec![1; 32], vec![2; 32]),
        spis: IkeSpis {
            initiator: [3; 8],
            responder: [4; 8],
        },
        replaced: None,
    };
    assert!(matches!(
        perform(&secrets, work),
        Err(WorkError::KeyExchange(_))
    ));
    assert_eq!(secrets.held(), (0, 0));
}

fn by_secret(secrets: &Secrets, number: u32, check: Option<Vec<u8>>) -> Result<Output, WorkError> {
    let work = Work::SharedSecret {
        secret: number,
        prf: 5,
        check: check.map(|data| (2, data, b"octets".to_vec())),
        prove: Some(b"octets".to_vec()),
    };
    perform(secrets, work)
}

#[test]
fn a_shared_secret_proves_and_checks_and_another_does_not() {
    let (mut one, mut other) = (Secrets::new(), Secrets::new());
    one.add_shared_secret(SECRET, Secret::new(b"secret".to_vec()));
    other.add_shared_secret(SECRET, Secret::new(b"Secret".to_vec()));
    let Ok(Output::Proof { method: 2, data }) = by_secret(&one, SECRET, None) else {
        panic!("no proof");
    };
    assert!(by_secret(&one, SECRET, Some(data.clone())).is_ok());
    let refused = by_secret(&other, SECRET, Some(data));
    assert!(matches!(refused, Err(WorkError::Authentication(_))));
    assert_eq!(by_secret(&one, 8, None).err(), Some(WorkError::Unknown(8)));
}

#[test]
fn an_algorithm_that_is_not_one_of_ike_is_refused_when_it_is_read() {
    let suite = r#"{"public":[],"initiator":[[9999,[1,2]],null],"responder":[[9999,[1,2]],null]}"#;
    let text = format!(r#"{{"ChildKeys":{suite}}}"#);
    let error = serde_json::from_str::<Output>(&text)
        .err()
        .expect("refused");
    assert!(error.to_string().contains("not known"), "{error}");
}
