//! What of ours is in the kernel, brought to what a plan wants, in the order that is safe.

use super::barrier::Barrier;
use super::barrier::nftables::Nftables;
use super::firewall::rings::{self, Rings};
use super::firewall::tables::Firewall;
use super::netlink::{Netlink, is_family_absent};
use super::nftables::TableFamily;
use super::plan::Plan;
use super::{Site, steering};
use std::io;

/// The hand on the kernel's tables.
pub struct Installed {
    site: Site,
    netlink: Netlink,
    /// In the order in which they close; they open in the reverse order.
    barriers: Vec<Box<dyn Barrier>>,
    rings: Option<Rings>,
    /// Drop rules behind the rings.
    behind_rings: Firewall,
}

impl Installed {
    /// For this site; changes nothing yet.
    pub fn new(site: Site) -> io::Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            barriers: vec![Box::new(Nftables::new(&site))],
            rings: None,
            behind_rings: Firewall::new(TableFamily::Netdev, site.firewall_table()),
            site,
        })
    }

    /// The site.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The connection to the kernel's tables.
    pub fn netlink(&mut self) -> &mut Netlink {
        &mut self.netlink
    }

    /// Both.
    pub fn site_and_netlink(&mut self) -> (&Site, &mut Netlink) {
        (&self.site, &mut self.netlink)
    }

    /// Makes the kernel enforce `plan`. INVARIANT: at no moment in between can protected traffic pass in clear: the
    /// drop rules come first and change in one transaction, and "unreachable" stands before a rule leads there.
    pub fn enforce(&mut self, plan: &Plan) -> io::Result<()> {
        for barrier in &mut self.barriers {
            barrier.install(plan)?;
        }
        self.put_routes(plan, false)?;
        self.put_rules(plan)?;
        self.put_routes(plan, true)?;
        self.drop_routes(plan)
    }

    /// Puts up the barriers of `plan` alone: nothing leads into a tunnel yet.
    pub fn arm(&mut self, plan: &Plan) -> io::Result<()> {
        let mut barriers = self.barriers.iter_mut();
        barriers.try_for_each(|barrier| barrier.install(plan))
    }

    /// Keeps from the kernel what packet rings take; also ends what an earlier gateway's rings left.
    pub fn leave_to_rings(&mut self, rings: &Rings) -> io::Result<()> {
        if self.rings.as_ref() == Some(rings) {
            return Ok(());
        }
        // Told once: a kernel that cannot is not asked again for the same.
        self.rings = Some(rings.clone());
        match rings::ruleset(&self.site, rings) {
            Some(ruleset) => self.behind_rings.apply(&ruleset),
            // Where there can be no such table nothing was left either.
            None => self.behind_rings.remove().or(Ok(())),
        }
    }

    /// Takes everything away: first what leads to the device, the drop rules last.
    pub fn remove(&mut self) -> io::Result<()> {
        self.rings = None;
        for rule in self.netlink.rules(self.site.first_preference())? {
            self.netlink.delete_rule(&rule).or_else(gone)?;
        }
        let tun = self.tun_index()?;
        for route in self.netlink.routes(self.site.table(), tun)? {
            self.netlink
                .delete_route(self.site.table(), tun, &route)
                .or_else(gone)?;
        }
        for (_, index) in self.netlink.links_called(&self.site.alias())? {
            self.netlink.delete_link(index).or_else(gone)?;
        }
        // Where there can be no such table there is none to take away; if it may not be touched, neither may the next.
        let _ = self.behind_rings.remove();
        for barrier in self.barriers.iter_mut().rev() {
            barrier.remove()?;
        }
        Ok(())
    }

    fn tun_index(&mut self) -> io::Result<Option<u32>> {
        match self.site.tun() {
            Some(tun) => self.netlink.link(tun),
            None => Ok(None),
        }
    }

    /// Whether rules of ours stand here, from this or an earlier run.
    pub fn is_present(&mut self) -> io::Result<bool> {
        Ok(!self.netlink.rules(self.site.first_preference())?.is_empty())
    }

    fn put_rules(&mut self, plan: &Plan) -> io::Result<()> {
        let wanted = steering::rules(&self.site, plan);
        let present = self.netlink.rules(self.site.first_preference())?;
        // Backwards, so that a place to go to is there before anything goes there.
        for rule in wanted.iter().rev() {
            if !present.contains(rule) {
                self.netlink.add_rule(rule).map_err(explain)?;
            }
        }
        for rule in &present {
            if !wanted.contains(rule) {
                self.netlink.delete_rule(rule).or_else(gone)?;
            }
        }
        Ok(())
    }

    fn put_routes(&mut self, plan: &Plan, by_tun: bool) -> io::Result<()> {
        let tun = self.tun_index()?;
        if by_tun && tun.is_none() {
            return Ok(());
        }
        let present = self.netlink.routes(self.site.table(), tun)?;
        let wanted = steering::routes(plan);
        for route in wanted.iter().filter(|route| route.by_tun == by_tun) {
            if !present.contains(route) {
                self.netlink
                    .put_route(self.site.table(), tun, route)
                    .map_err(explain)?;
            }
        }
        Ok(())
    }

    /// Routes that nothing wants any more, once no rule leads to them.
    fn drop_routes(&mut self, plan: &Plan) -> io::Result<()> {
        let tun = self.tun_index()?;
        let wanted = steering::routes(plan);
        for route in self.netlink.routes(self.site.table(), tun)? {
            let same_place = |other: &steering::Route| {
                (other.destination, other.metric) == (route.destination, route.metric)
            };
            if !wanted.iter().any(same_place) {
                self.netlink
                    .delete_route(self.site.table(), tun, &route)
                    .or_else(gone)?;
            }
        }
        Ok(())
    }
}

/// What somebody else has already taken away is gone all the same.
fn gone(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH | libc::ENODEV) => Ok(()),
        _ => Err(error),
    }
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
