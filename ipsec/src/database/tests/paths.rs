//! Which associations a template takes, one by one and one after the other (RFC 4301 4.4.1, 5.1, 5.2).

use super::*;
use crate::algorithm::Integrity;
use crate::database::resolve::satisfies;

fn numbered(reqid: u32) -> Template {
    Template {
        level: Level::Unique(Some(Reqid(reqid))),
        ..template(Level::Require)
    }
}

#[test]
fn an_association_that_differs_in_one_respect_satisfies_no_template() {
    let right = SaConfig {
        reqid: Reqid(7),
        ..tunnel(0x1001)
    };
    let satisfied = |config: &SaConfig, template: &Template| {
        satisfies(&Sa::new(config.clone(), 0, 0), template)
    };
    assert!(satisfied(&right, &numbered(7)));
    let any_mode = SaConfig {
        mode: Mode::Any,
        ..right.clone()
    };
    assert!(satisfied(&any_mode, &numbered(7)));
    let mut wrong = vec![right.clone(); 7];
    wrong[0].id.protocol = Protocol::Ah;
    wrong[1].mode = Mode::Transport;
    wrong[2].reqid = Reqid(8);
    wrong[3].reqid = Reqid(0);
    wrong[4].source = address("192.0.2.9");
    wrong[5].id.destination = address("192.0.2.9");
    wrong[6].interface = Some("vpn0".into());
    for (number, config) in wrong.iter().enumerate() {
        assert!(!satisfied(config, &numbered(7)), "difference {number}");
    }
    // A template that names no number or no ends takes any.
    assert!(satisfied(&wrong[2], &template(Level::Require)));
    let without_ends = Template {
        endpoints: None,
        ..numbered(7)
    };
    assert!(satisfied(&wrong[4], &without_ends));
}

fn with_number(spi: u32, reqid: u32) -> SaConfig {
    SaConfig {
        reqid: Reqid(reqid),
        ..tunnel(spi)
    }
}

fn arriving(templates: Vec<Template>) -> Command {
    add_policy(Policy {
        direction: Direction::In,
        ..policy(
            "10.1.0.0/16",
            "10.2.0.0/16",
            Upper::Any,
            Action::Protect(templates),
        )
    })
}

#[test]
fn a_bundle_is_walked_from_the_outside_in_with_nothing_left_out_or_added() {
    let database = database(&[
        add(with_number(0x3001, 1)),
        add(with_number(0x3002, 2)),
        arriving(vec![numbered(1), numbered(2)]),
    ]);
    let snapshot = database.snapshot();
    let [inner, outer] = [0x3001, 0x3002].map(|spi| snapshot.find(&id(spi, GATEWAYS.1)).unwrap());
    let through = |path: &[SaIndex]| snapshot.inbound(&site_packet(), path);
    assert_eq!(through(&[outer, inner]), Ok(Allowed::In));
    for wrong in [
        &[inner, outer][..],
        &[outer],
        &[inner],
        &[],
        &[outer, inner, inner],
        &[outer, outer, inner],
    ] {
        assert_eq!(through(wrong), Err(Dropped::PolicyMismatch), "{wrong:?}");
    }
}

#[test]
fn an_optional_part_of_a_bundle_may_be_missing_and_the_others_may_not() {
    let key = Secret::new(vec![3; 20]);
    let integrity = Integrity::named("hmac-sha1").unwrap();
    let ah = SaId {
        protocol: Protocol::Ah,
        ..id(0x3003, GATEWAYS.1)
    };
    let suite = Suite::new(None, Some((integrity, key)), None).unwrap();
    let optional = Template {
        protocol: Protocol::Ah,
        ..template(Level::Use)
    };
    let database = database(&[
        add(tunnel(0x3001)),
        add(SaConfig {
            mode: Mode::Tunnel,
            ..SaConfig::new(ah, address(GATEWAYS.0), suite)
        }),
        arriving(vec![template(Level::Require), optional]),
    ]);
    let snapshot = database.snapshot();
    let esp = snapshot.find(&id(0x3001, GATEWAYS.1)).unwrap();
    let ah = snapshot.find(&ah).unwrap();
    let through = |path: &[SaIndex]| snapshot.inbound(&site_packet(), path);
    assert_eq!(through(&[ah, esp]), Ok(Allowed::In));
    assert_eq!(through(&[esp]), Ok(Allowed::In));
    for wrong in [&[ah][..], &[], &[esp, ah]] {
        assert_eq!(through(wrong), Err(Dropped::PolicyMismatch), "{wrong:?}");
    }
}

