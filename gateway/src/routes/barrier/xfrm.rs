//! The third barrier: policies of the kernel's own IPsec that block. It stands in for filters on devices, where the
//! host has none or not on every device, and only as long: XFRM is asked about every packet of the host.
//!
//! ```text
//!   Plan ──► compiler ──► keeper ──► `in`    delivered here, both families
//!                                    `fwd`   forwarded, both families
//!                                    `out`   leaving, IPv4, where no socket depends on rerouting
//!   settings   disable_policy, disable_xfrm: set on the tunnel's devices, on no other
//!   opened     the mark of IPv6 packets that came out of the tunnel
//! ```
//!
//! XFRM sees nothing that packet sockets send. What it does not see of the plan, the first barrier alone holds.

mod compiler;
mod keeper;
mod opened;
mod settings;

use super::Barrier;
use crate::memory::without_keys;
use crate::routes::Site;
use crate::routes::netlink::Netlink;
use crate::routes::netlink::traffic_control::Device;
use crate::routes::netlink::xfrm::{Direction, Xfrm};
use crate::routes::plan::{Disposition, Family, Plan};
use compiler::Surroundings;
use keeper::{Keeper, Wanted};
use opened::Opened;
use std::io;

/// Policies of one gateway.
pub(crate) struct XfrmPolicies {
    site: Site,
    /// Or why there is none.
    keeper: Result<Keeper<Xfrm>, String>,
    netlink: Netlink,
    opened: Opened,
    /// The plan in force, also while this barrier rests.
    plan: Option<Plan>,
    /// Whether a barrier before this one leaves gaps.
    is_needed: bool,
    /// Whether the kernel may have policies of ours: also those of an earlier gateway.
    may_stand: bool,
    /// Whether a change was refused half-way, so that it may have something else than the plan wants.
    is_torn: bool,
    /// What keeps a part of it off this host.
    refused: Option<String>,
}

/// The host's devices, as XFRM has to tell them apart.
struct Devices {
    /// Those of the tunnel.
    ours: Vec<Device>,
    /// All others but the loopback, which the kernel exempts by itself.
    others: Vec<Device>,
}

impl XfrmPolicies {
    /// What status and events call it.
    pub(crate) const NAME: &'static str = "XFRM policies";

    /// Nothing is installed yet.
    pub(crate) fn open(site: &Site) -> io::Result<Self> {
        Ok(Self {
            site: site.clone(),
            keeper: Xfrm::open()
                .map(|xfrm| Keeper::over(xfrm, site))
                .map_err(|error| absent(&error)),
            netlink: Netlink::open()?,
            opened: Opened::new(site),
            plan: None,
            is_needed: false,
            may_stand: true,
            is_torn: false,
            refused: None,
        })
    }

    fn devices(&mut self) -> io::Result<Devices> {
        let mut all = self.netlink.devices()?;
        all.retain(|device| device.name != "lo");
        let site = &self.site;
        let is_ours = |device: &Device| {
            site.tun() == Some(&device.name)
                || site.tun().is_some() && site.doors().contains(&device.name)
                || device.alias == site.alias()
        };
        let (ours, others) = all.into_iter().partition(is_ours);
        Ok(Devices { ours, others })
    }

    /// Makes the kernel have what the plan in force wants of this barrier, or nothing while it rests.
    fn follow(&mut self) -> io::Result<()> {
        let Some(plan) = self.plan.take() else {
            return Ok(());
        };
        let outcome = without_keys(|| {
            if self.is_needed {
                self.put(&plan)
            } else {
                self.rest()
            }
        });
        self.is_torn = outcome.is_err();
        self.plan = Some(plan);
        outcome
    }

    fn put(&mut self, plan: &Plan) -> io::Result<()> {
        self.refused = None;
        if self.keeper.is_err() {
            return Ok(());
        }
        self.may_stand = true;
        let devices = self.devices()?;
        if let Some(why) = not_exempt(&devices.ours) {
            // With policies its packets would be blocked like those of others.
            self.clear()?;
            self.refused = Some(why);
            return Ok(());
        }
        let marks = arrives_in_ipv6(plan);
        let is_marked = !marks || self.mark(&devices.ours);
        let wanted = wanted(plan, &self.surroundings(&devices, is_marked));
        if let Ok(keeper) = &mut self.keeper {
            keeper.put(&wanted)?;
        }
        if marks {
            Ok(())
        } else {
            // Nothing asks for the mark any more.
            self.opened.remove().or(Ok(()))
        }
    }

    /// Whether what came out of the tunnel is known by its mark from now on.
    fn mark(&mut self, ours: &[Device]) -> bool {
        let names: Vec<_> = ours.iter().map(|device| device.name.clone()).collect();
        let outcome = self.opened.put(&names);
        if let Err(error) = &outcome {
            self.refused = Some(format!(
                "IPv6 to this host is not covered, because decrypted packets cannot be marked: {error}"
            ));
        }
        outcome.is_ok()
    }

