use super::*;
use crate::events::selector_text;
use crate::failure::Failure;

fn range(first: &str, last: &str) -> AddressRange {
    AddressRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap()
}

fn texts(first: &str, last: &str) -> Vec<String> {
    let text = |prefix: &Prefix| format!("{}/{}", prefix.address, prefix.len);
    prefixes(range(first, last)).iter().map(text).collect()
}

#[test]
fn a_range_becomes_the_fewest_prefixes_with_exactly_its_addresses() {
    assert_eq!(texts("10.1.0.0", "10.1.255.255"), ["10.1.0.0/16"]);
    assert_eq!(texts("10.1.0.7", "10.1.0.7"), ["10.1.0.7/32"]);
    assert_eq!(texts("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
    assert_eq!(
        texts("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ["::/0"]
    );
    assert_eq!(
        texts("255.255.255.254", "255.255.255.255"),
        ["255.255.255.254/31"]
    );
    assert_eq!(
        texts("10.0.0.1", "10.0.0.6"),
        ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]
    );
    assert_eq!(texts("::1", "::3"), ["::1/128", "::2/127"]);
    assert_eq!(texts("0.0.0.1", "255.255.255.255").len(), 32);
}

fn traffic(protocol: u8, ports: Ports) -> Traffic {
    Traffic {
        protocol,
        ports,
        addresses: range("10.1.0.0", "10.1.0.255"),
    }
}

fn port(number: u16) -> Ports {
    Ports::new(number, number).unwrap()
}

fn selectors(local: Traffic, remote: Traffic) -> Result<[String; 2], Failure> {
    let pairs = pairs(&[local], &[remote])?;
    assert_eq!(pairs.len(), 1);
    Ok([Direction::Out, Direction::In].map(|way| selector_text(&pairs[0].selector(way))))
}

#[test]
fn protocol_and_ports_of_both_sides_are_in_the_selectors_of_both_directions() {
    let selected = |local, remote| selectors(local, remote).unwrap();
    assert_eq!(
        selected(traffic(0, Ports::ANY), traffic(6, port(443))),
        [
            "10.1.0.0/24[any] 10.1.0.0/24[443] tcp",
            "10.1.0.0/24[443] 10.1.0.0/24[any] tcp"
        ]
    );
    assert_eq!(
        selected(traffic(0, port(53)), traffic(0, Ports::ANY))[0],
        "10.1.0.0/24[53] 10.1.0.0/24[any] any"
    );
    assert_eq!(
        selected(
            traffic(1, Ports::ANY),
            traffic(1, Ports::new(0x0800, 0x08ff).unwrap())
        )[0],
        "10.1.0.0/24[any] 10.1.0.0/24[any] icmp 8,any"
    );
    assert_eq!(
        selected(traffic(1, port(0x0301)), traffic(1, Ports::ANY))[1],
        "10.1.0.0/24[any] 10.1.0.0/24[any] icmp 3,1"
    );
}

#[test]
fn a_pair_is_made_again_of_its_traffic() {
    let icmp = Ports::new(0x0800, 0x08ff).unwrap();
    for (local, remote) in [
        (traffic(0, Ports::ANY), traffic(0, Ports::ANY)),
        (traffic(0, Ports::ANY), traffic(6, port(443))),
        (traffic(17, port(53)), traffic(17, port(1))),
        (traffic(0, port(53)), traffic(0, Ports::ANY)),
        (traffic(1, Ports::ANY), traffic(1, icmp)),
        (traffic(1, port(0x0301)), traffic(1, Ports::ANY)),
        (traffic(1, Ports::ANY), traffic(1, Ports::ANY)),
        (
            Traffic::of(range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
            Traffic::of(range("2001:db8::", "2001:db8::7")),
        ),
        (
            Traffic::of(range("0.0.0.0", "255.255.255.255")),
            Traffic::of(range("10.0.0.1", "10.0.0.6")),
        ),
    ] {
        for pair in pairs(&[local], &[remote]).unwrap() {
            let (local, remote) = pair.traffic().unwrap();
            assert_eq!(pairs(&[local], &[remote]).unwrap(), [pair]);
        }
    }
}

#[test]
fn what_a_policy_cannot_express_is_refused_with_the_reason() {
    let some = Ports::new(1000, 2000).unwrap();
    let why = selectors(traffic(6, some), traffic(6, Ports::ANY)).unwrap_err();
    assert!(why.to_string().contains("1000 to 2000"), "{why}");
    let why = selectors(traffic(6, Ports::Opaque), traffic(6, Ports::ANY)).unwrap_err();
    assert!(why.to_string().contains("no visible port"), "{why}");
    let why = selectors(traffic(6, Ports::ANY), traffic(17, Ports::ANY)).unwrap_err();
    assert!(why.to_string().contains("no packet in common"), "{why}");
    let wide = Traffic {
        addresses: range("0.0.0.1", "255.255.255.254"),
        ..traffic(0, Ports::ANY)
    };
    let why = selectors(wide, wide).unwrap_err();
    assert!(why.to_string().contains("pairs of prefixes"), "{why}");
}

#[test]
fn networks_of_both_families_make_pairs_within_each_family() {
    let v6 = Traffic::of(range("2001:db8::", "2001:db8::ffff"));
    let v4 = traffic(0, Ports::ANY);
    let both = pairs(&[v4, v6], &[v4, v6]).unwrap();
    assert_eq!(both.len(), 2);
    assert!(both.iter().all(|pair| pair.local == pair.remote));
}
