//! Many worlds, each from its seed: bad paths, a NAT, a third party, and rekeys of both sides at any time. Whatever
//! happens, in the end both ends have the same associations and nothing else.

use crate::{
    hostile::Hostile,
    network::{Nat, Path},
    random::SeededRandom,
    world::{NAME, Setup, World},
};
use ikev2::{connection::Start, endpoint::Input};
use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// Seeds of each kind where the environment asks for no other number.
const DEFAULT_SEEDS: u64 = 40;

#[expect(clippy::disallowed_methods, reason = "how many seeds are run")]
pub fn seeds() -> u64 {
    let asked = std::env::var("ESPLANADE_IKE_SEEDS").ok();
    asked.map_or(DEFAULT_SEEDS, |asked| asked.parse().expect("a number"))
}

fn setup(seed: u64, random: &mut SeededRandom) -> Setup {
    let both = [
        [Start::AtStart, Start::Wait],
        [Start::Wait, Start::AtStart],
        [Start::AtStart, Start::AtStart],
    ];
    let esp = [
        ["aes256gcm16-x25519"; 2],
        ["aes256gcm16"; 2],
        ["aes256gcm16-x25519-ecp256", "aes256gcm16-ecp256-x25519"],
        ["aes256gcm16-x25519-ecp256", "aes256gcm16-ecp256"],
    ];
    let ike = [
        ["aes256gcm16-prfsha256-x25519"; 2],
        [
            "aes256gcm16-prfsha256-x25519-ecp256",
            "aes256gcm16-prfsha256-ecp256",
        ],
    ];
    Setup {
        seed,
        ike: ike[random.below(2) as usize],
        esp: esp[random.below(4) as usize],
        start: both[random.below(3) as usize],
        change: |_| {},
    }
}

fn path(random: &mut SeededRandom) -> Path {
    Path {
        loss_per_mille: [0, 20, 100, 250][random.below(4) as usize],
        duplicates_per_mille: [0, 50, 300][random.below(3) as usize],
        delay: (
            Duration::from_millis(1 + random.below(20)),
            Duration::from_millis(20 + random.below(400)),
        ),
    }
}

fn live(world: &mut World, random: &mut SeededRandom) {
    for _ in 0..25 {
        world.run_for(Duration::from_millis(random.below(6000)));
        let host = random.below(2) as usize;
        match random.below(10) {
            0..=3 => world.rekey_child(host),
            4..=5 => world.rekey_ike(host),
            6 => {
                world.rekey_child(0);
                world.rekey_child(1);
            }
            7 => {
                world.rekey_ike(0);
                world.rekey_ike(1);
            }
            8 => {
                world.rekey_child(host);
                world.rekey_ike(1 - host);
            }
            _ => world.path = path(random),
        }
    }
}

fn run(seed: u64, seen: &mut HashSet<String>) {
    let mut random = SeededRandom::new(seed ^ 0x77);
    let mut world = World::new(&setup(seed, &mut random));
    world.path = path(&mut random);
    world.slowness = Duration::from_millis([0, 5, 60][random.below(3) as usize]);
    if random.chance(500) {
        world.hostile = Some(Hostile::default());
    }
    live(&mut world, &mut random);
    // Either side may be up while the other is down: it learns so by its next check whether the peer lives.
    world.come_to_rest();
    world.come_to_rest();
    world.assert_agreement(1);
    seen.extend(world.seen.drain());
}

#[test]
fn both_ends_agree_after_whatever_happened() {
    let mut seen = HashSet::new();
    for seed in 0..seeds() {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, &mut seen)));
        assert!(outcome.is_ok(), "seed {seed}");
    }
    for state in [
        "peer Down",
        "peer Connecting",
        "peer Up",
        "child Installing",
        "child Standby",
        "child Current",
        "child Replaced",
        "child Deleting",
        "child Draining",
        "1 IKE SAs",
        "2 IKE SAs",
        "3 IKE SAs",
    ] {
        assert!(seen.contains(state), "{state} was never reached: {seen:?}");
    }
}

/// A NAT in front of the first host, which gets another port in between.
#[test]
fn both_ends_agree_behind_a_nat_that_changes() {
    for seed in 0..seeds() / 2 {
        let mut random = SeededRandom::new(seed ^ 0x1234);
        let mut world = World::behind_nat(&setup_for_nat(seed));
        world.path = path(&mut random);
        for shift in [1000, 2000] {
            if let Some(nat) = &mut world.nat {
                nat.shift = shift;
            }
            live(&mut world, &mut random);
        }
        world.come_to_rest();
        world.come_to_rest();
        let outcome = catch_unwind(AssertUnwindSafe(|| world.assert_agreement(1)));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

fn setup_for_nat(seed: u64) -> Setup {
    Setup {
        seed,
        // The peer's address is not known to the one outside.
        change: |connection| {
            if connection.start == Start::Wait {
                connection.remote.clear();
            }
        },
        ..Setup::default()
    }
}

/// Whatever both sides do, `Down` takes everything away at both ends.
#[test]
fn both_ends_are_down_after_down() {
    for seed in 0..seeds() / 4 {
        let mut random = SeededRandom::new(seed ^ 0x99);
        let mut world = World::up(&Setup {
            seed,
            ..Setup::default()
        });
        world.path = path(&mut random);
        live(&mut world, &mut random);
        let connection = NAME;
        for host in 0..2 {
            world.input(host, Input::Down { connection });
        }
        world.come_to_rest();
        world.come_to_rest();
        for host in 0..2 {
            let report = world.report(host);
            assert!(report.ike.is_empty(), "seed {seed}: {report:#?}");
            assert!(world.hosts[host].plane.pairs.is_empty(), "seed {seed}");
            assert_eq!(world.hosts[host].secrets.held(), (0, 0), "seed {seed}");
        }
    }
}

/// The NAT of the tests.
pub fn nat() -> Nat {
    Nat {
        inside: "10.9.9.9".parse().expect("an address"),
        outside: "192.0.2.1".parse().expect("an address"),
        shift: 0,
    }
}
