//! Two associations between the same ends.

use super::*;
use crate::sa::UdpEncapsulation;
use crate::setkey::{Forwarding, NoNames, compile};

const POLICY: &str =
    "spdadd 10.1.0.0/16 10.2.0.0/16 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;";
const KEY: &str = "0x000102030405060708090a0b0c0d0e0f10111213";

fn told(database: &mut Database, text: &str) -> Result<Vec<Answer>, Refused> {
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames);
    apply(database, &lowered.ok().unwrap().commands)
}

fn shadowed(text: &str) -> Vec<(u32, u32)> {
    let mut database = Database::default();
    told(&mut database, text).unwrap();
    let snapshot = database.snapshot();
    let spi = |index| snapshot.sa(index).config.id.spi.get();
    let shadowed = snapshot.shadowed().into_iter();
    shadowed
        .map(|shadowed| (spi(shadowed.idle), spi(shadowed.carrier)))
        .collect()
}

fn one(protocol: &str, spi: u32, more: &str) -> String {
    format!("add 192.0.2.1 192.0.2.2 {protocol} {spi:#x} -m tunnel {more} -E aes-gcm-16 {KEY};")
}

#[test]
fn an_association_that_is_displaced_by_one_of_another_kind_is_named() {
    let (udp, native) = (one("esp-udp", 0x1001, ""), one("esp", 0x1003, ""));
    assert_eq!(
        shadowed(&format!("{udp}{native}{POLICY}")),
        [(0x1001, 0x1003)]
    );
    let weak = format!("add 192.0.2.1 192.0.2.2 esp 0x1005 -m tunnel -E null -A hmac-sha1 {KEY};");
    assert_eq!(
        shadowed(&format!("{native}{weak}{POLICY}")),
        [(0x1003, 0x1005)]
    );
}

#[test]
fn a_renewal_in_kind_another_number_and_another_direction_are_no_rivals() {
    let renewed = one("esp", 0x1001, "") + &one("esp", 0x1003, "");
    assert_eq!(shadowed(&format!("{renewed}{POLICY}")), []);
    let numbered = one("esp-udp", 0x1001, "-u 7") + &one("esp", 0x1003, "");
    assert_eq!(shadowed(&format!("{numbered}{POLICY}")), []);
    let unused = one("esp-udp", 0x1001, "") + &one("esp", 0x1003, "");
    assert_eq!(shadowed(&unused), []);
    let spread = POLICY.replace("-P out", "-o spread=2 -P out");
    assert_eq!(shadowed(&format!("{unused}{spread}")), []);
}

#[test]
fn explain_names_the_association_that_carries_nothing() {
    let mut database = Database::default();
    let text = one("esp-udp", 0x1001, "") + &one("esp", 0x1003, "") + POLICY;
    told(&mut database, &text).unwrap();
    let snapshot = database.snapshot();
    let findings = snapshot
        .explain(&site_packet(), &Surroundings::default())
        .findings;
    let idle = snapshot.find(&id(0x1001, GATEWAYS.1)).unwrap();
    assert!(
        findings.contains(&Finding::Shadowed { idle }),
        "{findings:?}"
    );
}

fn behind(port: u16, spi: u32, more: &str) -> String {
    format!("add 198.51.100.1[{port}] 192.0.2.2[4500] esp-udp {spi:#x} {more} -E aes-gcm-16 {KEY};")
}

#[test]
fn of_two_hosts_behind_one_nat_the_later_is_refused_in_transport_mode() {
    let mut database = Database::default();
    told(&mut database, &behind(40_001, 0x1001, "-m transport")).unwrap();
    for more in ["-m transport", "-m any"] {
        let refused = told(&mut database, &behind(40_002, 0x1002, more)).unwrap_err();
        assert!(
            refused.reason.contains("behind one NAT"),
            "{}",
            refused.reason
        );
        assert!(refused.reason.contains("40001") && refused.reason.contains("40002"));
    }
    assert_eq!(database.snapshot().sas().count(), 1);
}

#[test]
fn what_policies_distinguish_and_what_only_renews_may_be_behind_one_nat() {
    let mut database = Database::default();
    told(&mut database, &behind(40_001, 0x1001, "-m transport")).unwrap();
    for (port, spi, more) in [
        (40_001, 0x1002, "-m transport"),
        (40_003, 0x1003, "-m transport -u 7"),
        (40_004, 0x1004, "-m tunnel"),
    ] {
        assert!(
            told(&mut database, &behind(port, spi, more)).is_ok(),
            "{more}"
        );
    }
    // The NAT has given the same host another port: its associations follow one after the other.
    for spi in [0x1001, 0x1002] {
        let moved = behind(40_009, spi, "-m transport").replace("add", "update");
        assert!(told(&mut database, &moved).is_ok());
    }
}

fn in_udp(spi: u32, source_port: u16) -> SaConfig {
    SaConfig {
        encapsulation: Some(UdpEncapsulation {
            source_port,
            destination_port: 4500,
        }),
        ..tunnel(spi)
    }
}

fn for_one_packet(config: SaConfig) -> SaConfig {
    let hard = LifetimeLimits {
        packets: 1,
        ..LifetimeLimits::default()
    };
    SaConfig {
        lifetimes: Lifetimes {
            hard,
            ..Lifetimes::default()
        },
        ..config
    }
}

/// Uses up the one packet of an association, and tries to send another.
fn ends(database: &Database, spi: u32) {
    let snapshot = database.snapshot();
    let sa = snapshot.sa(snapshot.find(&id(spi, GATEWAYS.1)).unwrap());
    assert!(sa.state.reserve(&sa.config, 1, 1, 1001).is_ok());
    assert!(sa.state.reserve(&sa.config, 1, 1, 1001).is_err());
}

#[test]
fn one_that_has_died_serves_a_device_or_has_another_mode_shadows_none() {
    let beside_a_carrier = |idle| {
        let policy = add_policy(site_to_site(Level::Require));
        database(&[add(idle), add(tunnel(0x1003)), policy])
    };
    let count = |database: &Database| database.snapshot().shadowed().len();
    let mortal = beside_a_carrier(for_one_packet(in_udp(0x1001, 4500)));
    assert_eq!(count(&mortal), 1);
    ends(&mortal, 0x1001);
    assert_eq!(count(&mortal), 0);
    let of_device = SaConfig {
        interface: Some("vpn0".into()),
        ..in_udp(0x1001, 4500)
    };
    assert_eq!(count(&beside_a_carrier(of_device)), 0);
    for (mode, expected) in [(Mode::Transport, 0), (Mode::Any, 1)] {
        let idle = SaConfig {
            mode,
            ..in_udp(0x1001, 4500)
        };
        assert_eq!(count(&beside_a_carrier(idle)), expected, "{mode:?}");
    }
}

#[test]
fn one_that_has_died_blocks_none_behind_a_nat() {
    let transport = |spi, port| SaConfig {
        mode: Mode::Transport,
        ..in_udp(spi, port)
    };
    let mut database = database(&[add(for_one_packet(transport(0x1001, 40_001)))]);
    let second = [add(transport(0x1002, 40_002))];
    assert!(apply(&mut database, &second).is_err());
    ends(&database, 0x1001);
    assert!(apply(&mut database, &second).is_ok());
}