    fn surroundings(&self, devices: &Devices, is_marked: bool) -> Surroundings {
        Surroundings {
            tunnels: devices.ours.iter().map(|device| device.index).collect(),
            opened: is_marked.then(|| self.opened.bit()),
        }
    }

    fn rest(&mut self) -> io::Result<()> {
        self.refused = None;
        if self.may_stand { self.clear() } else { Ok(()) }
    }

    /// The mark goes last: as long as a policy blocks, what came out of the tunnel needs it.
    fn clear(&mut self) -> io::Result<()> {
        if let Ok(keeper) = &mut self.keeper {
            keeper.clear()?;
            // Without nftables there is no such table to take away.
            let _ = self.opened.remove();
        }
        self.may_stand = false;
        Ok(())
    }

    fn stands(&self) -> bool {
        self.is_needed && self.may_stand && self.plan.is_some() && self.keeper.is_ok()
    }

    fn lost(&mut self, plan: &Plan) -> io::Result<Vec<String>> {
        let devices = self.devices()?;
        let mut words = Vec::new();
        for device in &devices.ours {
            if !settings::is_exempt(&device.name) {
                words.push(format!("also applied to packets of {}", device.name));
            }
        }
        let is_marked = self.refused.is_none();
        if arrives_in_ipv6(plan) && is_marked {
            let lost = self.opened.missing()?;
            words.extend(
                lost.iter()
                    .map(|lost| format!("mark of decrypted packets missing: {lost}")),
            );
        }
        let wanted = wanted(plan, &self.surroundings(&devices, is_marked));
        if let Ok(keeper) = &mut self.keeper {
            words.extend(keeper.lost(&wanted)?);
        }
        Ok(words)
    }
}

/// Has XFRM not asked about packets of these devices, or says why that cannot be.
fn not_exempt(ours: &[Device]) -> Option<String> {
    let refused = ours.iter().find_map(|device| {
        let outcome = settings::exempt(&device.name);
        outcome.err().map(|error| (&device.name, error))
    });
    let (name, error) = refused?;
    Some(format!(
        "cannot set net.ipv4.conf.{name}.disable_policy, so the tunnel's own packets would be blocked: {error}"
    ))
}

fn absent(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT) => {
            "this kernel has no XFRM: load the module `xfrm_user` (for a container: on its host)"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// Whether policies of `in` are to block IPv6.
fn arrives_in_ipv6(plan: &Plan) -> bool {
    plan.arriving
        .iter()
        .any(|entry| entry.family() == Some(Family::V6) && entry.verdict != Disposition::Bypass)
}

fn wanted(plan: &Plan, around: &Surroundings) -> Wanted {
    let directions = [Direction::In, Direction::Fwd, Direction::Out];
    directions
        .map(|direction| (direction, compiler::rules(plan, direction, around)))
        .into()
}

impl Barrier for XfrmPolicies {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn stand_in(&mut self, is_needed: bool) {
        self.is_needed = is_needed;
    }

    fn rests(&self) -> bool {
        !self.is_needed
    }

    fn install(&mut self, plan: &Plan) -> io::Result<()> {
        let before = self.plan.replace(plan.clone());
        // Devices may have come with the same plan.
        let outcome = if self.is_needed || self.may_stand {
            self.follow()
        } else {
            Ok(())
        };
        if outcome.is_err() {
            self.plan = before;
        }
        outcome
    }

    fn missing(&mut self) -> io::Result<Vec<String>> {
        if !self.stands() {
            return Ok(Vec::new());
        }
        let Some(plan) = self.plan.take() else {
            return Ok(Vec::new());
        };
        let lost = without_keys(|| self.lost(&plan));
        self.plan = Some(plan);
        lost
    }

    fn restore(&mut self) -> io::Result<()> {
        if self.stands() { self.follow() } else { Ok(()) }
    }

    fn reach_new(&mut self) -> io::Result<()> {
        if self.is_needed == self.may_stand && !self.is_torn {
            Ok(())
        } else {
            self.follow()
        }
    }

    fn faults(&mut self) -> Vec<String> {
        if !self.is_needed {
            return Vec::new();
        }
        if let Err(why) = &self.keeper {
            return vec![format!("not available on this host: {why}")];
        }
        let mut faults: Vec<_> = self.refused.iter().cloned().collect();
        match self.devices() {
            Ok(devices) => {
                let others = devices.others.iter().map(|device| &*device.name);
                faults.extend(settings::opened(others));
            }
            Err(error) => faults.push(format!("cannot list devices: {error}")),
        }
        faults
    }

    fn gaps(&self) -> Option<&'static str> {
        let leaves_out = self.plan.as_ref().is_some_and(compiler::leaves_out);
        Some(if leaves_out {
            "not for packet sockets, nor for this host's own IPv6 packets and policies with a source"
        } else {
            "not for packet sockets"
        })
    }

    fn remove(&mut self) -> io::Result<()> {
        self.plan = None;
        self.clear()
    }
}
