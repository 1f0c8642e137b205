//! Adds, compares and deletes the rules and routes that lead protected traffic into the tunnel, or make it unreachable.

use super::Installed;
use crate::routes::netlink::is_family_absent;
use crate::routes::plan::Plan;
use crate::routes::steering;
use crate::routes::tables::{Tables, ignore_absent};
use std::collections::HashSet;
use std::hash::Hash;
use std::io;
use std::time::{Duration, Instant};

/// While the kernel notifies of nothing, comparisons of rules and routes are at least so many times as far apart as one
/// takes: with thousands of peers it reads as many routes.
const MIN_INTERVAL_PER_COMPARISON: u32 = 200;

/// However long a comparison takes, the next one begins after this time.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// The time from the begin of a comparison that took so long to the next one.
pub(super) fn pause_after(took: Duration) -> Duration {
    (took * MIN_INTERVAL_PER_COMPARISON).min(MAX_INTERVAL)
}

impl<T: Tables> Installed<T> {
    /// Has the next [`Installed::missing`] compare rules and routes with the kernel's, because something has changed
    /// there.
    pub(crate) fn compare_steering_next(&mut self) {
        self.steering_rests_until = None;
    }

    pub(super) fn missing_steering(&mut self) -> io::Result<Vec<String>> {
        let began = Instant::now();
        if self.steering_rests_until.is_some_and(|end| began < end) {
            return Ok(Vec::new());
        }
        let Some(plan) = self.plan.take() else {
            return Ok(Vec::new());
        };
        let lost = self.lost_steering(&plan);
        self.plan = Some(plan);
        let is_complete = lost.as_ref().is_ok_and(Vec::is_empty);
        self.steering_rests_until = is_complete.then(|| began + pause_after(began.elapsed()));
        lost
    }

    fn lost_steering(&mut self, plan: &Plan) -> io::Result<Vec<String>> {
        let rules = self.tables.rules(self.site.first_preference())?;
        let lost_rules = lacking(&steering::rules(&self.site, plan), &rules).count();
        let exits = self.tables.exits()?;
        let routes = self.tables.routes(self.site.table(), &exits)?;
        let lost_routes = lacking(&steering::routes(&self.site, plan), &routes).count();
        let table = self.site.table();
        let told = [
            (lost_rules, "routing rules deleted".to_owned()),
            (lost_routes, format!("routes of table {table} deleted")),
        ];
        let told = told.into_iter().filter(|(count, _)| *count > 0);
        Ok(told
            .map(|(count, what)| format!("{count} {what}"))
            .collect())
    }

    pub(super) fn put_rules(&mut self, plan: &Plan) -> io::Result<()> {
        let wanted = steering::rules(&self.site, plan);
        let present = self.tables.rules(self.site.first_preference())?;
        // In reverse order, so that the target of a `goto` exists before the rule that refers to it.
        for rule in lacking(&wanted, &present).rev() {
            self.tables.add_rule(rule).map_err(explain)?;
        }
        for rule in lacking(&present, &wanted) {
            self.tables.delete_rule(rule).or_else(ignore_absent)?;
        }
        Ok(())
    }

    pub(super) fn put_routes(&mut self, plan: &Plan, by_device: bool) -> io::Result<()> {
        let exits = self.tables.exits()?;
        let present = self.tables.routes(self.site.table(), &exits)?;
        let wanted = steering::routes(&self.site, plan);
        for route in lacking(&wanted, &present).filter(|route| {
            let device = route.device.as_ref();
            // A device that another program has deleted is made again first.
            device.is_some() == by_device && device.is_none_or(|name| exits.contains_key(name))
        }) {
            self.tables
                .put_route(self.site.table(), &exits, route)
                .map_err(explain)?;
        }
        Ok(())
    }

    /// Puts the routes of a plan that drops the same as the one in force and leads some of it otherwise.
    pub(super) fn put_changed_routes(&mut self, plan: &Plan) -> io::Result<()> {
        let before = self.plan.as_ref();
        let changed = before.map(|before| steering::changed_routes(&self.site, before, plan));
        let changed = changed.unwrap_or_default();
        if changed.is_empty() {
            return Ok(());
        }
        let exits = self.tables.exits()?;
        let leads_somewhere = |route: &&steering::Route| {
            let device = route.device.as_ref();
            device.is_none_or(|name| exits.contains_key(name))
        };
        let mut changed = changed.iter().filter(leads_somewhere);
        changed
            .try_for_each(|route| self.tables.put_route(self.site.table(), &exits, route))
            .map_err(explain)
    }

    /// Deletes routes that the plan does not need any more, after the rules that led to them.
    pub(super) fn drop_routes(&mut self, plan: &Plan) -> io::Result<()> {
        let exits = self.tables.exits()?;
        let place = |route: &steering::Route| (route.destination, route.metric);
        let wanted: HashSet<_> = steering::routes(&self.site, plan)
            .iter()
            .map(place)
            .collect();
        for route in self.tables.routes(self.site.table(), &exits)? {
            if !wanted.contains(&place(&route)) {
                self.tables
                    .delete_route(self.site.table(), &exits, &route)
                    .or_else(ignore_absent)?;
            }
        }
        Ok(())
    }
}

/// The entries of `wanted` that are not among `present`, in order. There may be thousands of both.
fn lacking<'a, E: Eq + Hash>(
    wanted: &'a [E],
    present: &[E],
) -> impl DoubleEndedIterator<Item = &'a E> {
    let present: HashSet<_> = present.iter().collect();
    wanted.iter().filter(move |entry| !present.contains(entry))
}

fn explain(error: io::Error) -> io::Error {
    if is_family_absent(&error) {
        return io::Error::other(
            "a policy names IPv6 addresses, but IPv6 is off here (sysctl net.ipv6.conf.all.disable_ipv6)",
        );
    }
    if error.raw_os_error() == Some(libc::EPERM) {
        return io::Error::new(
            io::ErrorKind::PermissionDenied,
            "no permission to change routing rules: CAP_NET_ADMIN is needed, run as root",
        );
    }
    error
}
