//! Adds, compares and deletes the rules and routes that lead protected traffic into the tunnel, or make it unreachable.

use super::Installed;
use crate::routes::netlink::is_family_absent;
use crate::routes::plan::Plan;
use crate::routes::steering;
use crate::routes::tables::{Tables, ignore_absent};
use std::collections::HashSet;
use std::hash::Hash;
use std::io;

impl<T: Tables> Installed<T> {
    pub(super) fn missing_steering(&mut self) -> io::Result<Vec<String>> {
        let Some(plan) = self.plan.take() else {
            return Ok(Vec::new());
        };
        let lost = self.lost_steering(&plan);
        self.plan = Some(plan);
        lost
    }

    fn lost_steering(&mut self, plan: &Plan) -> io::Result<Vec<String>> {
        let rules = self.tables.rules(self.site.first_preference())?;
        let lost_rules = lacking(&steering::rules(&self.site, plan), &rules).count();
        let tun = self.tun_index()?;
        let routes = self.tables.routes(self.site.table(), tun)?;
        let lost_routes = lacking(&steering::routes(plan), &routes).count();
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

    pub(super) fn put_routes(&mut self, plan: &Plan, by_tun: bool) -> io::Result<()> {
        let tun = self.tun_index()?;
        if by_tun && tun.is_none() {
            return Ok(());
        }
        let present = self.tables.routes(self.site.table(), tun)?;
        let wanted = steering::routes(plan);
        for route in lacking(&wanted, &present).filter(|route| route.by_tun == by_tun) {
            self.tables
                .put_route(self.site.table(), tun, route)
                .map_err(explain)?;
        }
        Ok(())
    }

    /// Deletes routes that the plan does not need any more, after the rules that led to them.
    pub(super) fn drop_routes(&mut self, plan: &Plan) -> io::Result<()> {
        let tun = self.tun_index()?;
        let place = |route: &steering::Route| (route.destination, route.metric);
        let wanted: HashSet<_> = steering::routes(plan).iter().map(place).collect();
        for route in self.tables.routes(self.site.table(), tun)? {
            if !wanted.contains(&place(&route)) {
                self.tables
                    .delete_route(self.site.table(), tun, &route)
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
