//! The second barrier: a filter on every device but the gateway's own ([`device_filter`]), in both directions. It
//! covers what nftables does not: it survives `nft flush ruleset`, and sees what packet sockets and raw sockets with
//! their own IP headers (IP_HDRINCL) send.
//!
//! ```text
//!   Plan ──► programs ──► each device: clsact ──► preference 7, handle: owner · gateway · added clsact? · number
//! ```
//!
//! On a change the new filters are added on every device, then the old ones are deleted; in between both drop. A new
//! device gets its filters at once; a removed one loses them with it, and neither is reported as missing. Another
//! program's `clsact` and filters stay as they are: a bit of the handle records whether the gateway has added the
//! `clsact`, and only then is it deleted with the last filter.
//!
//! [`device_filter`]: crate::routes::device_filter

mod faults;
mod filtered_device;
mod keeper;
mod notifications;
#[cfg(test)]
mod tests;

use super::Barrier;
use crate::memory::without_keys;
use crate::routes::Site;
use crate::routes::device_filter::compiler::programs;
use crate::routes::device_filter::{Target, TooMany, in_and_fwd_differ};
use crate::routes::netlink::traffic_control::FilterId;
use crate::routes::plan::{Entry, Plan, Planes};
use faults::Refusal;
use filtered_device::{FilteredDevice, filtered_device};
use keeper::{HOOKS, Keeper, Programs};
use notifications::DeviceNotifications;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

/// Name of the counter of dropped packets.
pub(crate) const COUNTER: &str = "clear_at_devices";

/// Filters of one gateway.
pub(crate) struct DeviceFilters {
    site: Site,
    keeper: Keeper,
    news: DeviceNotifications,
    /// The plan in force; none if none has been installed.
    force: Option<Force>,
    /// Whether the kernel may have something else than that, because a change failed half-way.
    is_torn: bool,
    /// Names of the devices that have the filters of the plan in force, by index.
    reached: BTreeMap<u32, String>,
    /// Names of the devices that do not have them, and why.
    unreached: BTreeMap<u32, (String, String)>,
}

/// A plan, and the programs it is compiled to.
struct Force {
    plan: Plan,
    compiled: HashMap<Target, Result<Programs, TooMany>>,
}

impl Force {
    fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.clone(),
            compiled: HashMap::new(),
        }
    }

    /// The programs that both directions of a device should have.
    fn wanted(&mut self, site: &Site, place: &FilteredDevice) -> Result<[Programs; 2], TooMany> {
        let [ingress, egress] = HOOKS.map(|hook| Target {
            hook,
            link: place.link,
            mark: site.outside_mark(),
            delivers: place.delivers,
            is_bridged: place.is_bridged,
        });
        Ok([self.programs(ingress)?, self.programs(egress)?])
    }

    fn programs(&mut self, target: Target) -> Result<Programs, TooMany> {
        let compiled = self.compiled.entry(target);
        compiled
            .or_insert_with(|| programs(&self.plan, target).map(Arc::new))
            .clone()
    }
}

impl DeviceFilters {
    /// Its name in status and events.
    pub(crate) const NAME: &'static str = "device filters";

    /// Nothing is installed yet.
    pub(crate) fn open(site: &Site) -> io::Result<Self> {
        Ok(Self {
            site: site.clone(),
            keeper: Keeper::open(site)?,
            news: DeviceNotifications::open()?,
            force: None,
            is_torn: false,
            reached: BTreeMap::new(),
            unreached: BTreeMap::new(),
        })
    }

    /// Devices that should have filters.
    fn places(&mut self, planes: Planes) -> io::Result<Vec<FilteredDevice>> {
        for index in self.news.take_gone() {
            self.keeper.forget(index);
            self.reached.remove(&index);
            self.unreached.remove(&index);
        }
        let devices = self.keeper.devices()?;
        let places = devices
            .iter()
            .map(|device| filtered_device(&self.site, planes, device));
        Ok(places.flatten().collect())
    }

    /// Makes every device have the programs of `force` and no other filter of this gateway.
    fn put(&mut self, force: &mut Force) -> io::Result<()> {
        let places = self.places(force.plan.planes)?;
        let mut added = Vec::new();
        let outcomes = self.add_all(&places, force, &mut added);
        let outcomes = outcomes.inspect_err(|_| self.keeper.undo(&added))?;
        self.settle(places, outcomes, force)
    }

