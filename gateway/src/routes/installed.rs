//! What of ours is in the kernel: brought to what a plan wants, in the order that is safe, and compared with it.
//!
//! ```text
//!   change    closed (what the old or the new plan drops) ──► routes ──► open (the new plan alone)
//!   refused   closed again ──► the old routes ──► the old plan alone; where that is refused too it stays closed
//!   watch     missing? ──► barriers ──► routes
//! ```

mod steering;

use super::Site;
use super::barrier::Barrier;
use super::barrier::device_filter::DeviceFilters;
use super::barrier::nftables::Nftables;
use super::barrier::xfrm::XfrmPolicies;
use super::combined_plan::combined_plan;
use super::firewall::ring_bypass::{self, Rings};
use super::firewall::tables::Firewall;
use super::netlink::Netlink;
use super::nftables::TableFamily;
use super::plan::{Family, Plan};
use super::tables::{Tables, ignore_absent};
use std::io;

/// What the drop rules behind packet rings are called where they are missing.
const RING_BYPASS: &str = "packet-ring bypass rules:";

/// The hand on the kernel's tables.
pub(crate) struct Installed<T = Netlink> {
    site: Site,
    tables: T,
    /// In the order in which they close; they open in the reverse order.
    barriers: Vec<Box<dyn Barrier>>,
    /// Barriers that this host does not offer, and why.
    absent: Vec<(&'static str, String)>,
    rings: Option<Rings>,
    /// Drop rules behind the rings.
    ring_bypass: Firewall,
    /// The plan in force.
    plan: Option<Plan>,
    /// What the barriers drop while a change that was refused has not been taken back whole.
    closed: Option<Plan>,
}

/// A barrier, as far as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BarrierState {
    /// Its name.
    pub name: &'static str,
    /// What is wrong with it; nothing where it holds.
    pub faults: Vec<String>,
    /// What of the plan it does not see even where it holds.
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

    /// The site, and that connection.
    pub(crate) fn site_and_netlink(&mut self) -> (&Site, &mut Netlink) {
        (&self.site, &mut self.tables)
    }

    /// Takes everything away: first what leads to the device, the drop rules last.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        (self.rings, self.plan, self.closed) = (None, None, None);
        for rule in self.tables.rules(self.site.first_preference())? {
            self.tables.delete_rule(&rule).or_else(ignore_absent)?;
        }
        let tun = self.tun_index()?;
        for route in self.tables.routes(self.site.table(), tun)? {
            self.tables
                .delete_route(self.site.table(), tun, &route)
                .or_else(ignore_absent)?;
        }
        for (_, index) in self.tables.links_called(&self.site.alias())? {
            self.tables.delete_link(index).or_else(ignore_absent)?;
        }
        // Where there can be no such table there is none to take away; if it may not be touched, neither may the next.
        let _ = self.ring_bypass.remove();
        for barrier in self.barriers.iter_mut().rev() {
            barrier.remove()?;
        }
        Ok(())
    }
}

