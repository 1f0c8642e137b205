//! What is fetched is what is found, and fetching for nonsense does no harm.

use super::*;
use crate::Dropped;
use crate::command::Command;
use crate::database::{Allowed, Database, Decision};
use crate::packet::{FragmentKind, Outline};
use crate::policy::{Action, Direction, Level, Policy, Prefix, Selector, Template, Upper};
use crate::sa::{Mode, Protocol, SaConfig, Spi};
use crate::suite::{Secret, Suite};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const MANY: u32 = 300;

/// Every other host is known by an address of the other family.
fn host(n: u32) -> IpAddr {
    match n % 2 {
        0 => Ipv4Addr::from_bits(0x0a00_0000 + n).into(),
        _ => Ipv6Addr::from_bits(0xfd << 120 | u128::from(n)).into(),
    }
}

fn gateway(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(0xac10_0000 + n).into()
}

fn id(n: u32) -> SaId {
    SaId {
        destination: gateway(n),
        protocol: Protocol::Esp,
        spi: Spi::new(0x1000 + n).unwrap(),
    }
}

fn association(n: u32) -> Command {
    let row = crate::algorithm::Encryption::named("aes-gcm-16").unwrap();
    let suite = Suite::new(Some((row, Secret::new(vec![1; 20]))), None, None).unwrap();
    Command::AddSa(Arc::new(SaConfig {
        mode: Mode::Tunnel,
        ..SaConfig::new(id(n), gateway(MANY), suite)
    }))
}

/// To one host in `Out`, from it in `In`; with ports, a second policy between the same two.
fn policy(n: u32, direction: Direction, upper: Upper) -> Command {
    let whole = |address: IpAddr| Prefix {
        address,
        len: if address.is_ipv4() { 32 } else { 128 },
    };
    let peer = host(MANY + n % 2);
    Command::AddPolicy(Arc::new(Policy {
        selector: Selector {
            source: whole(peer),
            destination: whole(host(n)),
            upper,
        },
        direction,
        action: Action::Protect(vec![Template {
            protocol: Protocol::Esp,
            mode: Mode::Tunnel,
            endpoints: Some((gateway(MANY), gateway(n))),
            level: Level::Require,
        }]),
        spread: 1,
        priority: 0,
        is_negotiated: false,
        device: None,
    }))
}

fn snapshot() -> Arc<Snapshot> {
    let one_port = Upper::Ports {
        source_port: Some(1),
        destination_port: None,
    };
    let of_host = |n| {
        let out = |upper| policy(n, Direction::Out, upper);
        [
            association(n),
            out(one_port),
            out(Upper::Any),
            policy(n, Direction::In, Upper::Any),
        ]
    };
    let commands: Vec<_> = (0..MANY).flat_map(of_host).collect();
    let mut database = Database::default();
    database.apply(&commands, 0, &mut || 1).unwrap();
    database.snapshot()
}

fn packet(n: u32) -> Outline {
    Outline {
        source: host(MANY + n % 2),
        destination: host(n),
        protocol: 17,
        header_len: 20,
        transport_offset: 20,
        total_len: 100,
        ports: Some((1, 2)),
        fragment: FragmentKind::Whole,
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 64,
    }
}

fn hosts_of(n: u32) -> Hosts {
    (packet(n).source, packet(n).destination)
}

#[test]
fn what_is_fetched_for_a_packet_is_what_it_meets() {
    let snapshot = snapshot();
    for start in (0..MANY).step_by(MAX_PREFETCH_PACKETS) {
        let numbers: Vec<_> = (start..MANY.min(start + MAX_PREFETCH_PACKETS as u32)).collect();
        let hosts: Vec<_> = numbers.iter().map(|n| hosts_of(*n)).collect();
        let fetched = snapshot.out.fetch_entries(&hosts);
        for (n, rank) in numbers.into_iter().zip(fetched) {
            let met = snapshot.out.index.find(&packet(n));
            assert_eq!(rank, met.map(|(rank, _)| rank));
            let way = snapshot
                .first_association(rank.unwrap(), hosts_of(n))
                .unwrap();
            assert_eq!(snapshot.outbound(&packet(n)), Decision::Protect(&[way]));
            assert_eq!(snapshot.find(&id(n)), Some(way));
            assert_eq!(snapshot.inbound(&packet(n), &[way]), Ok(Allowed::In));
            let other = SaIndex((way.0 + 1) % MANY);
            let wrong = snapshot.inbound(&packet(n), &[other]);
            assert_eq!(wrong, Err(Dropped::PolicyMismatch));
        }
    }
}

#[test]
fn one_flow_and_few_associations_fetch_nothing() {
    let (many, few) = (snapshot(), Database::default().snapshot());
    let asked = |snapshot: &Snapshot, packets: &[u32]| {
        let mut asked = Vec::new();
        snapshot.for_distinct(packets.iter().copied(), |different| {
            asked = different.to_vec();
        });
        asked
    };
    assert!(asked(&many, &[7; 100]).is_empty());
    assert!(asked(&few, &[1, 2, 3]).is_empty());
    assert_eq!(asked(&many, &[1, 1, 2, 2, 2, 1]), [1, 2, 1]);
    let different: Vec<_> = (0..200).collect();
    assert_eq!(asked(&many, &different), different[..MAX_PREFETCH_PACKETS]);
}

#[test]
fn strangers_are_fetched_for_nothing() {
    let snapshot = snapshot();
    let strangers = || (0..1000).map(|n| hosts_of(MANY + 2 + n));
    snapshot.prefetch_outbound(strangers());
    snapshot.prefetch_inbound_policies(strangers());
    snapshot.prefetch_inbound((0..1000).map(|n| id(MANY + n)));
    for n in MANY + 2..MANY + 100 {
        let dropped = Decision::Drop(Dropped::NoPolicy);
        assert_eq!(snapshot.outbound(&packet(n)), dropped);
        assert_eq!(snapshot.find(&id(n)), None);
    }
}
