use super::*;
use ipsec::command::Command;
use ipsec::database::{Database, KeptInterface};
use ipsec::policy::{Action, Selector};
use ipsec::sa::SaConfig;
use ipsec::setkey::{Forwarding, NoNames, compile};

const LOCAL: &str = "192.0.2.1";
const GCM: &str = "-E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213";

fn commands(text: &str) -> Vec<Command> {
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames);
    lowered.unwrap().commands
}

/// A pair of associations of `vpn0`.
fn pair(first: u32) -> String {
    let [there, back] =
        [("192.0.2.1 192.0.2.2", 0), ("192.0.2.2 192.0.2.1", 1)].map(|(ends, way)| {
            let spi = first + way;
            format!("add {ends} esp {spi} -m tunnel -o interface=vpn0 {GCM};\n")
        });
    there + &back
}

/// The associations of `text`, negotiated for packets between 10.1.0.0/16 and `theirs`.
fn negotiated(text: &str, theirs: &str) -> Vec<Command> {
    let selectors = commands(&format!(
        "spdadd 10.1.0.0/16 {theirs} any -P out discard; spdadd {theirs} 10.1.0.0/16 any -P in discard;"
    ));
    let selector = |way: Direction| {
        selectors.iter().find_map(|command| match command {
            Command::AddPolicy(policy) if policy.direction == way => Some(policy.selector),
            _ => None,
        })
    };
    let of = |command: Command| match command {
        Command::AddSa(config) => {
            let leaves = config.source == LOCAL.parse::<IpAddr>().unwrap();
            let way = if leaves {
                Direction::Out
            } else {
                Direction::In
            };
            Command::AddSa(Arc::new(SaConfig {
                selectors: selector(way).into_iter().collect(),
                is_negotiated: true,
                ..(*config).clone()
            }))
        }
        other => other,
    };
    commands(text).into_iter().map(of).collect()
}

/// Policies of `text` that lead into `vpn0`.
fn leading(text: &str) -> Vec<Command> {
    let into_device = |command: Command| match command {
        Command::AddPolicy(policy) => Command::AddPolicy(Arc::new(Policy {
            device: Some("vpn0".into()),
            ..(*policy).clone()
        })),
        other => other,
    };
    commands(text).into_iter().map(into_device).collect()
}

fn of(each: &[Command], kept: Option<bool>, devices: &[&str]) -> Vec<Arc<Policy>> {
    let mut database = Database::default();
    let local = [LOCAL.parse().unwrap()];
    database.set_local_addresses(&local);
    let kept = kept.map(|follows_policies| KeptInterface {
        name: "vpn0".into(),
        follows_policies,
    });
    database.keep_interfaces(kept.as_slice());
    database.apply(each, 0, &mut || 0).unwrap();
    let devices: Vec<Arc<str>> = devices.iter().map(|name| (*name).into()).collect();
    policies(&database.snapshot(), &local, &devices).0
}

/// `out 10.1.0.0/16 10.2.0.0/16 192.0.2.2`: direction, selector, and where it leads to; by falling priority in each
/// direction, those of `vpn0` alone.
fn shown(mut policies: Vec<Arc<Policy>>) -> Vec<String> {
    policies.retain(|policy| policy.device.is_some());
    let way = |policy: &Policy| DIRECTIONS.iter().position(|way| *way == policy.direction);
    policies.sort_by_key(|policy| (way(policy), std::cmp::Reverse(policy.priority)));
    let each = policies.iter().map(|policy| {
        assert_eq!(policy.device.as_deref(), Some("vpn0"));
        let Selector {
            source,
            destination,
            ..
        } = policy.selector;
        let target = match &policy.action {
            Action::Protect(templates) => templates[0].endpoints.unwrap().1.to_string(),
            other => format!("{other:?}").to_lowercase(),
        };
        let direction = format!("{:?}", policy.direction).to_lowercase();
        format!(
            "{direction} {}/{} {}/{} {target}",
            source.address, source.len, destination.address, destination.len
        )
    });
    let mut each: Vec<_> = each.collect();
    each.dedup();
    each
}

#[test]
fn associations_set_by_hand_carry_everything_that_is_routed_into_their_device() {
    let mut found = shown(of(&commands(&pair(0x1001)), None, &[]));
    found.sort();
    assert_eq!(
        found,
        [
            "fwd 0.0.0.0/0 0.0.0.0/0 192.0.2.1",
            "fwd ::/0 ::/0 192.0.2.1",
            "in 0.0.0.0/0 0.0.0.0/0 192.0.2.1",
            "in ::/0 ::/0 192.0.2.1",
            "out 0.0.0.0/0 0.0.0.0/0 192.0.2.2",
            "out ::/0 ::/0 192.0.2.2",
        ]
    );
}

#[test]
fn a_device_that_outlives_its_associations_asks_for_new_ones() {
    let asking = ["out 0.0.0.0/0 0.0.0.0/0 0.0.0.0", "out ::/0 ::/0 ::"];
    assert_eq!(shown(of(&[], None, &["vpn0"])), asking);
    assert_eq!(shown(of(&[], Some(false), &[])), asking);
    assert_eq!(shown(of(&[], Some(false), &["vpn0"])), asking);
    assert!(of(&[], None, &[]).is_empty());
}

