//! Installs what a plan requires in the kernel, in a safe order, and compares the kernel with the plan.
//!
//! ```text
//!   change    closed (drop what the old or the new plan drops) ──► routes ──► open (the new plan alone)
//!   failure   closed again ──► the old routes ──► the old plan alone; if that fails too, it stays closed
//!   watch     missing? ──► barriers ──► routes
//! ```

mod same_drops;
mod steering;

use super::Site;
use super::barrier::Barrier;
use super::barrier::device_filter::DeviceFilters;
use super::barrier::nftables::Nftables;
use super::barrier::xfrm::XfrmPolicies;
use super::combined_plan::combined_plan;
use super::firewall::ring_bypass::{self, Rings};
use super::firewall::tables::Firewall;
use super::monitor::OwnPorts;
use super::netlink::Netlink;
use super::nftables::TableFamily;
use super::plan::{Family, Plan};
use super::tables::{Tables, ignore_absent};
use std::io;
use std::time::Instant;

/// How messages name the drop rules after packet rings.
const RING_BYPASS: &str = "packet-ring bypass rules:";

/// What the gateway has installed in the kernel.
pub(crate) struct Installed<T = Netlink> {
    site: Site,
    tables: T,
    /// In the order in which they are installed when closing; opening goes in the reverse order.
    barriers: Vec<Box<dyn Barrier>>,
    /// Barriers that this host does not offer, and why.
    absent: Vec<(&'static str, String)>,
    rings: Option<Rings>,
    /// Drop rules after the rings.
    ring_bypass: Firewall,
    /// The plan in force.
    plan: Option<Plan>,
    /// What the barriers drop while a failed change is not completely rolled back.
    closed: Option<Plan>,
    /// Until when rules and routes are not compared, if nothing was missing the last time and the kernel has notified
    /// of nothing since.
    steering_rests_until: Option<Instant>,
}

/// The state of a barrier in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BarrierState {
    /// Its name.
    pub name: &'static str,
    /// What is wrong with it; empty if it is fully in force.
    pub faults: Vec<String>,
    /// What of the plan it does not cover even while it is fully in force.
    pub gaps: Option<&'static str>,
}

impl Installed {
    /// For this site; changes nothing yet.
    pub(crate) fn new(site: Site) -> io::Result<Self> {
        let first: Box<dyn Barrier> = Box::new(Nftables::new(&site));
        let second = DeviceFilters::open(&site);
        let mut installed = Self::over(site, Netlink::open()?, vec![first]);
        installed.add_barrier(
            DeviceFilters::NAME,
            second.map(|second| Box::new(second) as Box<dyn Barrier>),
        );
        let third = XfrmPolicies::open(&installed.site)?;
        installed.barriers.push(Box::new(third));
        Ok(installed)
    }

    /// The connection to the kernel's tables.
    pub(crate) fn netlink(&mut self) -> &mut Netlink {
        &mut self.tables
    }

    /// The ports of the sockets by which it makes its changes.
    pub(crate) fn ports(&self) -> OwnPorts {
        let mut barriers = self.barriers.iter();
        OwnPorts {
            route: self.tables.port(),
            nftables: barriers.find_map(|barrier| barrier.nftables_port()),
        }
    }

    /// The site, and that connection.
    pub(crate) fn site_and_netlink(&mut self) -> (&Site, &mut Netlink) {
        (&self.site, &mut self.tables)
    }

    /// Removes everything: first the rules and routes that lead to the device, the drop rules last.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        (self.rings, self.plan, self.closed) = (None, None, None);
        self.steering_rests_until = None;
        for rule in self.tables.rules(self.site.first_preference())? {
            self.tables.delete_rule(&rule).or_else(ignore_absent)?;
        }
        let exits = self.tables.exits()?;
        for route in self.tables.routes(self.site.table(), &exits)? {
            self.tables
                .delete_route(self.site.table(), &exits, &route)
                .or_else(ignore_absent)?;
        }
        for (_, index) in self.tables.links_called(&self.site.alias())? {
            self.tables.delete_link(index).or_else(ignore_absent)?;
        }
        // An error is ignored: a kernel that does not support such a table has none, and missing permission is reported
        // for the barriers below.
        let _ = self.ring_bypass.remove();
        for barrier in self.barriers.iter_mut().rev() {
            barrier.remove()?;
        }
        Ok(())
    }
}

impl<T: Tables> Installed<T> {
    /// Uses these tables and barriers; changes nothing yet.
    pub(crate) fn over(site: Site, tables: T, barriers: Vec<Box<dyn Barrier>>) -> Self {
        Self {
            ring_bypass: Firewall::new(TableFamily::Netdev, site.firewall_table()),
            site,
            tables,
            barriers,
            absent: Vec::new(),
            rings: None,
            plan: None,
            closed: None,
            steering_rests_until: None,
        }
    }

