use super::*;
use crate::database::explain::tests::packet;

const FAR_END: &str = "203.0.113.7";

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host that reaches 10.1/16 by its device 1, everything else by its router on device 2.
fn host(hops: &[(&str, u32, Option<&str>)]) -> Surroundings {
    let hop = |(to, device, router): &(&str, u32, Option<&str>)| {
        let hop = Hop {
            device: *device,
            router: router.map(address),
        };
        (address(to), hop)
    };
    Surroundings {
        own: [address("10.1.0.1")].into(),
        hops: hops.iter().map(hop).collect(),
        ..Surroundings::default()
    }
}

fn way(host: &Surroundings, source: &str, destination: &str) -> Way {
    host.way(&packet(source, destination), &[address(FAR_END)])
}

#[test]
fn a_packet_leaves_from_this_side_and_from_this_host_and_arrives_the_other_way() {
    let router = Some("198.51.100.1");
    let host = host(&[
        ("10.1.0.5", 1, None),
        ("10.2.0.5", 2, router),
        (FAR_END, 2, router),
    ]);
    for near in ["10.1.0.5", "10.1.0.1"] {
        assert_eq!(way(&host, near, "10.2.0.5"), Way::Leaving);
        assert_eq!(way(&host, "10.2.0.5", near), Way::Arriving);
    }
}

#[test]
fn with_one_device_what_has_the_far_ends_router_is_on_the_other_side() {
    let router = Some("10.1.0.254");
    let host = host(&[
        ("10.1.0.5", 1, None),
        ("10.2.0.5", 1, router),
        (FAR_END, 1, router),
    ]);
    assert_eq!(way(&host, "10.1.0.5", "10.2.0.5"), Way::Leaving);
    assert_eq!(way(&host, "10.2.0.5", "10.1.0.5"), Way::Arriving);
}

#[test]
fn an_address_without_a_route_is_left_to_the_other_one() {
    let host = host(&[("10.1.0.5", 1, None), (FAR_END, 2, None)]);
    assert_eq!(way(&host, "10.1.0.5", "10.2.0.5"), Way::Leaving);
    assert_eq!(way(&host, "10.2.0.5", "10.1.0.5"), Way::Arriving);
    assert_eq!(way(&host, "10.3.0.5", "10.2.0.5"), Way::Unknown);
}

#[test]
fn neighbours_of_the_far_end_and_two_hosts_of_one_side_tell_nothing() {
    let hops = [
        ("10.1.0.5", 1, None),
        ("10.1.0.6", 1, None),
        ("203.0.113.8", 2, None),
        ("203.0.113.9", 2, None),
        (FAR_END, 2, None),
    ];
    let host = host(&hops);
    assert_eq!(way(&host, "10.1.0.5", "10.1.0.6"), Way::Unknown);
    assert_eq!(way(&host, "203.0.113.8", "203.0.113.9"), Way::Unknown);
    let nothing = Surroundings::default();
    assert_eq!(way(&nothing, "10.1.0.5", "203.0.113.8"), Way::Unknown);
}
