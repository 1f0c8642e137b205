use super::super::DEFAULT_MARK;
use super::super::plan::tests::entry;
use super::*;

fn site() -> Site {
    Site::new("esp0", None, DEFAULT_MARK).unwrap()
}

/// The rules of one chain, without the words that all of them share.
fn chain(script: &str, name: &str) -> Vec<String> {
    let start = format!("add rule inet esplanade {name} ");
    script
        .lines()
        .filter_map(|line| line.strip_prefix(&start))
        .map(str::to_owned)
        .collect()
}

fn plan() -> Plan {
    let web = Upper::Protocol {
        number: 6,
        source_port: None,
        destination_port: Some(443),
    };
    Plan {
        leaving: vec![
            entry("10.1.0.0/24", "10.2.0.0/24", web, Verdict::Bypass),
            entry("10.1.0.0/24", "10.2.0.0/24", Upper::Any, Verdict::Protect),
        ],
        arriving: vec![entry(
            "10.2.0.0/24",
            "10.1.0.0/24",
            Upper::Any,
            Verdict::Protect,
        )],
        passing: vec![entry(
            "10.2.0.0/24",
            "10.1.0.0/24",
            Upper::Any,
            Verdict::Protect,
        )],
        udp_ports: [4500].into(),
        ..Plan::default()
    }
}

#[test]
fn our_own_packets_pass_before_policies_and_policies_keep_their_order() {
    let leaving = chain(&script(&site(), &plan()), "leaving");
    assert_eq!(
        leaving,
        [
            "oifname { \"esp0\", \"lo\" } accept",
            "meta mark & 0x10000000 == 0x10000000 accept",
            "icmpv6 type { 133, 134, 135, 136, 137 } ip6 hoplimit 255 accept",
            "meta nfproto ipv4 ip saddr 10.1.0.0/24 ip daddr 10.2.0.0/24 meta l4proto 6 th dport 443 accept",
            "meta nfproto ipv4 ip saddr 10.1.0.0/24 ip daddr 10.2.0.0/24 counter name clear_leaving drop",
        ]
    );
}

#[test]
fn esp_in_udp_passes_inwards_only_where_a_port_is_in_use() {
    let mut plan = plan();
    let with = chain(&script(&site(), &plan), "arriving");
    assert!(with.contains(&"udp dport { 4500 } accept".to_owned()));
    assert!(
        with.contains(&"meta nfproto ipv6 frag frag-off != 0 meta l4proto 17 accept".to_owned())
    );
    plan.udp_ports.clear();
    let without = chain(&script(&site(), &plan), "arriving");
    assert!(without.iter().all(|rule| !rule.contains("udp")));
}

#[test]
fn later_fragments_of_traffic_protected_by_port_do_not_leave_in_clear() {
    let dns = Upper::Ports {
        source_port: None,
        destination_port: Some(53),
    };
    let plan = Plan {
        leaving: vec![
            entry("0.0.0.0/0", "10.2.0.0/24", dns, Verdict::Protect),
            entry("::/0", "2001:db8::/32", dns, Verdict::Protect),
        ],
        ..Plan::default()
    };
    let leaving = chain(&script(&site(), &plan), "leaving");
    assert_eq!(
        leaving[4],
        "meta nfproto ipv4 ip daddr 10.2.0.0/24 ip frag-off & 0x1fff != 0 meta l4proto { 6, 17, 33, 132, 136 } \
         counter name clear_leaving drop"
    );
    assert!(leaving[6].contains("frag frag-off != 0"));
}

#[test]
fn a_selector_that_mixes_families_yields_no_rule() {
    let plan = Plan {
        leaving: vec![entry(
            "10.1.0.0/24",
            "2001:db8::/32",
            Upper::Any,
            Verdict::Protect,
        )],
        ..Plan::default()
    };
    assert_eq!(chain(&script(&site(), &plan), "leaving").len(), 3);
}

#[test]
fn marks_are_set_in_prerouting_only_where_rules_cannot_tell() {
    assert!(chain(&script(&site(), &plan()), "marking").is_empty());
    let echo = Upper::Icmp {
        number: 58,
        kind: Some(128),
        code: Some(0),
    };
    let plan = Plan {
        leaving: vec![entry("::/0", "2001:db8::/32", echo, Verdict::Protect)],
        ..Plan::default()
    };
    let marking = chain(&script(&site(), &plan), "marking");
    assert_eq!(
        marking[1],
        "meta nfproto ipv6 ip6 daddr 2001:db8::/32 meta l4proto 58 icmpv6 type 128 icmpv6 code 0 \
         meta mark set meta mark or 0x20000000 accept"
    );
}

#[test]
fn a_replacement_empties_each_chain_before_it_fills_it() {
    let script = script(&site(), &plan());
    for name in [
        "leaving",
        "arriving",
        "passing",
        "rerouting",
        "marking",
        "clamping",
    ] {
        let flush = script
            .find(&format!("flush chain inet esplanade {name}\n"))
            .unwrap();
        let first = script.find(&format!("add rule inet esplanade {name} "));
        assert!(first.is_none_or(|first| flush < first), "{name}");
    }
}

#[test]
fn neighbour_discovery_stays_on_its_link_even_between_protected_hosts() {
    let mut plan = plan();
    plan.leaving = vec![entry(
        "2001:db8::1/128",
        "2001:db8::2/128",
        Upper::Any,
        Verdict::Protect,
    )];
    let script = script(&site(), &plan);
    for name in ["leaving", "arriving", "rerouting"] {
        let rules = chain(&script, name);
        let place = |word: &str| rules.iter().position(|rule| rule.contains(word));
        let neighbours = place("icmpv6 type { 133, 134, 135, 136, 137 }");
        assert!(
            neighbours.is_some() && neighbours < place("2001:db8::").or(Some(99)),
            "{name}"
        );
    }
}

#[test]
fn without_a_tun_device_no_device_is_trusted_and_the_rings_copies_are_dropped() {
    let site = Site::forwarding("eth1", None, DEFAULT_MARK).unwrap();
    let text = script(&site, &plan()).replace("inet esplanade_eth1 ", "inet esplanade ");
    assert_eq!(chain(&text, "leaving")[0], "oifname { \"lo\" } accept");
    assert_eq!(chain(&text, "arriving")[0], "iifname { \"lo\" } accept");
    assert!(chain(&text, "passing")[0].contains("ip saddr 10.2.0.0/24"));
    assert_eq!(
        chain(&text, "forwarded"),
        [
            "iifname != \"eth1\" accept",
            "meta pkttype != host accept",
            "icmpv6 type { 133, 134, 135, 136, 137 } ip6 hoplimit 255 accept",
            "meta nfproto ipv4 ip saddr 10.1.0.0/24 ip daddr 10.2.0.0/24 meta l4proto 6 th dport 443 accept",
            "meta nfproto ipv4 ip saddr 10.1.0.0/24 ip daddr 10.2.0.0/24 fib daddr type != { local, broadcast, multicast } drop",
        ]
    );
    for absent in ["rerouting", "marking", "clamping"] {
        assert!(chain(&text, absent).is_empty(), "{absent}");
    }
}