    /// The site.
    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Appends a barrier, or records why the host does not support it.
    pub(crate) fn add_barrier(
        &mut self,
        name: &'static str,
        barrier: io::Result<Box<dyn Barrier>>,
    ) {
        match barrier {
            Ok(barrier) => self.barriers.push(barrier),
            Err(why) => self.absent.push((name, why.to_string())),
        }
    }

    /// Each barrier in use, with what is missing of it in the kernel, and those not available.
    pub(crate) fn barriers(&mut self) -> Vec<BarrierState> {
        let state = |barrier: &mut Box<dyn Barrier>| {
            let missing = barrier.missing();
            let mut faults =
                missing.unwrap_or_else(|error| vec![format!("cannot be checked: {error}")]);
            faults.extend(barrier.faults());
            BarrierState {
                name: barrier.name(),
                faults,
                gaps: barrier.gaps(),
            }
        };
        let barriers = self.barriers.iter_mut();
        let there = barriers.filter(|barrier| !barrier.rests()).map(state);
        let absent = self.absent.iter().map(|(name, why)| BarrierState {
            name,
            faults: vec![format!("not available on this host: {why}")],
            gaps: None,
        });
        there.chain(absent).collect()
    }

    /// Makes the kernel enforce `plan`. INVARIANT: at no moment, and whichever step fails, can traffic pass unencrypted
    /// that the plan in force drops, nor, once this has succeeded, what `plan` drops.
    pub(crate) fn enforce(&mut self, plan: Plan) -> io::Result<()> {
        self.compare_steering_next();
        let drops_as = |old: &Plan| self.closed.is_none() && old.drops_as(&plan);
        let closed = match &self.plan {
            // The same is dropped: an association came or went, and its MTU and outer addresses with it.
            Some(old) if drops_as(old) => return self.lead_otherwise(plan),
            Some(old) => combined_plan(old, &plan),
            None => plan.clone(),
        };
        if let Err(error) = self.change(&closed, &plan) {
            self.closed = Some(closed);
            // If the rollback fails, the watch repeats it; until then traffic of both plans is dropped.
            let _ = self.settle();
            return Err(error);
        }
        self.plan = Some(plan);
        self.closed = None;
        Ok(())
    }

