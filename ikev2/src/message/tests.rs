//! Single rules of section 3 that real exchanges do not show, and any payloads there and back.

use super::payload::{
    Attributes, AuthMethod, Authentication, EncryptedFragment, KeyExchange, MAX_PAYLOADS,
    TrafficSelector, parse_decrypted, print,
};
use super::*;

mod round_trip;

/// Payloads as they stand behind a header: type, flags, body.
fn chain(payloads: &[(u8, u8, &[u8])]) -> (PayloadType, Vec<u8>) {
    let mut bytes = Vec::new();
    for (index, (_, flags, body)) in payloads.iter().enumerate() {
        let next = payloads.get(index + 1).map_or(0, |next| next.0);
        bytes.extend([next, *flags]);
        bytes.extend((body.len() as u16 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
    }
    (
        PayloadType(payloads.first().map_or(0, |first| first.0)),
        bytes,
    )
}

fn refusal(payloads: &[(u8, u8, &[u8])]) -> Refusal {
    let (first, bytes) = chain(payloads);
    parse_decrypted(first, &bytes).expect_err("refused")
}

fn malformed(kind: u8, body: &[u8]) -> (usize, &'static str) {
    match refusal(&[(kind, 0, body)]) {
        Refusal::Malformed(malformed) => {
            assert_eq!(malformed.location, Location::Payload(PayloadType(kind)));
            (malformed.offset, malformed.expected)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_unknown_payload_is_kept_and_a_critical_one_refused_by_its_type() {
    let (first, bytes) = chain(&[(200, 0, b"what"), (43, 0, b"vendor")]);
    let payloads = parse_decrypted(first, &bytes).unwrap();
    assert_eq!(
        payloads[0].body,
        Body::Unknown {
            kind: PayloadType(200),
            bytes: b"what"
        }
    );
    assert_eq!(payloads[1].body, Body::VendorId(b"vendor"));
    let refused = refusal(&[(43, 0, b"vendor"), (200, 0x80, b"what")]);
    assert_eq!(refused, Refusal::UnsupportedCritical(PayloadType(200)));
}

#[test]
fn the_critical_bit_of_a_known_payload_has_no_meaning() {
    let (first, bytes) = chain(&[(43, 0x80, b"vendor")]);
    let payloads = parse_decrypted(first, &bytes).unwrap();
    assert_eq!(
        payloads,
        [Payload {
            critical: true,
            body: Body::VendorId(b"vendor")
        }]
    );
}

#[test]
fn reserved_bits_are_ignored_when_read_and_zero_when_printed() {
    let (first, bytes) = chain(&[
        (34, 0x7f, &[0, 31, 0xff, 0xff, 1]),
        (39, 0, &[2, 9, 9, 9, 1]),
    ]);
    let payloads = parse_decrypted(first, &bytes).unwrap();
    let exchange = KeyExchange {
        group: 31,
        public: &[1],
    };
    let authentication = Authentication {
        method: AuthMethod::SHARED_KEY,
        data: &[1],
    };
    assert_eq!(payloads[0].body, Body::KeyExchange(exchange));
    assert_eq!(payloads[1].body, Body::Authentication(authentication));
    let mut printed = Vec::new();
    print(&payloads, &mut printed).unwrap();
    assert_eq!(
        printed,
        chain(&[(34, 0, &[0, 31, 0, 0, 1]), (39, 0, &[2, 0, 0, 0, 1])]).1
    );
}

#[test]
fn what_is_signed_of_an_identity_keeps_its_reserved_bytes() {
    let (first, bytes) = chain(&[(35, 0, &[2, 1, 2, 3, b'a'])]);
    let payloads = parse_decrypted(first, &bytes).unwrap();
    let Body::IdentificationInitiator(identity) = payloads[0].body else {
        panic!()
    };
    assert_eq!(identity.signed(), ([2, 1, 2, 3], &b"a"[..]));
}

#[test]
fn an_error_names_the_payload_the_byte_and_what_was_expected() {
    assert_eq!(malformed(40, &[0; 15]), (4, "16 to 256 bytes of nonce"));
    assert_eq!(malformed(40, &[0; 257]), (4, "16 to 256 bytes of nonce"));
    assert_eq!(
        malformed(35, &[1, 0, 0, 0, 10, 0, 0]),
        (8, "4 bytes of an IPv4 address")
    );
    assert_eq!(
        malformed(36, &[5, 0, 0, 0, 10, 0, 0]),
        (8, "16 bytes of an IPv6 address")
    );
    assert_eq!(
        malformed(41, &[0, 0, 0, 17, 31]),
        (8, "2 bytes of group number")
    );
    assert_eq!(
        malformed(41, &[0, 4, 0, 1]),
        (8, "as many bytes of SPI as its length says")
    );
    assert_eq!(
        malformed(42, &[3, 4, 0, 2, 1, 2, 3, 4]),
        (8, "as many SPIs as were counted")
    );
    assert_eq!(
        malformed(42, &[1, 8, 0, 0]),
        (4, "SPIs of 4 bytes, of 0 for IKE")
    );
    assert_eq!(malformed(44, &[0, 0, 0, 0]), (4, "at least one selector"));
    let backwards = [
        1, 0, 0, 0, 7, 0, 0, 16, 0, 0, 0xff, 0xff, 10, 0, 0, 2, 10, 0, 0, 1,
    ];
    assert_eq!(
        malformed(44, &backwards),
        (16, "a first address that is not above the last")
    );
    assert_eq!(
        malformed(47, &[1, 0, 0, 0, 0, 1, 0, 9]),
        (12, "as many bytes as the attribute's length says")
    );
}

/// One proposal for ESP with one transform, as bytes.
const PROPOSAL: [u8; 20] = [0, 0, 0, 20, 1, 3, 4, 1, 1, 2, 3, 4, 0, 0, 0, 8, 5, 0, 0, 0];

#[test]
fn counts_and_marks_of_a_proposal_must_be_those_of_what_is_there() {
    let changed = |at: usize, to: u8| {
        let mut proposal = PROPOSAL;
        proposal[at] = to;
        malformed(33, &proposal)
    };
    assert_eq!(
        changed(0, 2).1,
        "2 in front of all proposals but the last, and 0 there"
    );
    assert_eq!(
        changed(3, 19).1,
        "as many bytes as the transform's length says"
    );
    assert_eq!(
        changed(3, 21).1,
        "as many bytes as the proposal's length says"
    );
    assert_eq!(
        changed(6, 8).1,
        "an SPI of 4 bytes for ESP and AH, of 0 or 8 for IKE"
    );
    assert_eq!(
        changed(7, 0).1,
        "as many transforms as were counted, at least one"
    );
    assert_eq!(
        changed(7, 2).1,
        "3 in front of all transforms but the last, and 0 there"
    );
    assert_eq!(
        changed(12, 3).1,
        "3 in front of all transforms but the last, and 0 there"
    );
    assert_eq!(changed(15, 7).1, "a transform ID");
    assert_eq!(malformed(33, &[]).1, "a proposal");
}

#[test]
fn proposals_are_numbered_one_by_one() {
    let mut second = PROPOSAL;
    second[4] = 3;
    let mut first = PROPOSAL;
    first[0] = 2;
    let both = [first, second].concat();
    assert_eq!(
        malformed(33, &both),
        (24, "a proposal number one above the last")
    );
}

#[test]
fn attributes_of_both_formats_are_kept_and_only_the_length_of_a_key_is_understood() {
    let transform = |attributes: &[u8]| {
        let mut proposal = PROPOSAL.to_vec();
        proposal[3] += attributes.len() as u8;
        proposal[15] += attributes.len() as u8;
        proposal.extend_from_slice(attributes);
        let (first, bytes) = chain(&[(33, 0, &proposal)]);
        let payloads = parse_decrypted(first, &bytes).unwrap();
        let mut printed = Vec::new();
        print(&payloads, &mut printed).unwrap();
        assert_eq!(printed, bytes);
        let Body::SecurityAssociation(association) = &payloads[0].body else {
            panic!()
        };
        match association.proposals[0].transforms[0].attributes {
            Attributes::None => vec![],
            Attributes::KeyLength(bits) => vec![bits],
            Attributes::Other(others) => others.iter().map(|attribute| attribute.kind).collect(),
        }
    };
    assert!(transform(&[]).is_empty());
    assert_eq!(transform(&[0x80, 14, 1, 0]), [256]);
    assert_eq!(transform(&[0x80, 15, 1, 0, 0, 14, 0, 1, 7]), [15, 14]);
}

#[test]
fn counts_are_bounded() {
    let one: (u8, u8, &[u8]) = (43, 0, &[]);
    let (first, bytes) = chain(&vec![one; MAX_PAYLOADS]);
    assert_eq!(parse_decrypted(first, &bytes).unwrap().len(), MAX_PAYLOADS);
    assert!(matches!(
        refusal(&vec![one; MAX_PAYLOADS + 1]),
        Refusal::Malformed(_)
    ));

    let mut proposals = Vec::new();
    for number in 1..=5 {
        let mut proposal = vec![
            if number == 5 { 0 } else { 2 },
            0,
            0,
            0,
            number,
            3,
            4,
            255,
            1,
            2,
            3,
            4,
        ];
        for left in (0..255).rev() {
            proposal.extend([if left == 0 { 0 } else { 3 }, 0, 0, 8, 1, 0, 0, 20]);
        }
        let len = (proposal.len() as u16).to_be_bytes();
        proposal[2..4].copy_from_slice(&len);
        proposals.extend(proposal);
    }
    assert_eq!(
        malformed(33, &proposals).1,
        "at most 1024 transforms in all proposals"
    );
}

#[test]
fn an_encrypted_payload_is_the_last_and_never_inside_another() {
    for kind in [46, 53] {
        let refused = refusal(&[(kind, 0, &[0, 1, 0, 1, 9])]);
        assert!(matches!(refused, Refusal::Malformed(_)));
    }
    let header = Header {
        initiator_spi: IkeSpi([1; 8]),
        responder_spi: IkeSpi([2; 8]),
        exchange: ExchangeType::INFORMATIONAL,
        flags: Flags::default(),
        message_id: 7,
    };
    let first = PayloadType::NOTIFY;
    let encrypted = Body::Encrypted {
        first,
        sealed: &[1, 2, 3],
    };
    let bytes = Message {
        header,
        payloads: vec![encrypted.clone().into()],
    }
    .print()
    .unwrap();
    assert_eq!(Message::parse(&bytes).unwrap().payloads, [encrypted.into()]);
    let behind = [bytes.as_slice(), &[0, 0, 0, 4]].concat();
    let mut longer = behind.clone();
    longer[27] += 4;
    assert!(matches!(
        Message::parse(&longer),
        Err(Refusal::Malformed(_))
    ));
}

#[test]
fn fragments_are_numbered_from_one_to_their_total() {
    let (first, inside) = (PayloadType::NONE, PayloadType::NOTIFY);
    let read = |first, number, total| {
        let fragment = EncryptedFragment {
            first,
            number,
            total,
            sealed: &[],
        };
        let mut bytes = vec![0; 28];
        print(&[Body::EncryptedFragment(fragment).into()], &mut bytes).unwrap();
        payload::parse_message(PayloadType::ENCRYPTED_FRAGMENT, &bytes[28..]).is_ok()
    };
    assert!(read(inside, 1, 2) && read(first, 2, 2));
    assert!(!read(first, 0, 2) && !read(first, 3, 2) && !read(first, 0, 0));
    assert!(!read(inside, 2, 2));
}

#[test]
fn what_does_not_fit_its_length_field_is_not_printed() {
    let long = vec![0; 65_532];
    let payloads = [Body::VendorId(&long).into()];
    assert_eq!(
        print(&payloads, &mut Vec::new()),
        Err(TooLong(PayloadType::VENDOR_ID))
    );
    let payloads = [Body::VendorId(&long[1..]).into()];
    assert_eq!(print(&payloads, &mut Vec::new()), Ok(()));
    let selectors = vec![TrafficSelector::ANY_IPV4; 256];
    let payloads = [Body::TrafficSelectorsInitiator(selectors).into()];
    let too_long = TooLong(PayloadType::TRAFFIC_SELECTORS_INITIATOR);
    assert_eq!(print(&payloads, &mut Vec::new()), Err(too_long));
}
