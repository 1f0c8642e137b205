//! Changes, checked after each step on a model of XFRM's list, and once on the kernel's.

use super::super::compiler::{Surroundings, rules};
use super::*;
use crate::routes::DEFAULT_MARK;
use crate::routes::combined_plan::tests::entry;
use crate::routes::plan::{Family, Plan};
use proptest::prelude::*;

/// A model of XFRM's list that stores its state after each step.
#[derive(Clone, Default)]
struct Model {
    policies: Vec<Policy>,
    steps: Vec<Vec<Policy>>,
}

impl Model {
    fn done(&mut self) -> io::Result<()> {
        self.policies.sort_by_key(|policy| policy.priority);
        self.steps.push(self.policies.clone());
        Ok(())
    }
}

impl Table for Model {
    fn policies(&mut self) -> io::Result<Vec<Policy>> {
        Ok(self.policies.clone())
    }

    fn put(&mut self, policy: &Policy) -> io::Result<()> {
        let same =
            |other: &Policy| other.fits == policy.fits && other.direction == policy.direction;
        // The kernel keeps the index of a policy that it replaces, and assigns no index twice.
        let index = self
            .policies
            .iter()
            .find(|other| same(other))
            .map(|other| other.index);
        let index = index.unwrap_or(policy.index);
        self.policies.retain(|other| !same(other));
        assert!(
            self.policies.iter().all(|other| other.index != index),
            "{index:#x} twice"
        );
        self.policies.push(Policy { index, ..*policy });
        self.done()
    }

    fn delete(&mut self, policy: &Policy) -> io::Result<()> {
        self.policies.retain(|other| other.index != policy.index);
        self.done()
    }
}

fn site() -> Site {
    Site::new("esp0", None, DEFAULT_MARK).unwrap()
}

fn wanted(passing: Vec<crate::routes::plan::Entry>) -> Wanted {
    let plan = Plan {
        passing,
        ..Plan::default()
    };
    let rules = rules(&plan, Direction::Fwd, &Surroundings::default());
    vec![(Direction::Fwd, rules)]
}

/// Whether packets that match `packet` are blocked; a policy's selector stands for the packets that it matches.
fn decides(policies: &[Policy], packet: &Match) -> bool {
    let first = policies
        .iter()
        .find(|policy| includes(&policy.fits, packet));
    first.is_some_and(|policy| policy.blocks)
}

fn includes(wide: &Match, narrow: &Match) -> bool {
    let within = |wide: ipsec::policy::Prefix, narrow: ipsec::policy::Prefix| {
        wide.len <= narrow.len && wide.contains(narrow.address)
    };
    within(wide.source, narrow.source)
        && within(wide.destination, narrow.destination)
        && (wide.protocol == 0 || wide.protocol == narrow.protocol)
        && wide
            .source_port
            .is_none_or(|port| narrow.source_port == Some(port))
        && wide
            .destination_port
            .is_none_or(|port| narrow.destination_port == Some(port))
}

fn list() -> impl Strategy<Value = Vec<crate::routes::plan::Entry>> {
    proptest::collection::vec(entry(), 0..7)
}

proptest! {
    #[test]
    fn at_each_step_of_a_change_a_packet_meets_the_old_list_or_the_new_one(one in list(), other in list()) {
        let (old, new) = (wanted(one), wanted(other));
        let mut keeper = Keeper::over(Model::default(), &site());
        keeper.put(&old).unwrap();
        let before = keeper.table.policies.clone();
        keeper.table.steps.clear();
        keeper.put(&new).unwrap();
        let after = keeper.table.policies.clone();
        prop_assert_eq!(keeper.lost(&new).unwrap(), None);
        let packets: Vec<_> = before.iter().chain(&after).map(|policy| policy.fits).collect();
        for step in &keeper.table.steps {
            for packet in &packets {
                let either = [decides(&before, packet), decides(&after, packet)];
                prop_assert!(either.contains(&decides(step, packet)), "{:?} at {:?}", packet, step);
            }
        }
    }

    #[test]
    fn what_another_program_deletes_or_changes_is_seen_and_comes_back(
        entries in list(), number in 0usize..20, changes in any::<bool>(),
    ) {
        let wanted = wanted(entries);
        let mut keeper = Keeper::over(Model::default(), &site());
        keeper.put(&wanted).unwrap();
        let whole = keeper.table.policies.clone();
        prop_assume!(!whole.is_empty());
        let number = number % whole.len();
        if changes {
            keeper.table.policies[number].blocks ^= true;
        } else {
            keeper.table.policies.remove(number);
        }
        let lost = keeper.lost(&wanted).unwrap().unwrap();
        prop_assert!(lost.starts_with(if changes { "changed" } else { "deleted" }), "{}", lost);
        keeper.put(&wanted).unwrap();
        prop_assert_eq!(keeper.lost(&wanted).unwrap(), None);
        keeper.clear().unwrap();
        prop_assert_eq!(&keeper.table.policies, &[]);
    }
}

#[test]
fn policies_of_other_programs_and_gateways_are_left_alone() {
    let other = Site::new("esp1", None, DEFAULT_MARK).unwrap();
    assert_ne!(Indices::of(&site()), Indices::of(&other));
    let foreign = Policy {
        fits: Match::all(Family::V6),
        direction: Direction::Fwd,
        blocks: false,
        priority: 5,
        index: 10,
    };
    let of_another_gateway = Policy {
        fits: Match {
            protocol: 17,
            ..foreign.fits
        },
        index: Indices::of(&other).0 | 8 | 2,
        ..foreign
    };
    let mut model = Model::default();
    model.policies.extend([foreign, of_another_gateway]);
    let mut keeper = Keeper::over(model, &site());
    let all = wanted(vec![crate::routes::plan::tests::entry(
        "10.1.0.0/24",
        "10.2.0.0/24",
        ipsec::policy::Upper::Any,
        crate::routes::plan::Disposition::Protect,
    )]);
    keeper.put(&all).unwrap();
    assert_eq!(keeper.table.policies.len(), 3);
    keeper.put(&vec![(Direction::Fwd, Vec::new())]).unwrap();
    keeper.clear().unwrap();
    assert_eq!(keeper.table.policies, [foreign, of_another_gateway]);
}
