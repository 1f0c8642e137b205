use super::*;

fn identity(text: &str) -> Identity {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn text_becomes_the_type_that_it_looks_like_and_goes_over_the_wire() {
    let cases: [(&str, u8, &[u8]); 8] = [
        ("192.0.2.1", 1, &[192, 0, 2, 1]),
        (
            "2001:db8::1",
            5,
            &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        ("vpn.example.org", 2, b"vpn.example.org"),
        ("@vpn", 2, b"vpn"),
        ("me@example.org", 3, b"me@example.org"),
        ("keyid:office", 11, b"office"),
        ("keyid:0x00fF", 11, &[0, 0xff]),
        (
            "CN=a",
            9,
            &[
                0x30, 0x0c, 0x31, 0x0a, 0x30, 0x08, 6, 3, 0x55, 4, 3, 0x0c, 1, b'a',
            ],
        ),
    ];
    for (text, number, data) in cases {
        let read = identity(text);
        let (written, bytes) = read.to_payload();
        assert_eq!((written, bytes.as_slice()), (number, data), "{text}");
        assert_eq!(Identity::from_payload(number, data), Ok(read), "{text}");
    }
}

#[test]
fn an_empty_identity_is_refused() {
    for text in [
        "",
        "a b",
        "keyid:",
        "keyid:0x",
        "keyid:0x123",
        "keyid:0x+1",
        "=",
        "a\u{7}b",
    ] {
        assert_eq!(text.parse::<Identity>(), Err(IdentityError::Text), "{text}");
    }
    let malformed: [(u8, &[u8]); 8] = [
        (1, &[1, 2, 3]),
        (5, &[0; 4]),
        (2, b""),
        (2, b"a\nb"),
        (3, b"nobody"),
        (9, &[0x30, 0]),
        (9, b"x"),
        (11, b""),
    ];
    for (number, data) in malformed {
        assert_eq!(
            Identity::from_payload(number, data),
            Err(IdentityError::Malformed(number))
        );
    }
    assert_eq!(
        Identity::from_payload(10, b"x"),
        Err(IdentityError::UnknownType(10))
    );
    assert_eq!(
        Identity::from_payload(2, &[b'a'; 2049]),
        Err(IdentityError::TooLong(2049))
    );
}

#[test]
fn the_same_is_the_same_in_either_case_and_nothing_else_is() {
    let same = [
        ("VPN.example.org", "vpn.EXAMPLE.org."),
        ("me@Example.org", "me@example.ORG"),
        (
            "C=CH, O=Example  GmbH, CN=vpn",
            "cn=VPN,o=example gmbh,c=ch",
        ),
        ("CN=vpn\\, one,O=x", "CN=vpn\\,  ONE,O=x"),
    ];
    for (one, other) in same {
        assert_eq!(identity(one), identity(other));
    }
    let different = [
        ("vpn.example.org", "vpn.example.org.evil"),
        ("Me@example.org", "me@example.org"),
        ("CN=vpn,O=Example", "CN=vpn"),
        ("CN=vpn,O=Example", "O=Example,CN=vpn"),
        ("CN=a,O=b", "CN=b,O=a"),
        ("keyid:Office", "keyid:office"),
        ("192.0.2.1", "@192.0.2.1"),
        ("vpn.example.org", "keyid:vpn.example.org"),
    ];
    for (one, other) in different {
        assert_ne!(identity(one), identity(other));
        assert_ne!(identity(other), identity(one));
    }
}

/// UTF8String, PrintableString, TeletexString and BMPString of the same letters.
#[test]
fn names_in_other_types_of_string_are_the_same() {
    let name = |tag: u8, value: &[u8]| {
        let len = value.len() as u8;
        let head = [
            0x30,
            11 + len,
            0x31,
            9 + len,
            0x30,
            7 + len,
            6,
            3,
            0x55,
            4,
            3,
            tag,
            len,
        ];
        Identity::from_payload(9, &[&head, value].concat()).expect("a name")
    };
    let utf8 = name(0x0c, b"Vpn");
    for (tag, value) in [
        (0x13, b"VPN".as_slice()),
        (0x14, b"vpn"),
        (0x1e, b"\0v\0p\0n"),
    ] {
        assert_eq!(name(tag, value), utf8, "tag {tag:#x}");
        assert_eq!(
            name(tag, value).index_text(),
            utf8.index_text(),
            "tag {tag:#x}"
        );
    }
    assert_ne!(name(0x04, b"Vpn"), utf8);
    assert_ne!(name(0x1e, b"\0v\0p\0m"), utf8);
}

#[test]
fn identities_that_are_equal_are_found_under_the_same_text() {
    for (one, other) in [
        ("VPN.example.org", "vpn.Example.org."),
        ("me@EXAMPLE.org", "me@example.org"),
        ("CN=Vpn, O=Example", "cn=vpn,o=EXAMPLE"),
        ("192.0.2.1", "192.0.2.1"),
        ("keyid:vpn", "keyid:0x76706e"),
    ] {
        let (one, other) = (identity(one), identity(other));
        assert_eq!(one, other);
        assert_eq!(one.index_text(), other.index_text());
    }
    assert_ne!(
        identity("Me@example.org").index_text(),
        identity("me@example.org").index_text()
    );
}

#[test]
fn patterns_take_one_label_more_and_nothing_beyond() {
    let matches = |pattern: &str, text: &str| {
        let pattern: Pattern = pattern.parse().expect("a pattern");
        pattern.matches(&identity(text))
    };
    assert!(matches("any", "192.0.2.1"));
    assert!(matches("vpn.example.org", "VPN.example.org"));
    assert!(matches("*.example.org", "a.Example.org"));
    assert!(matches("*@example.org", "me@EXAMPLE.org"));
    for (pattern, text) in [
        ("*.example.org", "example.org"),
        ("*.example.org", "a.b.example.org"),
        ("*.example.org", "a.example.net"),
        ("*.example.org", "keyid:a.example.org"),
        ("*@example.org", "me@a.example.org"),
        ("*@example.org", "a.example.org"),
        ("vpn.example.org", "other.example.org"),
    ] {
        assert!(!matches(pattern, text), "{pattern} and {text}");
    }
    for text in [
        "*",
        "a.*.org",
        "*.*.org",
        "*.me@example.org",
        "*.192.0.2.1",
        "*@*",
        "",
    ] {
        assert!(text.parse::<Pattern>().is_err(), "{text}");
    }
}