#[test]
fn negotiated_packets_alone_pass_and_others_ask_for_an_association() {
    let found = shown(of(
        &negotiated(&pair(0x1001), "10.2.0.0/16"),
        Some(false),
        &["vpn0"],
    ));
    assert_eq!(
        found,
        [
            "out 10.1.0.0/16 10.2.0.0/16 192.0.2.2",
            "out 0.0.0.0/0 0.0.0.0/0 0.0.0.0",
            "out ::/0 ::/0 ::",
            "in 10.2.0.0/16 10.1.0.0/16 192.0.2.1",
            "fwd 10.2.0.0/16 10.1.0.0/16 192.0.2.1",
        ]
    );
}

#[test]
fn policies_that_lead_into_a_device_open_nothing_by_themselves() {
    let text = "spdadd 10.1.0.0/16 10.2.0.0/15 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;
                spdadd 10.2.0.0/15 10.1.0.0/16 any -P in ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;";
    let closed = [
        "out 10.1.0.0/16 10.2.0.0/15 0.0.0.0",
        "in 10.2.0.0/15 10.1.0.0/16 discard",
        "fwd 10.2.0.0/15 10.1.0.0/16 discard",
    ];
    assert_eq!(shown(of(&leading(text), Some(true), &["vpn0"])), closed);
    let up = [leading(text), negotiated(&pair(0x1001), "10.2.0.0/16")].concat();
    assert_eq!(
        shown(of(&up, Some(true), &["vpn0"])),
        [
            "out 10.1.0.0/16 10.2.0.0/16 192.0.2.2",
            closed[0],
            "in 10.2.0.0/16 10.1.0.0/16 192.0.2.1",
            closed[1],
            "fwd 10.2.0.0/16 10.1.0.0/16 192.0.2.1",
            closed[2],
        ]
    );
}

#[test]
fn a_rekey_changes_no_policy() {
    let first = negotiated(&pair(0x1001), "10.2.0.0/16");
    let both = [first.clone(), negotiated(&pair(0x2001), "10.2.0.0/16")].concat();
    assert_eq!(of(&first, Some(false), &[]), of(&both, Some(false), &[]));
}

/// An association of another peer is required for these packets.
const PROTECTED: &str =
    "spdadd 10.2.7.0/24 10.1.0.0/16 any -P in ipsec esp/tunnel/192.0.2.7-192.0.2.1/require;
    spdadd 10.2.8.0/24 10.1.0.0/16 any -P in none;
    spdadd 10.9.0.0/16 10.1.0.0/16 any -P in discard;";

fn entering(found: &[String]) -> Vec<&str> {
    let each = found.iter().map(String::as_str);
    each.filter(|line| line.starts_with("in ")).collect()
}

#[test]
fn packets_that_policies_protect_otherwise_do_not_come_by_a_device() {
    let by_hand = [commands(PROTECTED), commands(&pair(0x1001))].concat();
    let found = shown(of(&by_hand, None, &["vpn0"]));
    assert_eq!(
        entering(&found),
        [
            "in 10.2.7.0/24 10.1.0.0/16 discard",
            "in 10.9.0.0/16 10.1.0.0/16 discard",
            "in 0.0.0.0/0 0.0.0.0/0 192.0.2.1",
            "in ::/0 ::/0 192.0.2.1",
        ]
    );
    // What was not negotiated for such packets does not let them in anyway.
    let elsewhere = [
        commands(PROTECTED),
        negotiated(&pair(0x1001), "10.3.0.0/16"),
    ]
    .concat();
    let found = shown(of(&elsewhere, Some(false), &["vpn0"]));
    assert_eq!(entering(&found), ["in 10.3.0.0/16 10.1.0.0/16 192.0.2.1"]);
}

#[test]
fn a_policy_in_front_of_those_that_lead_into_a_device_decides_first() {
    let lead =
        "spdadd 10.2.0.0/16 10.1.0.0/16 any -P in ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;";
    let keys = negotiated(&pair(0x1001), "10.2.0.0/16");
    let found = |first: Vec<Command>, second: Vec<Command>| {
        shown(of(&[first, second, keys.clone()].concat(), Some(true), &[]))
    };
    let behind = found(leading(lead), commands(PROTECTED));
    assert_eq!(entering(&behind)[0], "in 10.2.0.0/16 10.1.0.0/16 192.0.2.1");
    let in_front = found(commands(PROTECTED), leading(lead));
    assert_eq!(
        entering(&in_front),
        [
            "in 10.2.7.0/24 10.1.0.0/16 discard",
            "in 10.2.8.0/24 10.1.0.0/16 discard",
            "in 10.2.0.0/16 10.1.0.0/16 192.0.2.1",
        ]
    );
}

#[test]
fn of_two_peers_behind_one_device_both_are_let_in() {
    let other = pair(0x2001).replace("192.0.2.2", "192.0.2.3");
    let found = of(&commands(&(pair(0x1001) + &other)), None, &[]);
    let entering = found
        .iter()
        .filter(|policy| policy.direction == Direction::In);
    for policy in entering {
        let Action::Protect(templates) = &policy.action else {
            panic!("{policy:?}");
        };
        let (source, destination) = templates[0].endpoints.unwrap();
        assert!(source.is_unspecified(), "{source}");
        assert_eq!(destination.to_string(), LOCAL);
    }
}
