use super::*;
use crate::message::payload::{
    Attributes, Proposal, Protocol, SecurityAssociation, Transform, TransformType,
};
use ipsec::suite::{Secret, Suite};
use proptest::prelude::*;

const X25519: KeyExchangeOffered = KeyExchangeOffered::Payload(31);

fn offer(text: &str) -> Offer {
    Offer::parse(text, Protocol::IKE).unwrap()
}

fn esp(text: &str) -> Offer {
    Offer::parse(text, Protocol::ESP).unwrap()
}

fn proposals(offers: &[Offer]) -> Vec<Proposal<'static>> {
    let numbered = (1..).zip(offers);
    numbered
        .map(|(number, offer)| offer.proposal(number, &[]))
        .collect()
}

fn chosen(theirs: &[Offer], ours: &[Offer], key_exchange: KeyExchangeOffered) -> String {
    match choose(&proposals(theirs), ours, key_exchange).unwrap() {
        Outcome::Chosen(chosen) => format!("{}: {chosen}", chosen.number),
        Outcome::OtherGroup(group) => format!("group {group}"),
    }
}

fn refused(theirs: &[Offer], ours: &[Offer]) -> String {
    choose(&proposals(theirs), ours, X25519)
        .unwrap_err()
        .to_string()
}

#[test]
fn every_name_is_one_algorithm_that_the_engine_has() {
    let mut names = Vec::new();
    for algorithm in Algorithm::all() {
        let name = algorithm.name().unwrap();
        assert_eq!(Algorithm::named(name), Some(algorithm));
        assert_eq!(Algorithm::of(&algorithm.transform()), Some(algorithm));
        let is_known = match algorithm.kind {
            TransformType::ENCRYPTION => algorithm.encryption().is_some(),
            TransformType::INTEGRITY => algorithm.integrity().is_some(),
            TransformType::PRF => crate::prf::from_transform(algorithm.id).is_some(),
            TransformType::KEY_EXCHANGE => {
                let group = crate::groups::Group::from_transform(algorithm.id);
                group.is_some_and(|group| group.name() == name)
            }
            _ => true,
        };
        assert!(is_known, "{name}");
        names.push(name);
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_suite_is_printed_as_it_was_read_with_what_follows_from_it() {
    assert_eq!(
        offer("aes256gcm16-prfsha384-x25519").to_string(),
        "aes256gcm16-prfsha384-x25519"
    );
    assert_eq!(
        offer("aes256-sha256-modp2048").to_string(),
        "aes256-sha256-modp2048-prfsha256"
    );
    assert_eq!(esp("aes128gcm16").to_string(), "aes128gcm16-esn-noesn");
    assert_eq!(
        esp("aes128-sha2_256-noesn").to_string(),
        "aes128-sha256-noesn"
    );
    assert_eq!(
        esp("aes128gcm16-p256-esn").to_string(),
        "aes128gcm16-ecp256-esn"
    );
}

#[test]
fn a_suite_that_cannot_work_is_refused_with_its_reason() {
    let refused = |text, protocol: Protocol| Offer::parse(text, protocol).unwrap_err().to_string();
    let (ike, esp, ah) = (Protocol::IKE, Protocol::ESP, Protocol::AH);
    assert!(
        refused("aes256gcm16-prfsha385-x25519", ike)
            .starts_with("no algorithm is called 'prfsha385'")
    );
    assert_eq!(
        refused("aes256gcm16-x25519", ike),
        "a suite for IKE needs an algorithm for PRF"
    );
    assert_eq!(
        refused("aes256gcm16-prfsha256", ike),
        "a suite for IKE needs an algorithm for key exchange"
    );
    assert_eq!(
        refused("aes256-prfsha256-x25519", ike),
        "a suite for IKE needs an algorithm for integrity"
    );
    assert!(refused("aes256gcm16-aes256-sha256-x25519", ike).contains("write two suites"));
    assert!(refused("aes256gcm16-sha256-x25519", ike).contains("write two suites"));
    assert!(refused("aes128gmac-prfsha256-x25519", ike).contains("cannot protect IKE messages"));
    assert!(refused("null-sha256-x25519", ike).contains("cannot protect IKE messages"));
    assert_eq!(
        refused("aes128gcm16-prfsha256", esp),
        "prfsha256 (PRF) has no place in a suite for ESP"
    );
    assert_eq!(
        refused("aes128-sha256", ah),
        "aes128 (encryption) has no place in a suite for AH"
    );
    assert_eq!(
        refused("aes128", esp),
        "a suite for ESP needs an algorithm for integrity"
    );
}

#[test]
fn gmac_is_a_cipher_in_esp_and_an_integrity_algorithm_without_a_length_of_key_in_ah() {
    for (name, id, key_len) in [
        ("aes128gmac", 9, 20),
        ("aes192gmac", 10, 28),
        ("aes256gmac", 11, 36),
    ] {
        let ah = Offer::parse(name, Protocol::AH).unwrap();
        let transform = ah.proposal(1, &[1, 2, 3, 4]).transforms[0];
        // RFC 4543 5.3: the attribute must not be used.
        let wanted = Transform {
            kind: TransformType::INTEGRITY,
            id,
            attributes: Attributes::None,
        };
        assert_eq!(transform, wanted);
        let Ok(Outcome::Chosen(chosen)) = choose(
            &proposals(std::slice::from_ref(&ah)),
            std::slice::from_ref(&ah),
            KeyExchangeOffered::Ignored,
        ) else {
            panic!()
        };
        let protection = chosen.protection();
        assert_eq!(protection.integrity.unwrap().key_len, key_len);
        assert_eq!(protection.encryption, None);
        assert_eq!(Offer::parse(&ah.to_string(), Protocol::AH), Ok(ah));
        assert!(esp(name).of(TransformType::ENCRYPTION).next().is_some());
    }
    for (text, protocol) in [
        ("aes128-gmac128", Protocol::ESP),
        ("null-gmac128", Protocol::ESP),
        ("aes128-gmac128-prfsha256-x25519", Protocol::IKE),
    ] {
        let refused = Offer::parse(text, protocol).unwrap_err();
        assert!(
            matches!(refused, OfferError::OutOfPlace(..)),
            "{text}: {refused}"
        );
    }
}

#[test]
fn named_suites_and_defaults_are_suites_whose_keys_fit() {
    for suite in &NAMED_SUITES {
        for protocol in [Protocol::IKE, Protocol::ESP] {
            assert_keys_fit(&Offer::parse(suite.name, protocol).unwrap());
        }
    }
    for protocol in [Protocol::IKE, Protocol::ESP, Protocol::AH] {
        for aes_is_fast in [true, false] {
            let offers = default_offers(protocol, aes_is_fast);
            assert!(!offers.is_empty());
            offers.iter().for_each(assert_keys_fit);
            for weak in [
                "3des", "sha1", "md5", "modp1024", "modp1536", "null", "prfsha1",
            ] {
                let all = offers.iter().map(Offer::to_string).collect::<String>();
                assert!(!all.contains(weak), "{weak} by default");
            }
        }
    }
}

/// What is chosen of an offer by a peer with the same one makes keys.
fn assert_keys_fit(offer: &Offer) {
    let theirs = proposals(std::slice::from_ref(offer));
    let group = offer.of(TransformType::KEY_EXCHANGE).next();
    let payload = group.map_or(KeyExchangeOffered::Absent, |group| {
        KeyExchangeOffered::Payload(group.id)
    });
    let Ok(Outcome::Chosen(chosen)) = choose(&theirs, std::slice::from_ref(offer), payload) else {
        panic!("{offer} does not fit itself")
    };
    let protection = chosen.protection();
    let key = |len| Secret::new(vec![1; len]);
    let encryption = protection.encryption.map(|(row, len)| (row, key(len)));
    let integrity = protection.integrity.map(|row| (row, key(row.key_len)));
    assert!(
        Suite::new(encryption, integrity, None)
            .unwrap()
            .is_authenticated()
    );
    assert_eq!(chosen.prf().is_some(), chosen.protocol == Protocol::IKE);
    assert_eq!(chosen.group().is_some(), group.is_some());
}

#[test]
fn our_order_decides_among_proposals_and_within_them() {
    let theirs = [
        offer("aes128-aes256-sha256-sha512-x25519"),
        offer("aes128gcm16-aes256gcm16-prfsha256-prfsha384-x25519"),
    ];
    let ours = [
        offer("aes256gcm16-aes128gcm16-prfsha384-x25519"),
        offer("aes256-sha512-x25519"),
    ];
    assert_eq!(
        chosen(&theirs, &ours, X25519),
        "2: aes256gcm16-prfsha384-x25519"
    );
    assert_eq!(
        chosen(&theirs, &ours[1..], X25519),
        "1: aes256-prfsha512-sha512-x25519"
    );
}

#[test]
fn the_group_of_the_ke_payload_is_taken_if_it_is_ours_and_asked_for_anew_if_not() {
    let theirs = [offer("aes256gcm16-prfsha256-x25519-ecp256-modp2048")];
    let ours = [offer("aes256gcm16-prfsha256-ecp384-ecp256-x25519")];
    assert_eq!(
        chosen(&theirs, &ours, X25519),
        "1: aes256gcm16-prfsha256-x25519"
    );
    assert_eq!(
        chosen(&theirs, &ours, KeyExchangeOffered::Payload(14)),
        "group 19"
    );
    // RFC 7296 1.3: a payload of a group that is not even proposed.
    assert_eq!(
        chosen(&theirs, &ours, KeyExchangeOffered::Payload(20)),
        "group 19"
    );
}

#[test]
fn no_integrity_algorithm_beside_aead_whether_it_is_written_or_not() {
    let mut theirs = proposals(&[offer("aes256gcm16-prfsha256-x25519")]);
    let ours = [offer("aes256gcm16-prfsha256-x25519")];
    let none = Transform {
        kind: TransformType::INTEGRITY,
        id: 0,
        attributes: Attributes::None,
    };
    theirs[0].transforms.push(none);
    let Ok(Outcome::Chosen(chosen)) = choose(&theirs, &ours, X25519) else {
        panic!()
    };
    // RFC 7296 3.3.6: what was offered as a type is answered as a type.
    assert!(chosen.proposal(&[]).transforms.contains(&none));
    assert_eq!(chosen.protection().integrity, None);

    theirs[0].transforms.pop();
    theirs[0].transforms.push(Transform { id: 12, ..none });
    let refused = choose(&theirs, &ours, X25519).unwrap_err().to_string();
    assert!(
        refused.contains("integrity: the peer offers sha256, we offer none"),
        "{refused}"
    );
}

#[test]
fn a_child_with_or_without_a_key_exchange_of_its_own() {
    let (pfs, plain) = ([esp("aes128gcm16-x25519-esn")], [esp("aes128gcm16-esn")]);
    assert_eq!(chosen(&pfs, &pfs, X25519), "1: aes128gcm16-x25519-esn");
    assert_eq!(
        chosen(&plain, &plain, KeyExchangeOffered::Absent),
        "1: aes128gcm16-esn"
    );
    // RFC 7296 1.2: in IKE_AUTH groups are neither looked at nor answered.
    let ours = pfs.clone().map(Offer::without_key_exchange);
    assert_eq!(
        chosen(&pfs, &ours, KeyExchangeOffered::Ignored),
        "1: aes128gcm16-esn"
    );
    assert_eq!(chosen(&pfs, &pfs, KeyExchangeOffered::Absent), "group 31");
    let refused = refused(&plain, &pfs);
    assert!(
        refused.contains("key exchange: the peer offers none, we offer x25519"),
        "{refused}"
    );
}

#[test]
fn sequence_numbers_that_are_not_written_have_32_bits() {
    let mut theirs = proposals(&[esp("aes128gcm16-noesn")]);
    theirs[0].transforms.pop();
    let Ok(Outcome::Chosen(chosen)) =
        choose(&theirs, &[esp("aes128gcm16")], KeyExchangeOffered::Absent)
    else {
        panic!()
    };
    assert!(!chosen.has_extended_sequence_numbers());
    assert_eq!(chosen.proposal(&[]).transforms.len(), 1);
    let refused = choose(
        &theirs,
        &[esp("aes128gcm16-esn")],
        KeyExchangeOffered::Absent,
    )
    .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("sequence numbers: the peer offers noesn, we offer esn")
    );
}

#[test]
fn a_refusal_names_every_difference_and_the_closest_pair_first() {
    let theirs = [offer("3des-sha1-modp1024"), offer("aes256-sha256-modp1024")];
    let ours = [
        offer("aes256gcm16-prfsha384-x25519"),
        offer("aes256-sha256-x25519-ecp256"),
    ];
    let refused = refused(&theirs, &ours);
    let lines: Vec<_> = refused.lines().collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        lines[0],
        "proposal 2 of the peer (aes256-sha256-modp1024-prfsha256) against \
         aes256-sha256-x25519-ecp256-prfsha256: key exchange: the peer offers modp1024, we offer x25519, ecp256"
    );
    assert!(lines[1..].iter().any(|line| line.contains(
        "encryption: the peer offers 3des, we offer aes256gcm16; PRF: the peer offers prfsha1, we offer prfsha384; \
         integrity: the peer offers sha1, we offer none; key exchange"
    )));
}

