//! The second barrier: a filter on every device that is not ours ([`device_filter`]), in both directions. It stands
//! where nftables does not: it outlives `nft flush ruleset`, and sees packet sockets and raw sockets with headers of
//! their own.
//!
//! ```text
//!   Plan ──► programs ──► each device: clsact ──► preference 7, handle: owner · gateway · who made clsact · number
//! ```
//!
//! Change: what is new is added on every device, then what is old is deleted; in between either drops. A device that
//! comes is reached at once; one that goes takes its filters along, and neither is a loss. Another program's `clsact`
//! and filters stay as they are: the handle remembers whether the place was made by us, and goes with the last filter
//! only then.
//!
//! [`device_filter`]: crate::routes::device_filter

mod faults;
mod filtered_device;
mod keeper;
mod notifications;

use super::Barrier;
use crate::memory::without_keys;
use crate::routes::Site;
use crate::routes::device_filter::compiler::programs;
use crate::routes::device_filter::{Target, TooMany};
use crate::routes::netlink::traffic_control::Spot;
use crate::routes::plan::Plan;
use faults::Refusal;
use filtered_device::{FilteredDevice, filtered_device};
use keeper::{HOOKS, Keeper, Programs};
use notifications::DeviceNotifications;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

/// What the count of dropped packets is called.
pub(crate) const COUNTER: &str = "clear_at_devices";

/// Filters of one gateway.
pub(crate) struct DeviceFilters {
    site: Site,
    keeper: Keeper,
    news: DeviceNotifications,
    /// The plan in force; nothing where none has been installed.
    force: Option<Force>,
    /// Whether the kernel may hold something else than that, because a change was refused half-way.
    is_torn: bool,
    /// Names of the devices that have the filters of the plan in force, by index.
    reached: BTreeMap<u32, String>,
    /// Names of those that have not, and why.
    unreached: BTreeMap<u32, (String, String)>,
}

/// A plan, and what it is compiled to.
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

    /// What both directions of a device are to have.
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
    /// What status and events call it.
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

    /// Devices that are to have filters.
    fn places(&mut self) -> io::Result<Vec<FilteredDevice>> {
        for index in self.news.take_gone() {
            self.keeper.forget(index);
            self.reached.remove(&index);
            self.unreached.remove(&index);
        }
        let devices = self.keeper.devices()?;
        let places = devices
            .iter()
            .map(|device| filtered_device(&self.site, device));
        Ok(places.flatten().collect())
    }

    /// Makes every device have the programs of `force` and nothing else of ours.
    fn put(&mut self, force: &mut Force) -> io::Result<()> {
        let places = self.places()?;
        let mut added = Vec::new();
        let outcomes = self.add_all(&places, force, &mut added);
        let outcomes = outcomes.inspect_err(|_| self.keeper.undo(&added))?;
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
        added: &mut Vec<Spot>,
    ) -> io::Result<Vec<Result<(), Refusal>>> {
        let there = self.keeper.disciplines()?;
        let mut outcomes = Vec::new();
        for place in places {
            let there = there.get(&place.index).map(String::as_str);
            outcomes.push(match force.wanted(&self.site, place) {
                Ok(wanted) => self.keeper.add(place, there, &wanted, added)?,
                Err(too_many) => Err(Refusal::Lasting(too_many.to_string())),
            });
        }
        Ok(outcomes)
    }

    /// Deletes what is of ours and not wanted, also where no filter of ours belongs.
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

    /// Takes filters off devices that are no place for them any more: one of the gateway's own that bore another name
    /// for a moment would drop what the tunnel carries.
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
        let mut places = self.places()?;
        self.leave(&places)?;
        places.retain(|place| !self.reached.contains_key(&place.index));
        let outcomes = if places.is_empty() {
            Vec::new()
        } else {
            // What was added stays if the next device refuses: that one is tried again.
            self.add_all(&places, force, &mut Vec::new())?
        };
        for (place, outcome) in places.into_iter().zip(outcomes) {
            self.note(place, outcome);
        }
        Ok(())
    }

    fn lost(&mut self, force: &mut Force) -> io::Result<Vec<String>> {
        let places = self.places()?;
        let there = self.keeper.disciplines()?;
        let mut words = Vec::new();
        for place in places {
            if !self.reached.contains_key(&place.index) {
                continue;
            }
            let there = there.get(&place.index).map(String::as_str);
            if let Ok(wanted) = force.wanted(&self.site, &place) {
                words.extend(self.keeper.lost(&place, there, &wanted)?);
            }
        }
        Ok(words)
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
        // Programs of thousands of policies hold no key, and need no memory that is locked.
        without_keys(|| {
            let mut force = Force::new(plan);
            self.put(&mut force)?;
            self.force = Some(force);
            Ok(())
        })
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
        let outcome = without_keys(|| self.put(&mut force));
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
        faults::told(self.unreached.values())
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
