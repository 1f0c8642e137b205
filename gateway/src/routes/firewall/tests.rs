use super::super::DEFAULT_MARK;
use super::super::plan::Senders;
use super::super::plan::tests::entry;
use super::condition::conditions;
use super::*;
use ipsec::policy::Upper;
use std::collections::BTreeSet;
use std::net::IpAddr;

mod by_kernel;
pub(crate) mod generated;
pub(crate) mod kernel;
mod ring_bypass;

fn site() -> Site {
    Site::new("esp0", None, DEFAULT_MARK).unwrap()
}

/// The rules of one chain; none if there is no such chain.
fn whole_chain(site: &Site, plan: &Plan, name: &str) -> Vec<Rule> {
    let chains = ruleset(site, plan).chains.into_iter();
    let mut found = chains.filter(|chain| chain.name == name);
    found.next().map(|chain| chain.rules).unwrap_or_default()
}

/// The same without rules that let unmatched traffic pass, or clamp the MSS.
fn chain(site: &Site, plan: &Plan, name: &str) -> Vec<Rule> {
    let mut rules = whole_chain(site, plan, name);
    let family = |family| when().family(family).accept();
    let only_passes = |rule: &Rule| {
        let asks = |term: &Term| matches!(term, Term::Ranges { negated: true, .. });
        rule.terms.iter().any(asks) || [Family::V4, Family::V6].map(family).contains(rule)
    };
    let clamps = |rule: &Rule| rule.terms.contains(&Term::ClampSegments);
    rules.retain(|rule| !only_passes(rule) && !clamps(rule));
    rules
}

fn plan() -> Plan {
    let web = Upper::Protocol {
        number: 6,
        source_port: None,
        destination_port: Some(443),
    };
    let both = |source, destination| entry(source, destination, Upper::Any, Disposition::Protect);
    Plan {
        leaving: vec![
            entry("10.1.0.0/24", "10.2.0.0/24", web, Disposition::Bypass),
            both("10.1.0.0/24", "10.2.0.0/24"),
        ],
        arriving: vec![both("10.2.0.0/24", "10.1.0.0/24")],
        passing: vec![both("10.2.0.0/24", "10.1.0.0/24")],
        udp_ports: [4500].into(),
        outer: outer(),
        senders: Senders::Users([0].into()),
        ..Plan::default()
    }
}

/// Outer addresses of an SA in each direction, for each family.
fn outer() -> BTreeSet<(IpAddr, IpAddr)> {
    let ends = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];
    let ends = ends.map(|(one, other)| (one.parse().unwrap(), other.parse().unwrap()));
    ends.into_iter()
        .flat_map(|(one, other)| [(one, other), (other, one)])
        .collect()
}

#[test]
fn policies_keep_their_order_behind_what_is_our_own() {
    let plan = plan();
    let leaving = chain(&site(), &plan, "leaving");
    let before = Plan {
        leaving: Vec::new(),
        ..plan.clone()
    };
    let own = chain(&site(), &before, "leaving");
    assert_eq!(leaving[..own.len()], own);
    let [web, rest] = &leaving[own.len()..] else {
        panic!("{leaving:?}");
    };
    assert_eq!(*web, conditions(&plan.leaving[0])[0].clone().accept());
    let protected = conditions(&plan.leaving[1])[0].clone();
    assert_eq!(*rest, protected.and(Term::Count("clear_leaving")).drop());
}

#[test]
fn what_no_policy_names_is_asked_for_its_addresses_alone() {
    let drops = |list: &[Entry]| unmatched(list, Entry::drops);
    let plan = plan();
    for (name, before, list) in [
        ("leaving", 0, &plan.leaving),
        ("arriving", 0, &plan.arriving),
        ("passing", 2, &plan.passing),
    ] {
        let rules = whole_chain(&site(), &plan, name);
        let first = &drops(list)[..];
        assert_eq!(first.len(), 2);
        assert_eq!(rules[before..before + 2], *first, "{name}");
    }
    // Rules for decrypted packets that policies let through in one direction only come first.
    let devices = Plan {
        has_direction_devices: true,
        ..plan
    };
    let arriving = whole_chain(&site(), &devices, "arriving");
    assert_eq!(arriving[2..4], drops(&devices.arriving));
}