    /// Adds again what is missing of `force`. Where a device refuses for the moment, the other ones have their filters
    /// nevertheless; the attempt is repeated.
    fn put_back(&mut self, force: &mut Force) -> io::Result<()> {
        let places = self.places(force.plan.planes)?;
        let there = self.keeper.disciplines()?;
        let (mut outcomes, mut failed) = (Vec::new(), None);
        for place in &places {
            match self.add_to(place, &there, force, &mut Vec::new()) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => self.settle(places, outcomes, force),
        }
    }

    /// Once the filters are there: deletes the others, and notes which devices have them.
    fn settle(
        &mut self,
        places: Vec<FilteredDevice>,
        outcomes: Vec<Result<(), Refusal>>,
        force: &mut Force,
    ) -> io::Result<()> {
        self.is_torn = true;
        self.clear_others(&places, &outcomes, force)?;
        (self.reached, self.unreached) = (BTreeMap::new(), BTreeMap::new());
        for (place, outcome) in places.into_iter().zip(outcomes) {
            self.note(place, outcome);
        }
        self.is_torn = false;
        Ok(())
    }

    fn add_all(
        &mut self,
        places: &[FilteredDevice],
        force: &mut Force,
        added: &mut Vec<FilterId>,
    ) -> io::Result<Vec<Result<(), Refusal>>> {
        let there = self.keeper.disciplines()?;
        let mut outcomes = Vec::new();
        for place in places {
            outcomes.push(self.add_to(place, &there, force, added)?);
        }
        Ok(outcomes)
    }

    fn add_to(
        &mut self,
        place: &FilteredDevice,
        there: &BTreeMap<u32, String>,
        force: &mut Force,
        added: &mut Vec<FilterId>,
    ) -> io::Result<Result<(), Refusal>> {
        let there = there.get(&place.index).map(String::as_str);
        match force.wanted(&self.site, place) {
            Ok(wanted) => self.keeper.add(place, there, &wanted, added),
            Err(too_many) => Ok(Err(Refusal::Lasting(too_many.to_string()))),
        }
    }

    /// Deletes this gateway's filters that are not wanted, also on devices that should have none.
    fn clear_others(
        &mut self,
        places: &[FilteredDevice],
        outcomes: &[Result<(), Refusal>],
        force: &mut Force,
    ) -> io::Result<()> {
        let kept = places.iter().zip(outcomes);
        let kept =
            kept.filter_map(|(place, outcome)| outcome.is_ok().then_some((place.index, place)));
        let kept: BTreeMap<u32, &FilteredDevice> = kept.collect();
        for (device, kind) in self.keeper.disciplines()? {
            if kind == "clsact" {
                let wanted = kept
                    .get(&device)
                    .map(|place| force.wanted(&self.site, place));
                let wanted = wanted.and_then(Result::ok);
                self.keeper.clear(device, wanted.as_ref())?;
            }
        }
        Ok(())
    }

    fn note(&mut self, place: FilteredDevice, outcome: Result<(), Refusal>) {
        self.unreached.remove(&place.index);
        match outcome {
            Ok(()) => drop(self.reached.insert(place.index, place.name)),
            Err(Refusal::Gone) => {}
            Err(Refusal::Lasting(why)) => {
                self.unreached.insert(place.index, (place.name, why));
            }
        }
    }

    /// Deletes filters of devices that should have none any more: a device of the gateway itself that had another name
    /// for a moment would drop the tunnel's packets.
    fn leave(&mut self, places: &[FilteredDevice]) -> io::Result<()> {
        let is_place = |index: &u32| places.iter().any(|place| place.index == *index);
        let left: Vec<_> = self
            .reached
            .keys()
            .filter(|index| !is_place(index))
            .copied()
            .collect();
        for index in left {
            self.keeper.clear(index, None)?;
            self.reached.remove(&index);
        }
        self.unreached.retain(|index, _| is_place(index));
        Ok(())
    }

