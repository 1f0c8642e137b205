//! A model of a host that fails at any one step, or at every step from one on, and that checks after each step whether
//! a packet could pass unencrypted.

use super::*;
use crate::routes::DEFAULT_MARK;
use crate::routes::plan::tests::entry;
use crate::routes::plan::{Disposition, Entry, Planes, Way};
use crate::routes::steering::{self, Route, RoutingRule};
use crate::routes::tables::Exits;
use ipsec::policy::Upper;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
struct Model {
    rules: Vec<RoutingRule>,
    routes: Vec<Route>,
    /// The plan that each barrier enforces; none if another program has removed the barrier.
    barriers: [Option<Plan>; 2],
    steps: usize,
    /// How often the rules were listed.
    asked: usize,
    refuses: Option<Refuses>,
    /// Plans that must be enforced at the moment.
    held: Vec<Plan>,
    /// Packets that could pass nevertheless, and after which step.
    leaks: Vec<(usize, Packet)>,
}

#[derive(Clone, Copy)]
enum Refuses {
    Only(usize),
    From(usize),
}

#[derive(Clone, Default)]
struct Host(Arc<Mutex<Model>>);

struct ModelBarrier {
    host: Host,
    number: usize,
    plan: Option<Plan>,
}

impl Host {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.0.lock().unwrap()
    }

    fn step(&self, change: impl FnOnce(&mut Model)) -> io::Result<()> {
        let mut model = self.model();
        model.steps += 1;
        let refused = match model.refuses {
            Some(Refuses::Only(step)) => model.steps == step,
            Some(Refuses::From(step)) => model.steps >= step,
            None => false,
        };
        if refused {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        change(&mut model);
        model.record_leaks();
        Ok(())
    }

    /// A gateway on this host, with both barriers.
    fn installed(&self) -> Installed<Host> {
        let barrier = |number| -> Box<dyn Barrier> {
            Box::new(ModelBarrier {
                host: self.clone(),
                number,
                plan: None,
            })
        };
        let site = Site::new("esp0", None, DEFAULT_MARK).unwrap();
        Installed::over(site, self.clone(), vec![barrier(0), barrier(1)])
    }
}

impl Model {
    fn record_leaks(&mut self) {
        for plan in self.held.clone() {
            for packet in packets() {
                let passes =
                    |plan: &Option<Plan>| plan.as_ref().is_none_or(|plan| !drops(plan, packet));
                if drops(&plan, packet) && self.barriers.iter().all(passes) {
                    self.leaks.push((self.steps, packet));
                }
            }
        }
    }
}

impl Tables for Host {
    fn exits(&mut self) -> io::Result<Exits> {
        let devices = [("esp0", 7), ("eth0", 2)];
        Ok(devices.map(|(name, index)| (name.into(), index)).into())
    }
    fn rules(&mut self, _: u32) -> io::Result<Vec<RoutingRule>> {
        self.model().asked += 1;
        Ok(self.model().rules.clone())
    }
    fn add_rule(&mut self, rule: &RoutingRule) -> io::Result<()> {
        self.step(|model| model.rules.push(rule.clone()))
    }
    fn delete_rule(&mut self, rule: &RoutingRule) -> io::Result<()> {
        self.step(|model| model.rules.retain(|known| known != rule))
    }
    fn routes(&mut self, _: u32, _: &Exits) -> io::Result<Vec<Route>> {
        Ok(self.model().routes.clone())
    }
    fn put_route(&mut self, _: u32, _: &Exits, route: &Route) -> io::Result<()> {
        let place = |route: &Route| (route.destination, route.metric);
        self.step(|model| {
            model.routes.retain(|known| place(known) != place(route));
            model.routes.push(route.clone());
        })
    }
    fn delete_route(&mut self, _: u32, _: &Exits, route: &Route) -> io::Result<()> {
        self.step(|model| model.routes.retain(|known| known != route))
    }
}

