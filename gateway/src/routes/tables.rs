//! An interface to the kernel's rules and routes, which tests implement with a model that can fail at any step.

use super::netlink::Netlink;
use super::steering::{Route, RoutingRule};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The devices into which routes may lead: name and index.
pub(crate) type Exits = BTreeMap<Arc<str>, u32>;

/// Reads and writes the gateway's rules and routes.
pub(crate) trait Tables {
    /// The host's devices.
    fn exits(&mut self) -> io::Result<Exits>;
    /// The gateway's rules in the block of preferences that begins at `first`.
    fn rules(&mut self, first: u32) -> io::Result<Vec<RoutingRule>>;
    /// Adds a rule.
    fn add_rule(&mut self, rule: &RoutingRule) -> io::Result<()>;
    /// Deletes a rule.
    fn delete_rule(&mut self, rule: &RoutingRule) -> io::Result<()>;
    /// The gateway's routes in a table.
    fn routes(&mut self, table: u32, exits: &Exits) -> io::Result<Vec<Route>>;
    /// Adds a route to a table, or replaces the one with this destination and metric.
    fn put_route(&mut self, table: u32, exits: &Exits, route: &Route) -> io::Result<()>;
    /// Deletes a route of a table.
    fn delete_route(&mut self, table: u32, exits: &Exits, route: &Route) -> io::Result<()>;
}

impl Tables for Netlink {
    fn exits(&mut self) -> io::Result<Exits> {
        let devices = self.devices()?.into_iter();
        Ok(devices
            .map(|device| (Arc::from(device.name), device.index))
            .collect())
    }

    fn rules(&mut self, first: u32) -> io::Result<Vec<RoutingRule>> {
        Netlink::rules(self, first)
    }

    fn add_rule(&mut self, rule: &RoutingRule) -> io::Result<()> {
        Netlink::add_rule(self, rule)
    }

    fn delete_rule(&mut self, rule: &RoutingRule) -> io::Result<()> {
        Netlink::delete_rule(self, rule)
    }

    fn routes(&mut self, table: u32, exits: &Exits) -> io::Result<Vec<Route>> {
        Netlink::routes(self, table, exits)
    }

    fn put_route(&mut self, table: u32, exits: &Exits, route: &Route) -> io::Result<()> {
        Netlink::put_route(self, table, exits, route)
    }

    fn delete_route(&mut self, table: u32, exits: &Exits, route: &Route) -> io::Result<()> {
        Netlink::delete_route(self, table, exits, route)
    }
}

/// Counts as success if another program has deleted the object already.
pub(crate) fn ignore_absent(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH | libc::ENODEV) => Ok(()),
        _ => Err(error),
    }
}