impl<T: Tables> Installed<T> {
    /// With these tables and barriers; changes nothing yet.
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
        }
    }

    /// The site.
    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// One more barrier, behind those there are; or why the host does not offer it.
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

    /// Each barrier, and what the kernel lacks of it by now.
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

    /// Makes the kernel enforce `plan`. INVARIANT: at no moment, and whichever step is refused, can traffic pass in
    /// clear that the plan in force drops, nor, once this has succeeded, what `plan` drops.
    pub(crate) fn enforce(&mut self, plan: &Plan) -> io::Result<()> {
        if self.closed.is_none() && self.plan.as_ref() == Some(plan) {
            return Ok(());
        }
        let closed = match &self.plan {
            Some(old) => combined_plan(old, plan),
            None => plan.clone(),
        };
        if let Err(error) = self.change(&closed, plan) {
            self.closed = Some(closed);
            // What cannot be taken back now is tried again by the watch; until then it is closed.
            let _ = self.settle();
            return Err(error);
        }
        self.plan = Some(plan.clone());
        self.closed = None;
        Ok(())
    }

    fn change(&mut self, closed: &Plan, plan: &Plan) -> io::Result<()> {
        self.close(closed)?;
        self.lead(plan)?;
        self.open(plan)
    }

    /// Back to the plan in force, after a change that was refused. Before the first plan there is nothing to go back
    /// to: closed it stays.
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

    /// A barrier that stands in for those before it is told whether these leave gaps.
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

    /// "Unreachable" stands before a rule leads there, and the TUN device's routes come last.
    fn lead(&mut self, plan: &Plan) -> io::Result<()> {
        self.put_routes(plan, false)?;
        self.put_rules(plan)?;
        self.put_routes(plan, true)?;
        self.drop_routes(plan)
    }

    /// Puts up the barriers of `plan` alone: nothing leads into a tunnel yet.
    pub(crate) fn arm(&mut self, plan: &Plan) -> io::Result<()> {
        self.close(plan)
    }

    /// Packets in clear that barriers have dropped, by name, where they count themselves.
    pub(crate) fn dropped(&mut self) -> Vec<(&'static str, u64)> {
        let barriers = self.barriers.iter_mut();
        barriers.filter_map(|barrier| barrier.dropped()).collect()
    }

    /// Covers new devices, which are no loss.
    pub(crate) fn reach_new(&mut self) -> io::Result<()> {
        for number in 0..self.barriers.len() {
            self.say_whether_needed(number);
            self.barriers[number].reach_new()?;
        }
        Ok(())
    }

    /// What keeps each barrier from holding that no restoring mends.
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

    /// What the kernel has lost of the plan in force, in plain words.
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
        // Where something is known to be missing, that comes first.
        match failed.filter(|_| words.is_empty()) {
            Some(error) => Err(error),
            None => Ok(words),
        }
    }

    /// Whether nothing at all keeps protected traffic from passing in clear.
    pub(crate) fn is_open(&mut self) -> bool {
        let holds = |barrier: &mut Box<dyn Barrier>| {
            let is_whole = !barrier.rests() && barrier.gaps().is_none();
            is_whole
                && barrier.missing().is_ok_and(|lost| lost.is_empty())
                && barrier.faults().is_empty()
        };
        self.plan.is_some() && !self.barriers.iter_mut().any(holds)
    }

    /// Whether the plan in force leads packets of this family into the tunnel.
    pub(crate) fn steers(&self, family: Family) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.steers(family))
    }

    /// Puts back what is missing of the plan in force, the barriers first. What is refused keeps nothing else from
    /// being put back; the first refusal is the answer.
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

    /// The table behind the rings, for tests of what others do to it.
    #[cfg(test)]
    pub(super) fn ring_bypass(&mut self) -> &mut Firewall {
        &mut self.ring_bypass
    }

    /// Puts barriers back, and nothing else.
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

    /// Keeps from the kernel what packet rings take; also ends what an earlier gateway's rings left.
    pub(crate) fn install_ring_bypass(&mut self, rings: &Rings) -> io::Result<()> {
        if self.rings.as_ref() == Some(rings) {
            return Ok(());
        }
        // Told once: a kernel that cannot is not asked again for the same.
        self.rings = Some(rings.clone());
        match ring_bypass::ruleset(&self.site, rings) {
            Some(ruleset) => self.ring_bypass.apply(&ruleset),
            // Where there can be no such table nothing was left either.
            None => self.ring_bypass.remove().or(Ok(())),
        }
    }

    fn tun_index(&mut self) -> io::Result<Option<u32>> {
        match self.site.tun() {
            Some(tun) => self.tables.device(tun),
            None => Ok(None),
        }
    }

    /// Whether rules of ours stand here, from this or an earlier run.
    pub(crate) fn is_present(&mut self) -> io::Result<bool> {
        Ok(!self.tables.rules(self.site.first_preference())?.is_empty())
    }
}

#[cfg(test)]
mod tests;