impl Barrier for ModelBarrier {
    fn name(&self) -> &'static str {
        ["first", "second"][self.number]
    }
    fn install(&mut self, plan: &Plan) -> io::Result<()> {
        if self.plan.as_ref() == Some(plan) {
            return Ok(());
        }
        let number = self.number;
        self.host
            .step(|model| model.barriers[number] = Some(plan.clone()))?;
        self.plan = Some(plan.clone());
        Ok(())
    }
    fn missing(&mut self) -> io::Result<Vec<String>> {
        let there = self.host.model().barriers[self.number].clone();
        let lost = self.plan.is_some() && there != self.plan;
        Ok(lost
            .then(|| "table deleted".to_owned())
            .into_iter()
            .collect())
    }
    fn restore(&mut self) -> io::Result<()> {
        let (number, plan) = (self.number, self.plan.clone());
        self.host.step(|model| model.barriers[number] = plan)
    }
    fn remove(&mut self) -> io::Result<()> {
        self.plan = None;
        let number = self.number;
        self.host.step(|model| model.barriers[number] = None)
    }
}

/// Number of the plan's list, source, destination and destination port.
type Packet = (usize, &'static str, &'static str, u16);

fn packets() -> impl Iterator<Item = Packet> {
    let ends = ["10.1.0.1", "10.2.0.1", "10.3.0.1", "fd00:1::1", "fd00:2::1"];
    (0..3).flat_map(move |list| {
        ends.into_iter().flat_map(move |a| {
            ends.into_iter()
                .flat_map(move |b| [22, 80].map(|port| (list, a, b, port)))
        })
    })
}

fn drops(plan: &Plan, (list, source, destination, port): Packet) -> bool {
    let (source, destination): (IpAddr, IpAddr) =
        (source.parse().unwrap(), destination.parse().unwrap());
    let fits = |entry: &&Entry| {
        let upper = match entry.selector.upper {
            Upper::Protocol {
                destination_port, ..
            } => destination_port.is_none_or(|wanted| wanted == port),
            _ => true,
        };
        upper
            && entry.selector.source.contains(source)
            && entry.selector.destination.contains(destination)
    };
    let first = [&plan.leaving, &plan.arriving, &plan.passing][list]
        .iter()
        .find(fits);
    first.is_some_and(|entry| entry.verdict != Disposition::Bypass)
}

fn plan(policies: &[(&str, &str, Disposition)]) -> Plan {
    let ssh = Upper::Protocol {
        number: 6,
        source_port: None,
        destination_port: Some(22),
    };
    let upper = |verdict| {
        if verdict == Disposition::Bypass {
            ssh
        } else {
            Upper::Any
        }
    };
    let mut plan = Plan::default();
    for (near, far, verdict) in policies {
        plan.leaving
            .push(entry(near, far, upper(*verdict), *verdict));
        plan.arriving
            .push(entry(far, near, upper(*verdict), *verdict));
        plan.passing
            .push(entry(far, near, upper(*verdict), *verdict));
    }
    plan
}

/// Changes that add, remove, replace and reorder policies.
fn changes() -> Vec<(Plan, Plan)> {
    use Disposition::{Bypass, Discard, Protect};
    let tunnel = ("10.1.0.0/24", "10.2.0.0/24", Protect);
    let other = ("10.1.0.0/24", "10.3.0.0/24", Protect);
    let six = ("fd00:1::/64", "fd00:2::/64", Protect);
    let ssh = ("10.1.0.0/24", "10.2.0.0/24", Bypass);
    let closed = ("10.0.0.0/8", "10.3.0.0/24", Discard);
    let lists: [&[_]; 6] = [
        &[tunnel],
        &[],
        &[ssh, tunnel, six],
        &[tunnel, ssh, other],
        &[other, closed],
        &[closed, six],
    ];
    let pairs = lists
        .iter()
        .flat_map(|old| lists.iter().map(move |new| (plan(old), plan(new))));
    let by_user = pairs.filter(|(old, new)| old != new);
    let between = lists.iter().flat_map(|list| {
        let (user, kernel) = (plan(list), by_kernel(plan(list)));
        [(user.clone(), kernel.clone()), (kernel, user)]
    });
    by_user
        .chain(between.filter(|(old, _)| !old.leaving.is_empty()))
        .collect()
}