#[test]
fn types_attributes_and_protocols_that_are_not_known_are_not_acceptable() {
    let ours = [offer("aes256gcm16-prfsha256-x25519")];
    let mut theirs = proposals(&ours);
    let kind = TransformType::ADDITIONAL_KEY_EXCHANGE_1;
    theirs[0].transforms.push(Transform {
        kind,
        id: 36,
        attributes: Attributes::None,
    });
    let refused = choose(&theirs, &ours, X25519).unwrap_err().to_string();
    assert!(
        refused
            .ends_with("additional key exchange 1: the peer demands one, which is not supported\n")
    );

    let other = [esp("aes256gcm16")];
    let refused = choose(&proposals(&other), &ours, X25519)
        .unwrap_err()
        .to_string();
    assert!(
        refused.ends_with("protocol: the peer offers ESP, we offer IKE\n"),
        "{refused}"
    );

    let mut theirs = proposals(&ours);
    theirs[0].transforms[0].attributes = Attributes::KeyLength(257);
    let refused = choose(&theirs, &ours, X25519).unwrap_err().to_string();
    assert!(refused.contains(
        "encryption: the peer offers number 20 with a key of 257 bits, we offer aes256gcm16"
    ));
}

#[test]
fn the_initiator_takes_only_what_it_offered() {
    let sent = [
        offer("aes256gcm16-aes128gcm16-prfsha256-x25519-ecp256"),
        offer("aes256-sha256-x25519"),
    ];
    let answer = |offer: Offer, number| SecurityAssociation {
        proposals: vec![offer.proposal(number, &[])],
    };
    let good = answer(offer("aes128gcm16-prfsha256-ecp256"), 1);
    assert_eq!(
        confirm(&sent, &good).unwrap().to_string(),
        "aes128gcm16-prfsha256-ecp256"
    );

    let other = answer(offer("aes192gcm16-prfsha256-ecp256"), 1);
    assert!(matches!(
        confirm(&sent, &other),
        Err(UnfitAnswer::Transform(_))
    ));
    let of_another_proposal = answer(offer("aes128gcm16-prfsha256-ecp256"), 2);
    assert!(matches!(
        confirm(&sent, &of_another_proposal),
        Err(UnfitAnswer::Transform(_))
    ));
    let two_of_a_type = answer(sent[0].clone(), 1);
    assert!(matches!(
        confirm(&sent, &two_of_a_type),
        Err(UnfitAnswer::Transform(_))
    ));
    for number in [0, 3] {
        let numbered = answer(offer("aes128gcm16-prfsha256-ecp256"), number);
        assert_eq!(confirm(&sent, &numbered), Err(UnfitAnswer::Number(number)));
    }
    assert_eq!(
        confirm(&sent, &answer(esp("aes128gcm16"), 1)),
        Err(UnfitAnswer::Protocol(Protocol::ESP))
    );
    let both = SecurityAssociation {
        proposals: proposals(&sent),
    };
    assert_eq!(confirm(&sent, &both), Err(UnfitAnswer::Proposals(2)));
    let mut downgraded = answer(offer("aes128gcm16-prfsha256-ecp256"), 1);
    downgraded.proposals[0].transforms.pop();
    assert!(matches!(
        confirm(&sent, &downgraded),
        Err(UnfitAnswer::Transform(_))
    ));
}