#[test]
fn without_its_optional_association_a_packet_takes_those_that_are_demanded() {
    let optional = Template {
        mode: Mode::Transport,
        endpoints: None,
        ..template(Level::Use)
    };
    let bundle = || {
        let templates = vec![optional, template(Level::Require)];
        let action = Action::Protect(templates);
        add_policy(policy("10.0.0.1/32", "10.0.0.2/32", Upper::Any, action))
    };
    let leaving = packet("10.0.0.1", "10.0.0.2", 6, None);
    let complete = database(&[add(tunnel(0x1001)), bundle()]);
    assert_eq!(chosen(&complete, &leaving), Some(0x1001));
    let incomplete = database(&[bundle()]);
    assert!(matches!(
        incomplete.snapshot().outbound(&leaving),
        Decision::Acquire { .. }
    ));
}

#[test]
fn policies_that_differ_in_their_selectors_alone_judge_each_alone() {
    let towards = |direction, destination| {
        add_policy(Policy {
            direction,
            ..policy(
                "10.1.0.0/16",
                destination,
                Upper::Any,
                protect(Level::Require),
            )
        })
    };
    let database = database(&[
        add(tunnel(0x1001)),
        towards(Direction::In, "10.2.0.0/16"),
        towards(Direction::Fwd, "10.3.0.0/16"),
    ]);
    let snapshot = database.snapshot();
    let path = [snapshot.find(&id(0x1001, GATEWAYS.1)).unwrap()];
    let to = |destination| snapshot.inbound(&packet("10.1.0.5", destination, 6, None), &path);
    assert!(snapshot.in_and_fwd_differ());
    assert_eq!(to("10.2.0.9"), Ok(Allowed::In));
    assert_eq!(to("10.3.0.9"), Ok(Allowed::Fwd));
}

/// Their SPIs, the associations that are together sorted by the first.
fn bundles(sas: &[SaConfig], policies: Vec<Command>) -> Vec<Vec<u32>> {
    let mut database = Database::default();
    let sas = sas
        .iter()
        .cloned()
        .map(|config| Command::AddSa(Arc::new(config)));
    let commands: Vec<_> = sas.chain(policies).collect();
    database.apply(&commands, 0, &mut || 0).unwrap();
    let spis = |bundle: &Vec<Arc<Sa>>| bundle.iter().map(|sa| sa.config.id.spi.get()).collect();
    database.snapshot().bundles().iter().map(spis).collect()
}

#[test]
fn associations_one_inside_the_other_are_a_bundle_the_outermost_first() {
    let ah = |spi| {
        let suite = Suite::new(
            None,
            Some((
                Integrity::named("hmac-sha1").unwrap(),
                Secret::new(vec![1; 20]),
            )),
            None,
        );
        let mut config = SaConfig {
            mode: Mode::Transport,
            ..SaConfig::new(id(spi, GATEWAYS.1), address(GATEWAYS.0), suite.unwrap())
        };
        config.id.protocol = Protocol::Ah;
        config
    };
    let around = Template {
        protocol: Protocol::Ah,
        mode: Mode::Transport,
        endpoints: None,
        level: Level::Require,
    };
    let sas = [
        with_number(0x1001, 1),
        with_number(0x1002, 2),
        ah(0x1003),
        with_number(0x1004, 4),
    ];
    let alone = || vec![arriving(vec![numbered(1)])];
    assert_eq!(
        bundles(&sas, alone()),
        [[0x1001], [0x1002], [0x1003], [0x1004]]
    );
    let nested = bundles(&sas, vec![arriving(vec![numbered(2), around])]);
    assert_eq!(nested, [vec![0x1001], vec![0x1003, 0x1002], vec![0x1004]]);
}