    fn reach(&mut self, force: &mut Force) -> io::Result<()> {
        let mut places = self.places(force.plan.planes)?;
        self.leave(&places)?;
        places.retain(|place| !self.reached.contains_key(&place.index));
        let outcomes = if places.is_empty() {
            Vec::new()
        } else {
            // If a later device fails, the filters already added stay; the attempt is repeated.
            self.add_all(&places, force, &mut Vec::new())?
        };
        for (place, outcome) in places.into_iter().zip(outcomes) {
            self.note(place, outcome);
        }
        Ok(())
    }

    fn lost(&mut self, force: &mut Force) -> io::Result<Vec<String>> {
        let places = self.places(force.plan.planes)?;
        let there = self.keeper.disciplines()?;
        let mut lost = Vec::new();
        for place in places {
            if !self.reached.contains_key(&place.index) {
                continue;
            }
            let there = there.get(&place.index).map(String::as_str);
            if let Ok(wanted) = force.wanted(&self.site, &place)
                && let Some(words) = self.keeper.lost(&place, there, &wanted)?
            {
                lost.push((place.index, words));
            }
        }
        if !lost.is_empty() {
            // A device that was removed since it was listed had no filters any more when they were read.
            let devices = self.keeper.devices()?;
            lost.retain(|(index, _)| devices.iter().any(|device| device.index == *index));
        }
        Ok(lost.into_iter().map(|(_, words)| words).collect())
    }
}

impl Barrier for DeviceFilters {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn install(&mut self, plan: &Plan) -> io::Result<()> {
        let is_the_same = self.force.as_ref().is_some_and(|force| force.plan == *plan);
        if is_the_same && !self.is_torn {
            return Ok(());
        }
        // Programs of thousands of policies contain no keys, so their memory need not be locked.
        without_keys(|| {
            let mut force = Force::new(plan);
            self.put(&mut force)?;
            self.force = Some(force);
            Ok(())
        })
    }

    fn install_outer(&mut self, plan: &Plan) -> io::Result<()> {
        if let Some(force) = self.force.as_mut().filter(|_| !self.is_torn) {
            let mut changed = force.plan.outer.symmetric_difference(&plan.outer);
            if !changed.any(|pair| plan.drops_between(*pair)) {
                force.plan.outer.clone_from(&plan.outer);
                return Ok(());
            }
        }
        self.install(plan)
    }

    fn missing(&mut self) -> io::Result<Vec<String>> {
        let Some(mut force) = self.force.take_if(|_| self.news.take_due()) else {
            return Ok(Vec::new());
        };
        let lost = without_keys(|| self.lost(&mut force));
        self.force = Some(force);
        if !lost.as_ref().is_ok_and(Vec::is_empty) {
            self.news.compare_again();
        }
        lost
    }

    fn restore(&mut self) -> io::Result<()> {
        let Some(mut force) = self.force.take() else {
            return Ok(());
        };
        let outcome = without_keys(|| self.put_back(&mut force));
        self.force = Some(force);
        outcome
    }

    fn reach_new(&mut self) -> io::Result<()> {
        let Some(mut force) = self.force.take_if(|_| self.news.take_unseen()) else {
            return Ok(());
        };
        let outcome = without_keys(|| self.reach(&mut force));
        self.force = Some(force);
        if outcome.is_err() {
            self.news.still_unseen();
        }
        outcome
    }

    fn faults(&mut self) -> Vec<String> {
        faults::described(self.unreached.values())
    }

    fn gaps(&self) -> Option<&'static str> {
        let plan = &self.force.as_ref()?.plan;
        if !plan.arriving.iter().chain(&plan.passing).any(Entry::drops) {
            None
        } else if plan.planes.kernel_opens() {
            Some("not for what arrives, which nftables and the kernel's XFRM policies judge")
        } else if in_and_fwd_differ(plan) {
            Some("not for what arrives and only one of `in` and `fwd` policies refuses")
        } else {
            None
        }
    }

    fn dropped(&mut self) -> Option<(&'static str, u64)> {
        let dropped = self.keeper.dropped().ok()?;
        Some((COUNTER, dropped))
    }

    fn remove(&mut self) -> io::Result<()> {
        self.force = None;
        (self.reached, self.unreached) = (BTreeMap::new(), BTreeMap::new());
        let mut outcome = Ok(());
        for (device, kind) in self.keeper.disciplines()? {
            if kind == "clsact" {
                outcome = outcome.and(self.keeper.clear(device, None));
            }
        }
        outcome
    }
}