/// The same by the kernel's own IPsec, with a way to one of two peers.
fn by_kernel(mut plan: Plan) -> Plan {
    plan.planes = Planes::Kernel;
    for entry in plan.leaving.iter_mut().step_by(2) {
        entry.via = Some(Way {
            device: "eth0".into(),
            next_hop: None,
            source: None,
        });
    }
    plan
}

/// A host on which `old` is in force.
fn settled(old: &Plan) -> (Host, Installed<Host>) {
    let host = Host::default();
    let mut installed = host.installed();
    installed.enforce(old.clone()).unwrap();
    host.model().held = vec![old.clone()];
    host.model().steps = 0;
    (host, installed)
}

fn assert_in_force(host: &Host, installed: &mut Installed<Host>, plan: &Plan) {
    assert_eq!(installed.missing().unwrap(), Vec::<String>::new());
    let model = host.model();
    assert_eq!(model.barriers, [Some(plan.clone()), Some(plan.clone())]);
    let wanted = steering::rules(&installed.site, plan);
    assert!(
        wanted.len() == model.rules.len() && wanted.iter().all(|rule| model.rules.contains(rule))
    );
    let wanted = steering::routes(&installed.site, plan);
    assert!(
        wanted.len() == model.routes.len()
            && wanted.iter().all(|route| model.routes.contains(route))
    );
}

/// The old plan must stay in force until the last step of a successful change, and throughout a failed one.
fn assert_closed(host: &Host, outcome: &io::Result<()>) {
    let model = host.model();
    let ended = |step: usize| outcome.is_ok() && step == model.steps;
    let leaks: Vec<_> = model
        .leaks
        .iter()
        .filter(|(step, _)| !ended(*step))
        .collect();
    assert!(leaks.is_empty(), "of {} steps: {leaks:?}", model.steps);
}

#[test]
fn a_change_is_closed_before_it_leads_elsewhere_and_open_last() {
    for (old, new) in changes() {
        let (host, mut installed) = settled(&old);
        let outcome = installed.enforce(new.clone());
        assert_closed(&host, &outcome);
        outcome.unwrap();
        assert_in_force(&host, &mut installed, &new);
    }
}

#[test]
fn where_only_sizes_change_routes_are_put_alone_and_put_back_if_one_is_refused() {
    let small = ("10.1.0.0/24", "10.2.0.0/24", Disposition::Protect);
    let other = ("10.1.0.0/24", "10.3.0.0/24", Disposition::Protect);
    let old = plan(&[small, other]);
    let mut new = old.clone();
    for entry in &mut new.leaving {
        entry.mtu = Some(1400);
    }
    assert!(old.drops_as(&new) && !old.drops_as(&plan(&[small])));
    for step in 1.. {
        let (host, mut installed) = settled(&old);
        host.model().refuses = Some(Refuses::Only(step));
        let outcome = installed.enforce(new.clone());
        assert_closed(&host, &outcome);
        assert_eq!(installed.missing().unwrap(), Vec::<String>::new());
        let wanted = if outcome.is_ok() { &new } else { &old };
        let wanted = steering::routes(&installed.site, wanted);
        assert!(
            wanted
                .iter()
                .all(|route| host.model().routes.contains(route))
        );
        if outcome.is_ok() {
            assert_eq!(
                (step, host.model().steps),
                (3, 2),
                "one route of each network"
            );
            break;
        }
    }
}

#[test]
fn outer_addresses_change_without_a_search_for_what_both_plans_drop_and_are_put_back_if_refused() {
    let old = plan(&[("10.1.0.0/24", "10.2.0.0/24", Disposition::Protect)]);
    let pair = |peer: &str| ("192.0.2.1".parse().unwrap(), peer.parse().unwrap());
    let with = |peers: &[&str]| Plan {
        outer: peers.iter().map(|peer| pair(peer)).collect(),
        ..old.clone()
    };
    for (before, after, changes) in [
        (with(&["192.0.2.2"]), with(&["192.0.2.2", "192.0.2.3"]), 1),
        (with(&["192.0.2.2", "192.0.2.3"]), with(&["192.0.2.2"]), 1),
        (with(&["192.0.2.2"]), with(&["192.0.2.3"]), 2),
    ] {
        assert!(before.drops_as(&after));
        for step in 1.. {
            let (host, mut installed) = settled(&before);
            host.model().refuses = Some(Refuses::Only(step));
            let outcome = installed.enforce(after.clone());
            assert_closed(&host, &outcome);
            let wanted = if outcome.is_ok() { &after } else { &before };
            assert_in_force(&host, &mut installed, wanted);
            if outcome.is_ok() {
                assert_eq!(host.model().steps, 2 * changes, "each barrier");
                break;
            }
        }
    }
}

