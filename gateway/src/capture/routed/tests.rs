use super::super::operation::Operation;
use super::super::tests::{KEYS, capture, go, go_routed, inner, tunnel, udp_packet};
use super::*;

/// A device of its own, both directions: the same lines serve both ends.
fn by_route(options: &str) -> String {
    let one = |from: u8, to: u8| {
        format!(
            "add 192.0.2.{from} 192.0.2.{to} esp-udp 0x100{from} -m tunnel -r 64 -o interface=vpn0 {options} {KEYS};"
        )
    };
    one(1, 2) + &one(2, 1)
}

fn at_the_left() -> Routed {
    Routed {
        local: Some([192, 0, 2, 1].into()),
        ..Routed::default()
    }
}

#[test]
fn what_was_routed_into_a_device_is_sealed_by_its_association_and_opens_with_the_same_file() {
    let packets: Vec<_> = [20, 64, 333, 1400].into_iter().map(inner).collect();
    for text in [by_route(""), by_route("-o aggfrag")] {
        let (report, sealed) =
            go_routed(&capture(&packets), &text, Operation::Seal, &at_the_left());
        assert!(report.unwrap().is_complete(), "{text}");
        for packet in &sealed {
            assert_eq!(packet[12..20], [192, 0, 2, 1, 192, 0, 2, 2]);
            assert_eq!(packet[28..32], 0x1001u32.to_be_bytes());
        }
        let (report, opened) = go(&capture(&sealed), &text, Operation::Open);
        assert!(report.unwrap().is_complete(), "{text}");
        assert_eq!(opened, packets, "{text}");
    }
}

#[test]
fn policies_are_asked_before_the_device() {
    let text = by_route("") + &tunnel().replace("0x1001", "0x2001");
    let elsewhere = udp_packet([10, 1, 0, 2], [10, 3, 0, 2], 40);
    let file = capture(&[inner(30), elsewhere, inner(50)]);
    let (report, sealed) = go_routed(&file, &text, Operation::Seal, &at_the_left());
    assert_eq!(report.unwrap().named(), 3);
    let spis: Vec<_> = sealed.iter().map(|packet| packet[30]).collect();
    assert_eq!(spis, [0x20, 0x10, 0x20]);
}

#[test]
fn a_device_or_an_end_that_is_not_clear_is_asked_for() {
    let refused = |text: &str, interface: Option<&str>, local: Option<[u8; 4]>| {
        let routed = Routed {
            interface: interface.map(str::to_owned),
            local: local.map(Into::into),
        };
        let outcome = go_routed(&capture(&[inner(30)]), text, Operation::Seal, &routed).0;
        outcome.err().unwrap().to_string()
    };
    let (one, two) = (
        by_route(""),
        by_route("")
            + &by_route("")
                .replace("vpn0", "vpn1")
                .replace("0x100", "0x200"),
    );
    let error = refused(&one, None, None);
    assert!(
        error.contains("192.0.2.1, 192.0.2.2: choose the local one with --local"),
        "{error}"
    );
    let error = refused(&one, None, Some([192, 0, 2, 9]));
    assert!(error.contains("start at 192.0.2.1, 192.0.2.2"), "{error}");
    let error = refused(&two, None, Some([192, 0, 2, 1]));
    assert!(
        error.contains("vpn0, vpn1: choose with --interface"),
        "{error}"
    );
    let error = refused(&one, Some("vpn7"), None);
    assert!(error.contains("the associations name vpn0"), "{error}");
    let error = refused(&tunnel(), Some("vpn7"), None);
    assert!(error.contains("no association of the file"), "{error}");
}
