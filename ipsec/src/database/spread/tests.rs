//! Flows and associations: which takes which, and what moves when.

use super::*;
use crate::Dropped;
use crate::database::{Allowed, Database, Decision, Snapshot, Surroundings};
use crate::setkey::{Forwarding, NoNames, compile};
use std::collections::HashMap;
use std::sync::Arc;

const FLOWS: u16 = 4000;

fn association(spi: u32, options: &str) -> String {
    format!(
        "add 192.0.2.1 192.0.2.2 esp {spi:#x} -m tunnel {options}
             -E aes-gcm-16 0x4c80cdefbb5d10da906ac73c3613a6342e443b68;"
    )
}

fn associations(spis: impl IntoIterator<Item = u32>) -> String {
    spis.into_iter().map(|spi| association(spi, "")).collect()
}

fn policy(spread: u8, level: &str) -> String {
    format!(
        "spdadd 10.1.0.0/16 10.2.0.0/16 any -o spread={spread} -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/{level};
         spdadd fd01::/16 fd02::/16 any -o spread={spread} -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/{level};"
    )
}

fn apply(database: &mut Database, text: &str, mut seed: u64) {
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames)
        .unwrap_or_else(|problems| panic!("{}", problems[0].render("text", text.as_bytes())));
    let mut random = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        seed ^ (seed >> 29)
    };
    database
        .apply(&lowered.commands, 1000, &mut random)
        .unwrap();
}

fn database(text: &str) -> Database {
    let mut database = Database::default();
    apply(&mut database, text, 7);
    database
}

fn four() -> Database {
    database(&(associations(1001..=1004) + &policy(4, "require")))
}

fn packet(source: &str, destination: &str, protocol: u8, ports: Option<(u16, u16)>) -> Outline {
    Outline {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol,
        header_len: 20,
        transport_offset: 20,
        total_len: 60,
        ports,
        fragment: FragmentKind::Whole,
        traffic_class: 0,
        dont_fragment: false,
        hop_limit: 64,
    }
}

fn flow(number: u16) -> Outline {
    packet("10.1.0.5", "10.2.0.9", 6, Some((number, 443)))
}

fn chosen(snapshot: &Snapshot, packet: &Outline) -> u32 {
    match snapshot.outbound(packet) {
        Decision::Protect(&[sa]) => snapshot.sa(sa).config.id.spi.get(),
        other => panic!("{other:?}"),
    }
}

fn choices(database: &Database) -> Vec<u32> {
    let snapshot = database.snapshot();
    (0..FLOWS)
        .map(|number| chosen(&snapshot, &flow(number)))
        .collect()
}

fn shares(choices: impl IntoIterator<Item = u32>) -> HashMap<u32, u32> {
    let mut shares = HashMap::new();
    for spi in choices {
        *shares.entry(spi).or_default() += 1;
    }
    shares
}

fn assert_even(shares: &HashMap<u32, u32>, ways: usize, total: u32) {
    let fair = total / ways as u32;
    assert_eq!(shares.len(), ways, "{shares:?}");
    // Seven standard deviations and more of a fair coin.
    let near = |share: &u32| share.abs_diff(fair) < fair / 4;
    assert!(shares.values().all(near), "{shares:?}");
}

#[test]
fn flows_spread_evenly_whatever_they_differ_in() {
    let snapshot = four().snapshot();
    let address = |n: u32, v6: bool| {
        if v6 {
            format!("fd02::{n:x}")
        } else {
            format!("10.2.{}.{}", n / 256, n % 256)
        }
    };
    let ports = |n: u32| packet("10.1.0.5", "10.2.0.9", 17, Some((53, n as u16)));
    let hosts_v4 = |n: u32| packet("10.1.0.5", &address(n, false), 47, None);
    let hosts_v6 = |n: u32| packet("fd01::5", &address(n, true), 6, Some((1, 2)));
    let kinds: [&dyn Fn(u32) -> Outline; 3] = [&ports, &hosts_v4, &hosts_v6];
    assert_even(&shares(choices(&four())), 4, FLOWS.into());
    for kind in kinds {
        let choices = (0..4000).map(|n| chosen(&snapshot, &kind(n)));
        assert_even(&shares(choices), 4, 4000);
    }
}