/// Names of which offers are made at random.
const SOME: [&str; 4] = [
    "aes128gcm16",
    "aes256gcm16",
    "chacha20poly1305",
    "aes128ccm16",
];
const SOME_PRFS: [&str; 3] = ["prfsha256", "prfsha384", "prfsha512"];
const SOME_GROUPS: [&str; 4] = ["x25519", "ecp256", "ecp384", "modp2048"];

fn any_offer() -> impl Strategy<Value = Offer> {
    let some = |names: &'static [&'static str]| {
        prop::sample::subsequence(names, 1..=names.len()).prop_shuffle()
    };
    (some(&SOME), some(&SOME_PRFS), some(&SOME_GROUPS))
        .prop_map(|names| offer(&[names.0, names.1, names.2].concat().join("-")))
}

proptest! {
    #[test]
    fn both_ends_agree_on_what_was_chosen(
        theirs in prop::collection::vec(any_offer(), 1..4),
        ours in prop::collection::vec(any_offer(), 1..4),
        payload in prop::sample::select(vec![31u16, 19, 20, 14]),
    ) {
        let sent = proposals(&theirs);
        match choose(&sent, &ours, KeyExchangeOffered::Payload(payload)) {
            Ok(Outcome::Chosen(chosen)) => {
                let answer = SecurityAssociation { proposals: vec![chosen.proposal(&[])] };
                prop_assert_eq!(confirm(&theirs, &answer), Ok(chosen));
            }
            // The second attempt with the group that was asked for succeeds.
            Ok(Outcome::OtherGroup(group)) => {
                prop_assert_ne!(group, payload);
                let again = choose(&sent, &ours, KeyExchangeOffered::Payload(group));
                prop_assert!(matches!(again, Ok(Outcome::Chosen(_))));
            }
            Err(refused) => {
                prop_assert_eq!(refused.comparisons.len(), theirs.len() * ours.len());
                prop_assert!(refused.comparisons.iter().all(|pair| !pair.differences.is_empty()));
            }
        }
    }
}
