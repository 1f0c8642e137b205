use super::*;
use ipsec::policy::Template;
use ipsec::sa::Protocol;

/// `"10.1.0.0/24"`.
pub fn prefix(text: &str) -> Prefix {
    let (address, len) = text.split_once('/').unwrap();
    Prefix {
        address: address.parse().unwrap(),
        len: len.parse().unwrap(),
    }
}

/// The prefix with its host bits cleared.
pub fn normal(prefix: Prefix) -> Prefix {
    masked(prefix)
}

/// An entry of a plan.
pub fn entry(source: &str, destination: &str, upper: Upper, verdict: Disposition) -> Entry {
    Entry {
        selector: Selector {
            source: prefix(source),
            destination: prefix(destination),
            upper,
        },
        verdict,
        mtu: None,
        whole: false,
        device: None,
        via: None,
    }
}

fn optional() -> Policy {
    Policy {
        selector: Selector {
            source: prefix("10.1.0.77/24"),
            destination: prefix("10.2.0.0/24"),
            upper: Upper::Any,
        },
        direction: Direction::Out,
        action: Action::Protect(vec![Template {
            protocol: Protocol::Esp,
            mode: Mode::Transport,
            endpoints: None,
            level: Level::Use,
        }]),
        spread: 1,
        priority: 0,
        is_negotiated: false,
        device: None,
    }
}

#[test]
fn the_level_use_passes_in_clear_only_while_there_is_no_association() {
    let mut plan = Plan::default();
    plan.push(&optional(), false, Some(1400));
    plan.push(&optional(), true, Some(1400));
    assert_eq!(plan.leaving[0].verdict, Disposition::Bypass);
    assert_eq!(plan.leaving[0].mtu, None);
    assert_eq!(plan.leaving[1].verdict, Disposition::Protect);
    assert_eq!(plan.leaving[1].mtu, Some(1400));
}

#[test]
fn host_bits_behind_a_prefix_are_cut_off() {
    let plan = Plan::of(&[std::sync::Arc::new(optional())]);
    assert_eq!(plan.leaving[0].selector.source, prefix("10.1.0.0/24"));
    assert_eq!(masked(prefix("10.1.2.3/0")), prefix("0.0.0.0/0"));
    assert_eq!(masked(prefix("2001:db8::1/64")), prefix("2001:db8::/64"));
    assert_eq!(masked(prefix("2001:db8::1/0")), prefix("::/0"));
}

#[test]
fn senders_of_two_plans_are_those_of_either() {
    let users = |list: &[u32]| Senders::Users(list.iter().copied().collect());
    assert_eq!(Senders::None.and(&users(&[0])), users(&[0]));
    assert_eq!(users(&[0]).and(&users(&[7])), users(&[0, 7]));
    assert_eq!(users(&[0]).and(&Senders::Any), Senders::Any);
}

#[test]
fn limits_are_shared_by_all_that_overlap_and_by_no_others() {
    let all = [
        ("0.0.0.0/0", None),
        ("10.0.0.0/8", Some(1400)),
        ("10.2.0.0/16", Some(1300)),
        ("10.2.0.0/24", Some(1500)),
        ("10.2.0.9/32", None),
        ("10.3.0.0/16", Some(1200)),
        ("11.0.0.0/8", Some(1100)),
        ("::/0", Some(1000)),
        ("2001:db8::/32", Some(1350)),
        ("2001:db8:7::1/128", Some(900)),
        ("2001:db9::/32", None),
    ];
    // Every subset, so that each prefix also occurs alone.
    for some in 0..1u32 << all.len() {
        let chosen = || {
            (0..all.len())
                .filter(|n| some >> n & 1 == 1)
                .map(|n| all[n])
        };
        let mut plan = Plan::default();
        for (destination, mtu) in chosen() {
            let source = if destination.contains(':') {
                "::/0"
            } else {
                "0.0.0.0/0"
            };
            let mut one = entry(source, destination, Upper::Any, Disposition::Protect);
            (one.mtu, one.whole) = (mtu, mtu != Some(1500));
            plan.leaving.push(one);
        }
        let found = plan.destinations();
        assert_eq!(found.len(), chosen().count());
        for (destination, _) in chosen() {
            let wanted = prefix(destination);
            let sharing = || chosen().filter(|(other, _)| overlap(prefix(other), wanted));
            let fit = Fit {
                mtu: sharing().filter_map(|(_, mtu)| mtu).min(),
                whole: sharing().all(|(_, mtu)| mtu != Some(1500)),
                ..Fit::default()
            };
            let key = (Family::of(wanted.address), wanted.address, wanted.len);
            assert_eq!(found[&key], fit, "{destination} among {some:#b}");
            assert!(plan.protects_some(wanted));
        }
    }
}

#[test]
fn a_destination_inside_another_shares_the_smaller_limit() {
    let mut plan = Plan::default();
    for (destination, mtu) in [
        ("10.2.0.0/16", 1400),
        ("10.2.3.0/24", 1300),
        ("10.9.0.0/16", 1200),
    ] {
        let mut one = entry("10.1.0.0/24", destination, Upper::Any, Disposition::Protect);
        one.mtu = Some(mtu);
        plan.leaving.push(one);
    }
    let fits = plan.destinations().into_values();
    let limits: Vec<_> = fits.map(|fit| fit.mtu).collect();
    assert_eq!(limits, [Some(1300), Some(1300), Some(1200)]);
}

#[test]
fn what_has_changed_is_the_difference_of_all_destinations() {
    let all = [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.2.0.0/16",
        "10.2.0.9/32",
        "10.3.0.0/16",
        "11.0.0.0/8",
    ];
    let plan = |limits: u32| {
        let mut plan = Plan::default();
        for (number, destination) in all.iter().enumerate() {
            let mut one = entry("0.0.0.0/0", destination, Upper::Any, Disposition::Protect);
            one.mtu = [None, Some(1400), Some(1300), Some(1400 + number as u32)]
                [(limits >> (2 * number) & 3) as usize];
            plan.leaving.push(one);
        }
        plan
    };
    for seed in 0..2000_u32 {
        let (old, new) = (plan(seed.wrapping_mul(40_503)), plan(seed * 7));
        let before = old.destinations();
        let mut wanted = new.destinations();
        wanted.retain(|destination, fit| before[destination] != *fit);
        assert_eq!(new.changed_destinations(&old), wanted, "{seed}");
    }
}