#[test]
fn a_flow_keeps_its_association_whatever_else_changes() {
    let mut database = four();
    let before = choices(&database);
    let else_where = "add 192.0.2.1 192.0.2.77 esp 0x9 -m tunnel -E null -A hmac-sha1 0x0102030405060708090a0b0c0d0e0f1011121314;
        spdadd 10.9.0.0/16 10.2.0.0/16 any -o spread=2 -P out ipsec esp/tunnel/192.0.2.1-192.0.2.77/require;";
    apply(&mut database, else_where, 99);
    assert_eq!(choices(&database), before);
    let again = Outline {
        traffic_class: 3,
        hop_limit: 9,
        total_len: 1500,
        ..flow(5)
    };
    assert_eq!(chosen(&database.snapshot(), &again), before[5]);
}

#[test]
fn when_an_association_goes_its_flows_alone_move_and_the_others_share_them() {
    let mut database = four();
    let before = choices(&database);
    apply(&mut database, "delete 192.0.2.1 192.0.2.2 esp 1002;", 1);
    let after = choices(&database);
    let moved = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after);
    let (left, came): (Vec<u32>, Vec<u32>) = moved.unzip();
    assert!(left.iter().all(|spi| *spi == 1002));
    assert_eq!(left.len() as u32, shares(before)[&1002]);
    assert_even(&shares(came), 3, left.len() as u32);
}

#[test]
fn a_newcomer_takes_its_share_of_each_and_nothing_else_moves() {
    let mut database = database(&(associations(1001..=1004) + &policy(5, "require")));
    let before = choices(&database);
    apply(&mut database, &associations([1005]), 1);
    let after = choices(&database);
    let moved = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after);
    let (left, came): (Vec<u32>, Vec<u32>) = moved.unzip();
    assert!(came.iter().all(|spi| *spi == 1005));
    assert_even(&shares(left), 4, came.len() as u32);
    assert_even(&shares(after), 5, FLOWS.into());
}

#[test]
fn an_association_that_dies_is_passed_over_before_the_next_snapshot() {
    let mortal = association(1001, "-o hard-packets=3");
    let database = database(&(mortal + &associations(1002..=1004) + &policy(4, "require")));
    let (snapshot, before) = (database.snapshot(), choices(&database));
    let sa = snapshot
        .sas()
        .find(|sa| sa.config.id.spi.get() == 1001)
        .unwrap();
    for _ in 0..3 {
        sa.state.reserve(&sa.config, 1, 60, 1001).unwrap();
    }
    assert!(sa.state.reserve(&sa.config, 1, 60, 1001).is_err());
    for (number, before) in (0..FLOWS).zip(before) {
        let after = chosen(&snapshot, &flow(number));
        assert_eq!(after == before, before != 1001);
    }
}

#[test]
fn where_all_are_dead_the_packet_is_still_led_to_one_that_counts_the_drop() {
    let mortal = association(1001, "-o hard-packets=1");
    let snapshot = database(&(mortal + &policy(4, "require"))).snapshot();
    let sa = snapshot.sas().next().unwrap();
    sa.state.reserve(&sa.config, 1, 60, 1001).unwrap();
    assert_eq!(chosen(&snapshot, &flow(1)), 1001);
    let refused = sa.state.reserve(&sa.config, 1, 60, 1001);
    assert_eq!(refused.err(), Some(Dropped::LifetimeOver));
}

#[test]
fn one_that_is_about_to_end_stays_until_its_successor_is_there() {
    let aging = association(1001, "-o soft-packets=1 -o hard-packets=1000");
    let mut database = database(&(aging + &associations(1002..=1004) + &policy(4, "require")));
    let before = choices(&database);
    let snapshot = database.snapshot();
    let sa = Arc::clone(snapshot.sas().next().unwrap());
    sa.state.reserve(&sa.config, 2, 60, 1001).unwrap();
    assert!(
        !database.tick(1001, |_, _| ()).is_empty(),
        "the soft limit is told"
    );
    assert_eq!(choices(&database), before);
    apply(&mut database, &associations([1005]), 1);
    let shares = shares(choices(&database));
    assert!(!shares.contains_key(&1001));
    assert_even(&shares, 4, FLOWS.into());
}