#[test]
fn ike_leaves_between_any_addresses_by_mark_port_and_user_alone() {
    let without = plan();
    let exchanging = Plan {
        exchanges_keys: true,
        ..plan()
    };
    let before = chain(&site(), &without, "leaving");
    let mut added = chain(&site(), &exchanging, "leaving");
    added.retain(|rule| !before.contains(rule));
    let user = 0u32.to_ne_bytes();
    let expected = when()
        .marked(site().outside_mark())
        .protocols(&[UDP])
        .any(
            Field::SourcePort,
            [500u16, 4500].map(u16::to_be_bytes),
            false,
        )
        .any(Field::SocketUser, [user], false)
        .accept();
    assert_eq!(added, [expected]);
    // Without a gateway, as `arm` leaves it, no user sends.
    let armed = Plan {
        senders: Senders::None,
        ..exchanging
    };
    let mut added = chain(&site(), &armed, "leaving");
    added.retain(|rule| !before.contains(rule));
    assert_eq!(added, []);
}

#[test]
fn esp_in_udp_passes_inwards_only_where_a_port_is_in_use() {
    let mut plan = plan();
    let udp = |plan: &Plan| {
        let rules = chain(&site(), plan, "arriving").into_iter();
        let about = when().protocols(&[UDP]).terms.remove(0);
        rules.filter(|rule| rule.terms.contains(&about)).count()
    };
    assert_eq!(udp(&plan), 2);
    plan.udp_ports.clear();
    assert_eq!(udp(&plan), 0);
}

#[test]
fn later_fragments_of_traffic_protected_by_port_do_not_leave_in_clear() {
    let dns = Upper::Ports {
        source_port: None,
        destination_port: Some(53),
    };
    for (family, source, destination) in [
        (Family::V4, "0.0.0.0/0", "10.2.0.0/24"),
        (Family::V6, "::/0", "2001:db8::/32"),
    ] {
        let later = when().later_fragment(family).terms.remove(0);
        for (verdict, expected) in [(Disposition::Protect, 1), (Disposition::Bypass, 0)] {
            let found = conditions(&entry(source, destination, dns, verdict));
            let found = found.iter().filter(|rule| rule.terms.contains(&later));
            assert_eq!(found.count(), expected, "{destination} {verdict:?}");
        }
    }
}

#[test]
fn a_selector_that_mixes_families_yields_no_rule() {
    let mixed = entry(
        "10.1.0.0/24",
        "2001:db8::/32",
        Upper::Any,
        Disposition::Protect,
    );
    assert!(conditions(&mixed).is_empty());
}

#[test]
fn a_mark_alone_passes_no_drop_rule() {
    let mark = when().marked(DEFAULT_MARK).terms.remove(0);
    let marked = |site: &Site, plan: &Plan| {
        let rules = chain(site, plan, "leaving").into_iter();
        let marked = rules.filter(|rule| rule.terms.contains(&mark));
        marked.collect::<Vec<_>>()
    };
    let user = when().any(Field::SocketUser, [0_u32.to_ne_bytes()], false);
    let rules = marked(&site(), &plan());
    assert_eq!(rules.len(), 5);
    for rule in rules {
        assert!(rule.terms.contains(&user.terms[0]), "{rule:?}");
        let is_pair = |term: &Term| matches!(term, Term::In(Field::Ends(_), _));
        assert!(rule.terms.iter().any(is_pair), "{rule:?}");
    }
    let armed = Plan {
        senders: Senders::None,
        ..plan()
    };
    assert_eq!(marked(&site(), &armed), []);
    let forward = Site::forwarding("eth1", None, DEFAULT_MARK).unwrap();
    assert_eq!(marked(&forward, &armed), []);
    let to_inner_hosts = marked(&forward, &plan()).pop().unwrap();
    let device = when().device(Field::OutDevice, ["eth1"], false);
    assert_eq!(
        to_inner_hosts.terms[1..],
        [device.terms, user.terms].concat()
    );
}

