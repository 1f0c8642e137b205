//! What a command changes, and what it leaves as it was.

use super::*;

fn get_spi(low: u32, high: u32) -> [Command; 1] {
    [Command::GetSpi {
        source: address(GATEWAYS.0),
        destination: address(GATEWAYS.1),
        protocol: Protocol::Esp,
        range: Some((Spi::new(low).unwrap(), Spi::new(high).unwrap())),
    }]
}

#[test]
fn every_number_of_a_range_is_reserved_once() {
    let mut database = Database::default();
    let mut reserved: Vec<_> = (0..3)
        .map(|_| apply(&mut database, &get_spi(0x1001, 0x1003)).unwrap())
        .map(|answers| match answers[..] {
            [Answer::Spi(spi)] => spi.get(),
            _ => panic!("{answers:?}"),
        })
        .collect();
    reserved.sort_unstable();
    assert_eq!(reserved, [0x1001, 0x1002, 0x1003]);
    assert!(apply(&mut database, &get_spi(0x1001, 0x1003)).is_err());
}

/// RFC 2367 3.1.1: an SPI that was reserved and never got keys expires.
#[test]
fn a_number_that_gets_no_keys_is_free_again_after_half_a_minute() {
    let mut database = Database::default();
    apply(&mut database, &get_spi(0x1001, 0x1001)).unwrap();
    database.tick(1029, |_, _| ());
    assert!(apply(&mut database, &get_spi(0x1001, 0x1001)).is_err());
    database.tick(1030, |_, _| ());
    assert!(apply(&mut database, &get_spi(0x1001, 0x1001)).is_ok());
}

#[test]
fn a_reserved_number_that_is_deleted_is_free_and_no_other_one() {
    let mut database = Database::default();
    apply(&mut database, &get_spi(0x1001, 0x1001)).unwrap();
    apply(&mut database, &get_spi(0x1002, 0x1002)).unwrap();
    let delete = Command::DeleteSa {
        id: id(0x1001, GATEWAYS.1),
        source: address(GATEWAYS.0),
    };
    apply(&mut database, std::slice::from_ref(&delete)).unwrap();
    assert!(apply(&mut database, &[delete]).is_err());
    assert!(apply(&mut database, &get_spi(0x1002, 0x1002)).is_err());
    assert!(apply(&mut database, &get_spi(0x1001, 0x1001)).is_ok());
}

#[test]
fn a_policy_that_is_deleted_leaves_those_of_other_directions_and_other_traffic() {
    let directed = |direction, destination| Policy {
        direction,
        ..policy("10.1.0.0/16", destination, Upper::Any, Action::Discard)
    };
    let (gone, other_direction, other_traffic) = (
        directed(Direction::Out, "10.2.0.0/16"),
        directed(Direction::In, "10.2.0.0/16"),
        directed(Direction::Out, "10.3.0.0/16"),
    );
    let get = |policy: &Policy| Command::GetPolicy {
        selector: policy.selector,
        direction: policy.direction,
    };
    let all = [&gone, &other_direction, &other_traffic];
    let mut database = database(&all.map(|policy| add_policy(policy.clone())));
    for policy in all {
        match &apply(&mut database, &[get(policy)]).unwrap()[..] {
            [Answer::Policies(reports)] => {
                assert_eq!(reports.len(), 1);
                assert_eq!(*reports[0].policy, *policy);
            }
            other => panic!("{other:?}"),
        }
    }
    let delete = [Command::DeletePolicy {
        selector: gone.selector,
        direction: gone.direction,
    }];
    apply(&mut database, &delete).unwrap();
    assert!(apply(&mut database, &delete).is_err());
    assert!(apply(&mut database, &[get(&gone)]).is_err());
    for policy in [&other_direction, &other_traffic] {
        assert!(apply(&mut database, &[get(policy)]).is_ok());
    }
    assert_eq!(
        database.snapshot().inbound(&site_packet(), &[]),
        Err(Dropped::PolicyDiscard),
        "the `in` policy still says so"
    );
}

#[test]
fn a_dump_of_one_protocol_shows_that_protocol_alone() {
    let mut database = database(&[add(tunnel(0x1001))]);
    let mut dump = |protocol| spis(&apply(&mut database, &[Command::DumpSas(protocol)]).unwrap());
    assert_eq!(dump(Some(Protocol::Esp)), [0x1001]);
    assert_eq!(dump(Some(Protocol::Ah)), [0_u32; 0]);
}

#[test]
fn a_flush_leaves_what_ike_negotiated_and_a_delete_by_name_does_not() {
    let negotiated = |spi| SaConfig {
        is_negotiated: true,
        ..tunnel(spi)
    };
    let network = |destination| Policy {
        is_negotiated: true,
        ..policy("10.1.0.0/16", destination, Upper::Any, Action::Discard)
    };
    let mut database = database(&[
        add(negotiated(0x1001)),
        add(tunnel(0x1002)),
        add_policy(network("10.2.0.0/16")),
        add_policy(policy(
            "10.1.0.0/16",
            "10.3.0.0/16",
            Upper::Any,
            Action::Discard,
        )),
    ]);
    let all = Command::DeleteAllSas {
        source: address(GATEWAYS.0),
        destination: address(GATEWAYS.1),
        protocol: Protocol::Esp,
    };
    for flush in [all, Command::FlushSas(None), Command::FlushPolicies] {
        apply(&mut database, &[flush]).unwrap();
    }
    let left = |database: &Database| {
        let snapshot = database.snapshot();
        (
            snapshot.sas().count(),
            snapshot.policies(Direction::Out).count(),
        )
    };
    assert_eq!(left(&database), (1, 1));
    // The selector is still taken.
    assert!(apply(&mut database, &[add_policy(network("10.2.0.0/16"))]).is_err());
    let delete = Command::DeleteSa {
        id: id(0x1001, GATEWAYS.1),
        source: address(GATEWAYS.0),
    };
    apply(&mut database, &[delete]).unwrap();
    assert_eq!(left(&database), (0, 1));
}

#[test]
fn a_policy_that_is_updated_goes_behind_its_equals_and_one_of_ike_keeps_its_place() {
    for (is_negotiated, expected) in [(false, [1, 2, 0]), (true, [0, 1, 2])] {
        let networks = ["10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"];
        let policies = networks.map(|network| Policy {
            is_negotiated,
            ..policy("10.1.0.0/16", network, Upper::Any, protect(Level::Require))
        });
        let mut database = database(&policies.clone().map(add_policy));
        let updated = Policy {
            action: Action::Protect(vec![template(Level::Unique(Some(Reqid(7))))]),
            ..policies[0].clone()
        };
        apply(
            &mut database,
            &[Command::UpdatePolicy(Arc::new(updated.clone()))],
        )
        .unwrap();
        let snapshot = database.snapshot();
        let order: Vec<_> = snapshot
            .policies(Direction::Out)
            .map(|(_, policy)| {
                policies
                    .iter()
                    .position(|old| old.selector == policy.selector)
            })
            .collect();
        assert_eq!(order, expected.map(Some));
        assert!(
            snapshot
                .policies(Direction::Out)
                .any(|(_, policy)| **policy == updated)
        );
        let delete = Command::DeletePolicy {
            selector: updated.selector,
            direction: Direction::Out,
        };
        apply(&mut database, std::slice::from_ref(&delete)).unwrap();
        assert!(apply(&mut database, &[delete]).is_err());
        assert_eq!(database.snapshot().policies(Direction::Out).count(), 2);
    }
}