#[test]
fn no_more_than_asked_for_take_part_and_those_are_the_youngest() {
    let two = database(&(associations(1001..=1004) + &policy(2, "require")));
    let mut spis: Vec<_> = shares(choices(&two)).into_keys().collect();
    spis.sort_unstable();
    assert_eq!(spis, [1003, 1004]);
    let one = database(&(associations(1001..=1004) + &policy(1, "require")));
    assert_eq!(shares(choices(&one)), HashMap::from([(1004, FLOWS.into())]));
}

#[test]
fn only_associations_with_the_number_asked_for_take_part() {
    let tied: String = [1001, 1002].map(|spi| association(spi, "-u 7")).concat();
    let text = tied + &associations(1003..=1004) + &policy(4, "unique:7");
    let shares = shares(choices(&database(&text)));
    assert_even(&shares, 2, FLOWS.into());
    assert!(shares.contains_key(&1001) && shares.contains_key(&1002));
}

#[test]
fn all_fragments_of_a_packet_go_one_way_and_so_does_all_icmp_between_two_hosts() {
    let snapshot = four().snapshot();
    for host in 0..50 {
        let to = format!("10.2.0.{host}");
        let fragment = |fragment, ports| Outline {
            fragment,
            ..packet("10.1.0.5", &to, 17, ports)
        };
        let first = fragment(FragmentKind::First, Some((1, 2)));
        let later = fragment(FragmentKind::Later, None);
        assert_eq!(chosen(&snapshot, &first), chosen(&snapshot, &later));
        let icmp = |kind| packet("10.1.0.5", &to, 1, Some((kind, 0)));
        assert_eq!(chosen(&snapshot, &icmp(8)), chosen(&snapshot, &icmp(3)));
    }
}

#[test]
fn the_way_of_a_flow_cannot_be_predicted_without_the_key() {
    let text = associations(1001..=1004) + &policy(4, "require");
    let of = |seed| {
        let mut database = Database::default();
        apply(&mut database, &text, seed);
        choices(&database)
    };
    assert_eq!(of(1), of(1));
    let (one, other) = (of(1), of(2));
    let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
    // A quarter, as chance has it.
    assert!((FLOWS / 5..FLOWS / 3).contains(&(same as u16)), "{same}");
}

#[test]
fn without_any_association_it_is_as_if_nothing_was_to_be_spread() {
    let decide =
        |level| database(&policy(4, level)).snapshot().outbound(&flow(1)) == Decision::Bypass;
    assert!(decide("use") && !decide("require"));
    let snapshot = database(&policy(4, "require")).snapshot();
    assert_eq!(snapshot.outbound(&flow(1)), Decision::Acquire { policy: 1 });
}

#[test]
fn what_arrives_may_come_through_any_of_them() {
    let text = associations(1001..=1004)
        + "spdadd 10.1.0.0/16 10.2.0.0/16 any -P in ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;";
    let snapshot = database(&text).snapshot();
    for place in 0..4 {
        let through = snapshot.inbound(&flow(1), &[SaIndex(place)]);
        assert_eq!(through, Ok(Allowed::Both));
    }
}

#[test]
fn explain_prints_how_many_share_and_names_the_one() {
    let snapshot = four().snapshot();
    for number in 0..20 {
        let explanation = snapshot.explain(&flow(number), &Surroundings::default());
        assert_eq!(explanation.spread, 4);
        let [only] = explanation.path[..] else {
            panic!("{explanation:?}");
        };
        let named = snapshot.sa(only).config.id.spi.get();
        assert_eq!(named, chosen(&snapshot, &flow(number)));
    }
    let alone = database(&(associations([1001]) + &policy(1, "require"))).snapshot();
    assert_eq!(alone.explain(&flow(1), &Surroundings::default()).spread, 0);
}

#[test]
fn every_way_out_is_listed() {
    let snapshot = four().snapshot();
    let (_, paths) = snapshot.outbound_paths().next().unwrap();
    let mut spis: Vec<_> = paths
        .map(|path| match *path {
            [sa] => snapshot.sa(sa).config.id.spi.get(),
            _ => panic!("{path:?}"),
        })
        .collect();
    spis.sort_unstable();
    assert_eq!(spis, [1001, 1002, 1003, 1004]);
}