#[test]
fn what_a_link_needs_passes_policies_over_everything() {
    let over = |source, destination, verdict| Plan {
        leaving: vec![entry(source, destination, Upper::Any, verdict)],
        ..Plan::default()
    };
    let beyond = |plan: &Plan| {
        let own = chain(&site(), &Plan::default(), "leaving").len();
        chain(&site(), plan, "leaving").len() - own - plan.leaving.len()
    };
    for (source, destination, expected) in [
        ("0.0.0.0/0", "0.0.0.0/0", 3),
        ("::/0", "::/0", 2),
        ("10.1.0.0/24", "0.0.0.0/0", 2),
        ("10.1.0.0/24", "10.2.0.0/24", 0),
        ("2001:db8::/32", "2001:db8:9::/48", 0),
    ] {
        let plan = over(source, destination, Disposition::Protect);
        assert_eq!(beyond(&plan), expected, "{source} {destination}");
        let bypass = over(source, destination, Disposition::Bypass);
        let own = chain(&site(), &Plan::default(), "leaving").len();
        assert_eq!(whole_chain(&site(), &bypass, "leaving").len(), own + 1);
    }
}

#[test]
fn marks_are_set_in_prerouting_only_where_rules_cannot_decide() {
    let chains = ruleset(&site(), &plan()).chains;
    assert!(chains.iter().all(|chain| chain.name != "marking"));
    let echo = Upper::Icmp {
        number: 58,
        kind: Some(128),
        code: Some(0),
    };
    let plan = Plan {
        leaving: vec![entry("::/0", "2001:db8::/32", echo, Disposition::Protect)],
        ..Plan::default()
    };
    let marking = chain(&site(), &plan, "marking");
    assert_eq!(marking[1].terms.last(), Some(&Term::AddMark(0x2000_0000)));
}

#[test]
fn neighbour_discovery_stays_on_its_link_even_between_protected_hosts() {
    let mut plan = plan();
    plan.leaving = vec![entry(
        "2001:db8::1/128",
        "2001:db8::2/128",
        Upper::Any,
        Disposition::Protect,
    )];
    let policy = conditions(&plan.leaving[0])[0].terms[1].clone();
    for name in ["leaving", "arriving", "rerouting"] {
        let rules = chain(&site(), &plan, name);
        let discovery = rules.iter().position(|rule| *rule == neighbours());
        let policy = rules.iter().position(|rule| rule.terms.contains(&policy));
        assert!(
            discovery.is_some() && discovery < policy.or(Some(99)),
            "{name}"
        );
    }
}

#[test]
fn without_a_tun_device_no_device_is_trusted_and_the_rings_copies_are_dropped() {
    let site = Site::forwarding("eth1", None, DEFAULT_MARK).unwrap();
    let loopback = |field| when().device(field, ["lo"], false).accept();
    let first = |name| chain(&site, &plan(), name).remove(0);
    assert_eq!(first("leaving"), loopback(Field::OutDevice));
    assert_eq!(first("arriving"), loopback(Field::InDevice));
    assert_eq!(
        first("passing").verdict,
        Some(super::super::nftables::rule::Verdict::Drop)
    );
    assert!(!chain(&site, &plan(), "forwarded").is_empty());
    for absent in ["rerouting", "marking"] {
        assert!(chain(&site, &plan(), absent).is_empty(), "{absent}");
    }
}

#[test]
fn what_policies_let_through_one_way_alone_goes_no_other_way() {
    let plan = |has_direction_devices| Plan {
        has_direction_devices,
        ..plan()
    };
    let by = |device| when().device(Field::InDevice, [device], false);
    for (name, refused, passing, counter) in [
        ("arriving", "esp0-fwd", "esp0-in", "policy_in"),
        ("passing", "esp0-in", "esp0-fwd", "policy_fwd"),
    ] {
        let rules = chain(&site(), &plan(true), name);
        let expected = [
            by(refused).and(Term::Count(counter)).drop(),
            by(passing).accept(),
        ];
        assert_eq!(rules[..2], expected, "before all else");
        assert_eq!(rules[2..], chain(&site(), &plan(false), name));
    }
    let clamps = |plan: &Plan| {
        let rules = whole_chain(&site(), plan, "passing").into_iter();
        let clamps = |rule: &Rule| rule.terms.contains(&Term::ClampSegments);
        rules.take_while(clamps).count()
    };
    assert_eq!([true, false].map(|has| clamps(&plan(has))), [3, 2]);
    assert!(
        ruleset(&site(), &plan(true))
            .counters
            .contains(&"policy_in")
    );
}
