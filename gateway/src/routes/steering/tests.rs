use super::*;
use crate::routes::DEFAULT_MARK;
use crate::routes::plan::tests::entry;
use crate::routes::plan::{Planes, Way};

fn site() -> Site {
    Site::new("esp0", None, DEFAULT_MARK).unwrap()
}

fn plan(leaving: Vec<Entry>) -> Plan {
    Plan {
        leaving,
        ..Plan::default()
    }
}

#[test]
fn outer_packets_leave_the_block_before_any_policy_is_asked() {
    let plan = plan(vec![entry(
        "10.1.0.0/24",
        "10.2.0.0/24",
        Upper::Any,
        Disposition::Protect,
    )]);
    let rules = rules(&site(), &plan);
    assert_eq!(rules.len(), 4);
    assert_eq!(rules[0].mark, Some(DEFAULT_MARK));
    assert_eq!(rules[0].action, RuleAction::Goto(10_999));
    assert_eq!(rules[2].action, RuleAction::Lookup(4500));
    assert_eq!(rules[3].action, RuleAction::Nothing);
    assert!(rules.is_sorted_by_key(|rule| rule.preference));
}

#[test]
fn the_order_of_policies_is_the_order_of_preferences() {
    let ssh = Upper::Protocol {
        number: 6,
        source_port: None,
        destination_port: Some(22),
    };
    let plan = plan(vec![
        entry("10.1.0.0/24", "10.2.0.0/24", ssh, Disposition::Bypass),
        entry(
            "10.1.0.9/32",
            "10.3.0.0/24",
            Upper::Any,
            Disposition::Discard,
        ),
        entry(
            "10.1.0.0/24",
            "10.2.0.0/24",
            Upper::Any,
            Disposition::Protect,
        ),
    ]);
    let rules = rules(&site(), &plan);
    let actions: Vec<_> = rules[2..5].iter().map(|rule| rule.action).collect();
    assert_eq!(
        actions,
        [
            RuleAction::Goto(10_999),
            RuleAction::Drop,
            RuleAction::Lookup(4500)
        ]
    );
    assert_eq!(rules[2].destination_port, Some(22));
}

#[test]
fn what_is_discarded_on_the_way_of_protected_traffic_is_led_to_the_device_too() {
    let udp = Upper::Protocol {
        number: 17,
        source_port: None,
        destination_port: None,
    };
    let plan = plan(vec![
        entry("10.1.0.0/24", "10.2.0.7/32", udp, Disposition::Discard),
        entry(
            "10.1.0.0/24",
            "10.2.0.0/24",
            Upper::Any,
            Disposition::Protect,
        ),
    ]);
    let rules = rules(&site(), &plan);
    assert_eq!(rules[2].action, RuleAction::Lookup(4500));
}

#[test]
fn ports_without_a_protocol_become_one_rule_for_each_protocol_that_has_ports() {
    let dns = Upper::Ports {
        source_port: None,
        destination_port: Some(53),
    };
    let plan = plan(vec![entry(
        "::/0",
        "2001:db8::/32",
        dns,
        Disposition::Protect,
    )]);
    let rules = rules(&site(), &plan);
    assert_eq!(rules.len(), 3 + WITH_PORTS.len());
    assert!(rules.iter().all(|rule| rule.family == Family::V6));
}

#[test]
fn a_type_of_icmp_is_left_to_marks() {
    let echo = Upper::Icmp {
        number: 1,
        kind: Some(8),
        code: None,
    };
    let plan = plan(vec![entry(
        "0.0.0.0/0",
        "10.2.0.0/24",
        echo,
        Disposition::Protect,
    )]);
    assert!(plan.needs_marks());
    assert_eq!(rules(&site(), &plan).len(), 3);
}

#[test]
fn more_policies_than_preferences_are_left_to_marks() {
    let many = (0..2000).map(|_| {
        entry(
            "10.1.0.0/24",
            "10.2.0.0/24",
            Upper::Any,
            Disposition::Protect,
        )
    });
    let plan = plan(many.collect());
    assert!(plan.needs_marks());
    assert_eq!(rules(&site(), &plan).len(), 3);
}

#[test]
fn unreachable_stands_before_and_behind_the_device() {
    let plan = plan(vec![
        entry(
            "10.1.0.0/24",
            "10.2.0.0/24",
            Upper::Any,
            Disposition::Protect,
        ),
        entry(
            "2001:db8:1::/48",
            "2001:db8:2::/48",
            Upper::Any,
            Disposition::Protect,
        ),
    ]);
    let routes = routes(&site(), &plan);
    assert_eq!(routes.len(), 4);
    assert!(routes[0].device.is_none() && routes[1].device.is_none());
    assert!(routes[2].device.as_deref() == Some("esp0") && routes[2].metric < routes[0].metric);
}

fn to_device(source: &str, destination: &str, device: Option<&str>) -> Entry {
    let protected = entry(source, destination, Upper::Any, Disposition::Protect);
    Entry {
        device: device.map(Arc::from),
        ..protected
    }
}

fn devices_of(plan: &Plan) -> Vec<(String, String)> {
    let text = |prefix: Prefix| format!("{}/{}", prefix.address, prefix.len);
    let routes = routes(&site(), plan).into_iter();
    let led = routes.filter_map(|route| {
        let device = route.device?;
        Some((text(route.destination), device.to_string()))
    });
    led.collect()
}