    /// The plan in force.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    fn change(&mut self, closed: &Plan, plan: &Plan) -> io::Result<()> {
        self.close(closed)?;
        self.lead(plan)?;
        self.open(plan)
    }

    /// Rolls back to the plan in force after a failed change. Without a previous plan nothing is rolled back: the
    /// barriers stay closed.
    fn settle(&mut self) -> io::Result<()> {
        let (Some(closed), Some(plan)) = (self.closed.clone(), self.plan.clone()) else {
            return Ok(());
        };
        self.change(&closed, &plan)?;
        self.closed = None;
        Ok(())
    }

    fn close(&mut self, plan: &Plan) -> io::Result<()> {
        for number in 0..self.barriers.len() {
            self.say_whether_needed(number);
            self.barriers[number].install(plan)?;
        }
        Ok(())
    }

    /// Sets for one barrier whether the earlier ones leave gaps that it has to cover.
    fn say_whether_needed(&mut self, number: usize) {
        let (before, rest) = self.barriers.split_at_mut(number);
        let is_needed = !self.absent.is_empty()
            || before
                .iter_mut()
                .any(|barrier| !barrier.faults().is_empty());
        rest[0].stand_in(is_needed);
    }

    fn open(&mut self, plan: &Plan) -> io::Result<()> {
        let mut barriers = self.barriers.iter_mut().rev();
        barriers.try_for_each(|barrier| barrier.install(plan))
    }

    /// Installs rules and routes. "Unreachable" routes are added before a rule leads to the table, and routes to
    /// devices after it.
    fn lead(&mut self, plan: &Plan) -> io::Result<()> {
        self.put_routes(plan, false)?;
        self.put_rules(plan)?;
        self.put_routes(plan, true)?;
        self.drop_routes(plan)
    }

    /// Installs only the barriers of `plan`: nothing is routed into a tunnel yet.
    pub(crate) fn arm(&mut self, plan: &Plan) -> io::Result<()> {
        self.close(plan)
    }

    /// Unencrypted packets that barriers have dropped, by counter, for barriers with their own counter.
    pub(crate) fn dropped(&mut self) -> Vec<(&'static str, u64)> {
        let barriers = self.barriers.iter_mut();
        barriers.filter_map(|barrier| barrier.dropped()).collect()
    }

    /// Extends the barriers to new devices.
    pub(crate) fn reach_new(&mut self) -> io::Result<()> {
        for number in 0..self.barriers.len() {
            self.say_whether_needed(number);
            self.barriers[number].reach_new()?;
        }
        Ok(())
    }

    /// Faults of each barrier that [`Self::restore`] cannot repair.
    pub(crate) fn faults(&mut self) -> Vec<String> {
        let there = self.barriers.iter_mut().flat_map(|barrier| {
            let name = barrier.name();
            let faults = barrier.faults().into_iter();
            faults.map(move |why| format!("{name}: {why}"))
        });
        let absent = self.absent.iter();
        let absent = absent.map(|(name, why)| format!("{name}: not available on this host: {why}"));
        there.chain(absent).collect()
    }

    /// Describes what of the plan in force is missing in the kernel.
    pub(crate) fn missing(&mut self) -> io::Result<Vec<String>> {
        let (mut words, mut failed) = (Vec::new(), None);
        for barrier in &mut self.barriers {
            match barrier.missing() {
                Ok(lost) => {
                    words.extend(lost.iter().map(|lost| format!("{} {lost}", barrier.name())))
                }
                Err(error) => failed = Some(error),
            }
        }
        match self.missing_steering() {
            Ok(lost) => words.extend(lost),
            Err(error) => failed = Some(error),
        }
        match self.ring_bypass.missing() {
            Ok(lost) => words.extend(lost.iter().map(|lost| format!("{RING_BYPASS} {lost}"))),
            Err(error) => failed = Some(error),
        }
        if self.closed.is_some() {
            words.push("a refused change is not yet rolled back".to_owned());
        }
        // What is known to be missing takes precedence over an error.
        match failed.filter(|_| words.is_empty()) {
            Some(error) => Err(error),
            None => Ok(words),
        }
    }

    /// Whether no barrier is fully in force, so that protected traffic could pass unencrypted.
    pub(crate) fn is_open(&mut self) -> bool {
        let holds = |barrier: &mut Box<dyn Barrier>| {
            let is_whole = !barrier.rests() && barrier.gaps().is_none();
            is_whole
                && barrier.missing().is_ok_and(|lost| lost.is_empty())
                && barrier.faults().is_empty()
        };
        self.plan.is_some() && !self.barriers.iter_mut().any(holds)
    }

    /// Whether the plan in force routes packets of this family into the tunnel.
    pub(crate) fn steers(&self, family: Family) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.steers(family))
    }

    /// Installs again what is missing of the plan in force, the barriers first. A failure does not stop the remaining
    /// steps; the first error is returned.
    pub(crate) fn restore(&mut self) -> io::Result<()> {
        if self.closed.is_some() {
            return self.settle();
        }
        let outcome = self.restore_barriers().and(self.restore_behind_rings());
        let Some(plan) = self.plan.clone() else {
            return outcome;
        };
        outcome.and(self.lead(&plan))
    }

    fn restore_behind_rings(&mut self) -> io::Result<()> {
        if self.ring_bypass.missing().is_ok_and(|lost| lost.is_empty()) {
            return Ok(());
        }
        match self.ring_bypass.applied().cloned() {
            Some(ruleset) => self.ring_bypass.apply(&ruleset),
            None => Ok(()),
        }
    }

    /// The table of the drop rules after the rings, for tests in which other programs change it.
    #[cfg(test)]
    pub(super) fn ring_bypass(&mut self) -> &mut Firewall {
        &mut self.ring_bypass
    }

    /// Installs again what barriers miss, and nothing else.
    pub(crate) fn restore_barriers(&mut self) -> io::Result<()> {
        let mut outcome = Ok(());
        for barrier in &mut self.barriers {
            let restored = match barrier.missing() {
                Ok(lost) if lost.is_empty() => Ok(()),
                _ => barrier.restore(),
            };
            outcome = outcome.and(restored);
        }
        outcome
    }

    /// Installs rules by which the kernel drops what packet rings take; without rings, removes an earlier gateway's.
    pub(crate) fn install_ring_bypass(&mut self, rings: &Rings) -> io::Result<()> {
        if self.rings.as_ref() == Some(rings) {
            return Ok(());
        }
        let ruleset = ring_bypass::ruleset(&self.site, rings);
        if ruleset.is_none() {
            let removed = self.ring_bypass.remove();
            // Native ESP that such a rule drops does not reach the kernel's IPsec. A kernel without netdev tables has
            // none left from an earlier gateway.
            if self.ring_bypass.applied().is_some() {
                return removed;
            }
        }
        // Recorded before the attempt, which is not repeated for the same rings if the kernel does not support it.
        self.rings = Some(rings.clone());
        ruleset.map_or(Ok(()), |ruleset| self.ring_bypass.apply(&ruleset))
    }

    /// Whether routing rules of this gateway are present, from this or an earlier run.
    pub(crate) fn is_present(&mut self) -> io::Result<bool> {
        Ok(!self.tables.rules(self.site.first_preference())?.is_empty())
    }
}

#[cfg(test)]
mod tests;
