//! `in` and `fwd` policies are checked independently.

use super::*;

/// The `in` or `fwd` policy for the site's packets: none, or one with this action.
const SAYINGS: [&str; 5] = ["nothing", "discard", "none", "protect", "other"];

fn saying(word: &str) -> Option<Action> {
    let other = Template {
        level: Level::Unique(Some(Reqid(7))),
        ..template(Level::Require)
    };
    match word {
        "discard" => Some(Action::Discard),
        "none" => Some(Action::Bypass),
        "protect" => Some(protect(Level::Require)),
        "other" => Some(Action::Protect(vec![other])),
        _ => None,
    }
}

fn towards(direction: Direction, word: &str) -> Option<Command> {
    let action = saying(word)?;
    Some(add_policy(Policy {
        direction,
        ..policy("10.1.0.0/16", "10.2.0.0/16", Upper::Any, action)
    }))
}

#[test]
fn in_and_fwd_judge_each_alone_in_all_pairs() {
    for here in SAYINGS {
        for onward in SAYINGS {
            let commands = [
                Some(add(tunnel(0x1001))),
                towards(Direction::In, here),
                towards(Direction::Fwd, onward),
            ];
            let commands: Vec<_> = commands.into_iter().flatten().collect();
            let database = database(&commands);
            let snapshot = database.snapshot();
            let path = [snapshot.find(&id(0x1001, GATEWAYS.1)).unwrap()];
            let allowed = snapshot.inbound(&site_packet(), &path).ok();
            let expected = match (here == "protect", onward == "protect") {
                (true, true) => Some(Allowed::Both),
                (true, false) => Some(Allowed::In),
                (false, true) => Some(Allowed::Fwd),
                (false, false) => None,
            };
            assert_eq!(allowed, expected, "in {here}, fwd {onward}");
            assert_eq!(snapshot.in_and_fwd_differ(), here != onward);
            let forwarded = snapshot.forwarded(&site_packet(), &path).is_ok();
            assert_eq!(forwarded, onward == "protect", "fwd {onward}");
        }
    }
}

#[test]
fn what_may_be_forwarded_is_not_therefore_let_in() {
    let forward = Policy {
        direction: Direction::Fwd,
        ..site_to_site(Level::Require)
    };
    let local = Policy {
        direction: Direction::In,
        ..policy("10.1.0.0/16", "10.2.0.1/32", Upper::Any, Action::Discard)
    };
    let database = database(&[add(tunnel(0x1001)), add_policy(forward), add_policy(local)]);
    let snapshot = database.snapshot();
    let path = [snapshot.find(&id(0x1001, GATEWAYS.1)).unwrap()];
    let to = |destination| packet("10.1.0.5", destination, 6, Some((1, 22)));
    assert_eq!(
        snapshot.inbound(&to("10.2.0.9"), &path),
        Ok(Allowed::Fwd),
        "no `in` policy matches it"
    );
    assert_eq!(snapshot.inbound(&to("10.2.0.1"), &path), Ok(Allowed::Fwd));
}

#[test]
fn each_direction_has_the_association_that_its_own_policy_names() {
    let numbered = SaConfig {
        reqid: Reqid(7),
        ..tunnel(0x1007)
    };
    let commands = [
        Some(add(tunnel(0x1001))),
        Some(add(numbered)),
        towards(Direction::In, "other"),
        towards(Direction::Fwd, "protect"),
    ];
    let database = database(&commands.into_iter().flatten().collect::<Vec<_>>());
    let snapshot = database.snapshot();
    let through = |spi| {
        let path = [snapshot.find(&id(spi, GATEWAYS.1)).unwrap()];
        snapshot.inbound(&site_packet(), &path)
    };
    assert_eq!(through(0x1001), Ok(Allowed::Fwd));
    // A template without a number takes what has one, as in the kernel.
    assert_eq!(through(0x1007), Ok(Allowed::Both));
}

#[test]
fn another_peers_association_satisfies_no_policy_that_names_this_one() {
    let stranger = config(0x2001, ("192.0.2.9", GATEWAYS.1), Mode::Tunnel);
    let commands = [
        Some(add(tunnel(0x1001))),
        Some(add(stranger)),
        towards(Direction::In, "protect"),
        towards(Direction::Fwd, "discard"),
    ];
    let database = database(&commands.into_iter().flatten().collect::<Vec<_>>());
    let snapshot = database.snapshot();
    let path = [snapshot.find(&id(0x2001, GATEWAYS.1)).unwrap()];
    assert!(snapshot.inbound(&site_packet(), &path).is_err());
}

#[test]
fn the_fwd_policies_that_setkey_makes_of_in_policies_cost_no_second_question() {
    let text =
        "spdadd 10.1.0.0/16 10.2.0.0/16 any -P in ipsec esp/tunnel/192.0.2.1-192.0.2.2/unique;
                spdadd 10.3.0.0/16 10.2.0.0/16 any -P in discard;
                spdadd 10.4.0.0/16 10.2.0.0/16 any -P in prio high none;";
    let lowered = |forwarding| {
        use crate::setkey::{NoNames, compile};
        let lowered = compile(text.as_bytes(), forwarding, &mut NoNames);
        database(&lowered.ok().unwrap().commands).snapshot()
    };
    use crate::setkey::Forwarding;
    assert!(!lowered(Forwarding::WithIn).in_and_fwd_differ());
    assert!(lowered(Forwarding::AsWritten).in_and_fwd_differ());
}