#[test]
fn the_networks_of_a_peer_lead_to_its_device_and_all_others_to_the_first() {
    let plan = plan(vec![
        to_device("10.1.0.0/24", "10.2.0.0/16", Some("ike-a")),
        to_device("10.1.0.0/24", "10.2.7.0/24", Some("ike-b")),
        to_device("10.1.0.0/24", "10.3.0.0/24", None),
    ]);
    let to = |destination: &str, device: &str| (destination.to_owned(), device.to_owned());
    let wanted = [
        to("10.2.0.0/16", "ike-a"),
        to("10.2.7.0/24", "ike-b"),
        to("10.3.0.0/24", "esp0"),
    ];
    assert_eq!(devices_of(&plan), wanted);
}

#[test]
fn a_destination_of_two_peers_leads_to_the_first_device_where_policies_tell_them_apart() {
    let plan = plan(vec![
        to_device("10.1.0.0/24", "10.2.0.0/16", Some("ike-a")),
        to_device("10.7.0.0/24", "10.2.0.0/16", Some("ike-b")),
    ]);
    let wanted = [("10.2.0.0/16".to_owned(), "esp0".to_owned())];
    assert_eq!(devices_of(&plan), wanted);
}

fn led(source: &str, destination: &str, router: Option<&str>) -> Entry {
    Entry {
        via: Some(Way {
            device: "eth0".into(),
            next_hop: router.map(|router| router.parse().unwrap()),
            source: Some("10.1.0.1".parse().unwrap()),
        }),
        mtu: Some(1400),
        ..to_device(source, destination, None)
    }
}

/// `"10.2.0.0/24 via 192.0.2.254 dev eth0 src 10.1.0.1"`.
fn written(route: &Route) -> String {
    let mut text = format!("{}/{}", route.destination.address, route.destination.len);
    let mut add = |word: &str, value: Option<String>| {
        if let Some(value) = value {
            text += &format!(" {word} {value}");
        }
    };
    add("via", route.next_hop.map(|router| router.to_string()));
    add(
        "dev",
        route.device.as_ref().map(|device| device.to_string()),
    );
    add("src", route.source.map(|source| source.to_string()));
    add("mtu", route.mtu.map(|mtu| mtu.to_string()));
    text
}

#[test]
fn by_the_kernel_routes_lead_to_peers_and_without_a_way_nowhere() {
    let leaving = vec![
        led("10.1.0.0/24", "10.2.0.0/24", Some("192.0.2.254")),
        led("10.1.0.0/24", "10.3.0.0/24", None),
        to_device("10.1.0.0/24", "10.4.0.0/24", None),
        to_device("10.1.0.0/24", "10.5.0.0/24", Some("ike-a")),
        // The first way of two policies for one destination.
        to_device("10.7.0.0/24", "10.6.0.0/24", None),
        led("10.1.0.0/24", "10.6.0.0/24", Some("192.0.2.254")),
        led("10.7.0.0/24", "10.6.0.0/24", Some("192.0.2.253")),
    ];
    let by = |planes| Plan {
        planes,
        ..plan(leaving.clone())
    };
    let all = |planes| -> Vec<_> { routes(&site(), &by(planes)).iter().map(written).collect() };
    let kernel = [
        "0.0.0.0/0",
        "10.2.0.0/24 via 192.0.2.254 dev eth0 src 10.1.0.1",
        "10.3.0.0/24 dev eth0 src 10.1.0.1",
        "10.4.0.0/24",
        "10.5.0.0/24 dev ike-a",
        "10.6.0.0/24 via 192.0.2.254 dev eth0 src 10.1.0.1",
    ];
    assert_eq!(all(Planes::Kernel), kernel);
    let moving = Planes::Both { kernel_opens: true };
    let both = kernel.map(|route| match route {
        "10.4.0.0/24" => "10.4.0.0/24 dev esp0",
        other => other,
    });
    assert_eq!(all(moving), both);
    let user = [
        "0.0.0.0/0",
        "10.2.0.0/24 dev esp0 mtu 1400",
        "10.3.0.0/24 dev esp0 mtu 1400",
        "10.4.0.0/24 dev esp0",
        "10.5.0.0/24 dev ike-a",
        "10.6.0.0/24 dev esp0 mtu 1400",
    ];
    assert_eq!(all(Planes::User), user);
    // Rules do not depend on who carries the traffic.
    assert_eq!(
        rules(&site(), &by(Planes::Kernel)),
        rules(&site(), &by(Planes::User))
    );
}

#[test]
fn a_way_that_changes_or_goes_changes_its_route_alone() {
    let kernel = |leaving| Plan {
        planes: Planes::Kernel,
        ..plan(leaving)
    };
    let stays = led("10.1.0.0/24", "10.3.0.0/24", Some("192.0.2.254"));
    let before = kernel(vec![
        led("10.1.0.0/24", "10.2.0.0/24", Some("192.0.2.254")),
        stays.clone(),
    ]);
    for (now, expected) in [
        (
            led("10.1.0.0/24", "10.2.0.0/24", Some("192.0.2.253")),
            "10.2.0.0/24 via 192.0.2.253 dev eth0 src 10.1.0.1",
        ),
        (to_device("10.1.0.0/24", "10.2.0.0/24", None), "10.2.0.0/24"),
    ] {
        let after = kernel(vec![now, stays.clone()]);
        assert!(before.drops_as(&after));
        let changed = changed_routes(&site(), &before, &after);
        let changed: Vec<_> = changed.iter().map(written).collect();
        assert_eq!(changed, [expected]);
    }
}
