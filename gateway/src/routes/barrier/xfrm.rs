//! The third barrier: blocking policies of the kernel's own IPsec. It is used only while some devices of the host have
//! no filters, because XFRM policies are looked up for every packet of the host.
//!
//! ```text
//!   Plan ──► compiler ──► keeper ──► `in`    delivered here, both families
//!                                    `fwd`   forwarded, both families
//!                                    `out`   leaving, IPv4, if no socket depends on rerouting
//!   settings   disable_policy, disable_xfrm: set on the tunnel's devices, on no other
//!   opened     the mark on decrypted IPv6 packets
//! ```
//!
//! XFRM does not see what packet sockets send. Where it cannot enforce the plan, only the first barrier does.
//!
//! Where the kernel's own IPsec carries the traffic, its policies take the place of these.

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
    /// The policies in the kernel, or why XFRM is not available.
    keeper: Result<Keeper<Xfrm>, Absent>,
    netlink: Netlink,
    opened: Opened,
    /// The plan in force, also while this barrier is not needed.
    plan: Option<Plan>,
    /// Whether an earlier barrier leaves gaps.
    is_needed: bool,
    /// Whether the kernel may have policies of this gateway or of an earlier one of this site.
    may_stand: bool,
    /// Whether a change failed half-way, so that the kernel may have other policies than the plan requires.
    is_torn: bool,
    /// Why a part of the barrier cannot be installed on this host.
    refused: Option<String>,
}

/// Why XFRM is not available, as `status` shows it.
struct Absent(String);

/// The host's devices: those whose packets XFRM must not check, and those whose packets it must.
struct Devices {
    /// Those of the tunnel.
    ours: Vec<Device>,
    /// All others but the loopback device, which the kernel exempts by itself.
    others: Vec<Device>,
}

impl XfrmPolicies {
    /// Its name in status and events.
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
                || site.tun().is_some() && site.direction_devices().contains(&device.name)
                || device.alias == site.alias()
        };
        let (ours, others) = all.into_iter().partition(is_ours);
        Ok(Devices { ours, others })
    }

    /// Whether it has to stand: an earlier barrier leaves gaps, and no policies of the kernel's own IPsec are there.
    fn is_due(&self) -> bool {
        self.is_needed && !self.plan.as_ref().is_some_and(is_by_kernel)
    }

    /// Makes the kernel have the policies that the plan in force requires, or none while this barrier is not needed.
    fn follow(&mut self) -> io::Result<()> {
        let is_due = self.is_due();
        let Some(plan) = self.plan.take() else {
            return Ok(());
        };
        let outcome = without_keys(|| if is_due { self.put(&plan) } else { self.rest() });
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
            // With policies in place, its packets would be blocked too.
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
            // No policy matches on the mark any more.
            self.opened.remove().or(Ok(()))
        }
    }

    /// Installs the rules that mark decrypted packets; returns whether that has succeeded.
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

    /// The marking is removed last: while a policy blocks, decrypted packets need their mark to pass.
    fn clear(&mut self) -> io::Result<()> {
        if let Ok(keeper) = &mut self.keeper {
            keeper.clear()?;
            // Without nftables there is no such table to remove.
            let _ = self.opened.remove();
        }
        self.may_stand = false;
        Ok(())
    }

    fn stands(&self) -> bool {
        self.is_due() && self.may_stand && self.plan.is_some() && self.keeper.is_ok()
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

/// Exempts packets of these devices from XFRM policies; returns why if that fails.
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

fn absent(error: &io::Error) -> Absent {
    Absent(match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT) => {
            "this kernel has no XFRM: load the module `xfrm_user` (for a container: on its host)"
                .to_owned()
        }
        _ => error.to_string(),
    })
}

fn is_by_kernel(plan: &Plan) -> bool {
    plan.planes.kernel_opens()
}

/// Whether `in` policies should block IPv6.
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
        !self.is_due()
    }

    fn install(&mut self, plan: &Plan) -> io::Result<()> {
        let before = self.plan.replace(plan.clone());
        // Also for the same plan: devices may have been added since.
        let outcome = if self.is_due() || self.may_stand {
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
        if self.is_due() == self.may_stand && !self.is_torn {
            Ok(())
        } else {
            self.follow()
        }
    }

    fn faults(&mut self) -> Vec<String> {
        if !self.is_due() {
            return Vec::new();
        }
        if let Err(Absent(why)) = &self.keeper {
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