#[test]
fn a_change_refused_at_any_step_is_taken_back_and_lets_nothing_pass_meanwhile() {
    let mut refused = 0;
    for (old, new) in changes() {
        for step in 1.. {
            let (host, mut installed) = settled(&old);
            host.model().refuses = Some(Refuses::Only(step));
            let outcome = installed.enforce(new.clone());
            assert_closed(&host, &outcome);
            if outcome.is_ok() {
                assert_in_force(&host, &mut installed, &new);
                break;
            }
            refused += 1;
            assert_in_force(&host, &mut installed, &old);
        }
    }
    assert!(refused > 100, "only {refused} steps were refused");
}

#[test]
fn where_taking_back_is_refused_too_it_stays_closed_until_that_works() {
    for (old, new) in changes() {
        for step in 1.. {
            let (host, mut installed) = settled(&old);
            host.model().refuses = Some(Refuses::From(step));
            let outcome = installed.enforce(new.clone());
            if outcome.is_ok() {
                break;
            }
            installed.restore().ok();
            assert_closed(&host, &outcome);
            host.model().refuses = None;
            installed.restore().unwrap();
            assert_closed(&host, &outcome);
            assert_in_force(&host, &mut installed, &old);
        }
    }
}

#[test]
fn what_another_program_removes_is_named_and_restored_once() {
    let (_, protected) = changes().swap_remove(1);
    let (host, mut installed) = settled(&protected);
    assert_eq!(installed.missing().unwrap(), Vec::<String>::new());
    host.model().barriers[0] = None;
    host.model().rules.remove(2);
    host.model().routes.clear();
    // As when the kernel notifies of it.
    installed.compare_steering_next();
    let lost = installed.missing().unwrap();
    let words = [
        "first table deleted",
        "1 routing rules deleted",
        "routes of table 4500 deleted",
    ];
    assert!(
        words
            .iter()
            .all(|word| lost.iter().any(|lost| lost.contains(word))),
        "{lost:?}"
    );
    installed.restore().unwrap();
    assert_in_force(&host, &mut installed, &protected);
    let steps = host.model().steps;
    installed.restore().unwrap();
    assert_eq!(
        host.model().steps,
        steps,
        "where nothing is missing nothing is written"
    );
}

#[test]
fn one_barrier_that_cannot_come_back_keeps_the_rest_from_nothing() {
    let (_, protected) = changes().swap_remove(1);
    let (host, mut installed) = settled(&protected);
    host.model().barriers = [None, None];
    host.model().rules.clear();
    host.model().refuses = Some(Refuses::Only(1));
    installed.restore().unwrap_err();
    host.model().refuses = None;
    assert_eq!(host.model().barriers[1], Some(protected.clone()));
    assert_eq!(installed.missing().unwrap(), ["first table deleted"]);
}

#[test]
fn while_nothing_changes_rules_and_routes_are_compared_for_a_small_part_of_the_time() {
    let (_, protected) = changes().swap_remove(1);
    let (host, mut installed) = settled(&protected);
    let now = std::time::Instant::now();
    let asked = |installed: &mut Installed<Host>| {
        let before = host.model().asked;
        assert_eq!(installed.missing().unwrap(), Vec::<String>::new());
        host.model().asked - before
    };
    let [ms, second] = [1, 1000].map(std::time::Duration::from_millis);
    assert_eq!(asked(&mut installed), 1);
    installed.steering_rests_until = Some(now + 3600 * second);
    assert_eq!(asked(&mut installed), 0);
    installed.compare_steering_next();
    assert_eq!(asked(&mut installed), 1);
    // A comparison that took a second counts for ten, and one that took a millisecond for a fifth of a second.
    let pauses = [ms, second].map(super::steering::pause_after);
    assert_eq!(pauses, [200 * ms, 10 * second]);
}
