//! From the kernel's IPsec to our own data plane.
//!
//! ```text
//!   new packets wait in the TUN device ──► the kernel's outbound associations end ──► ours go on behind their numbers
//!   arriving packets wait in our sockets ─► the kernel's inbound associations end ──► ours open what these have not
//! ```
//!
//! Our threads start when both are done.

mod associations;

use super::super::Host;
use super::super::crossing::MoveContext;
use super::super::kernel_plane::KernelPlane;
use super::super::parked::Parked;
use crate::failure::Failure;
use crate::plane::{KernelDatabases, Mover};
use crate::routes::plan::Planes;
use crate::run::devices::Devices;
use crate::run::forward::Plaintext;
use crate::run::sockets::{self, Divided, Sockets};
use dataplane::Totals;
use ipsec::policy::Direction;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

const ARRIVING: [Direction; 2] = [Direction::In, Direction::Fwd];
const EVERY: [Direction; 3] = [Direction::Out, Direction::In, Direction::Fwd];

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Device,
    Barriers,
    Leaving,
    Outbound,
    Sockets,
    Inbound,
    Policies,
    Start,
    Rest,
    OnePort,
    Closed,
}

pub(super) const STEPS: [Step; 11] = [
    Step::Device,
    Step::Barriers,
    Step::Leaving,
    Step::Outbound,
    Step::Sockets,
    Step::Inbound,
    Step::Policies,
    Step::Start,
    Step::Rest,
    Step::OnePort,
    Step::Closed,
];

/// How many of them are taken before rekeys are waited for.
pub(super) const STEPS_BEFORE_REKEYS: usize = 8;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "the TUN device",
            Self::Barriers => "the barriers of both planes",
            Self::Leaving => "routes into the TUN device, and no `out` policies in the kernel",
            Self::Outbound => "the end of the kernel's outbound associations",
            Self::Sockets => "our own sockets",
            Self::Inbound => "the end of the kernel's inbound associations",
            Self::Policies => {
                "the end of the kernel's `in` and `fwd` policies, or that they require the kernel"
            }
            Self::Start => "starting our own data plane",
            Self::Rest => "the end of what the kernel still has",
            Self::OnePort => "all ESP in UDP for our threads",
            Self::Closed => "the barriers of our own data plane alone",
        })
    }
}

/// The move.
pub(super) struct ToUser<'a> {
    host: &'a mut Host,
    context: MoveContext<'a>,
    /// The kernel's part, as long as the host counts as being on our own data plane.
    kernel: Option<KernelPlane>,
    /// Ours, as long as the host counts as being on the kernel's.
    plaintext: Option<Plaintext>,
    sockets: Option<Sockets>,
    divided: Option<Divided>,
    /// What the kernel has carried.
    carried: Totals,
    /// What was carried on the other plane before this move.
    before: Totals,
    /// Since when packets wait in the TUN device for our threads.
    waiting_since: Option<Instant>,
}

impl<'a> ToUser<'a> {
    pub(super) fn new(host: &'a mut Host, context: MoveContext<'a>) -> Self {
        Self {
            before: host.carried_before,
            host,
            context,
            kernel: None,
            plaintext: None,
            sockets: None,
            divided: None,
            carried: Totals::default(),
            waiting_since: None,
        }
    }

    /// Both planes carry until rekeys have brought the last association of IKE to our own.
    pub(super) fn park(self) -> Parked {
        self.host.kernel_plane = self.kernel;
        Parked {
            to_kernel: false,
            sas: Vec::new(),
            sockets: self.sockets,
            divided: self.divided,
            before: self.before,
        }
    }

    /// Goes on, or is to be undone.
    pub(super) fn unpark(host: &'a mut Host, context: MoveContext<'a>, parked: Parked) -> Self {
        let Parked {
            sockets,
            divided,
            before,
            ..
        } = parked;
        Self {
            kernel: host.kernel_plane.take(),
            host,
            context,
            plaintext: None,
            sockets,
            divided,
            carried: Totals::default(),
            before,
            waiting_since: None,
        }
    }

    /// Whether the kernel still carries associations of IKE.
    fn shares(&self) -> bool {
        let parting = self.host.parting.as_ref();
        parting.is_some_and(|parting| parting.left(&self.context.snapshot).next().is_some())
    }

    fn databases(&mut self) -> Result<&mut KernelDatabases, Failure> {
        let kernel = self.host.kernel_plane.as_mut().or(self.kernel.as_mut());
        let kernel = kernel.ok_or_else(|| Failure::new("not connected to the kernel's IPsec"))?;
        Ok(&mut kernel.databases)
    }

    fn device(&mut self) -> Result<(), Failure> {
        let host = &mut *self.host;
        let site = host.installed.site().clone();
        let (options, netlink) = (self.context.options, host.installed.netlink());
        let opened = Plaintext::open(&site, options, None, netlink, &host.warn);
        self.plaintext = Some(opened?);
        host.devices = Devices::new(&site, false, !options.no_offloads, &host.warn);
        if self.context.snapshot.in_and_fwd_differ() {
            let (site, netlink) = host.installed.site_and_netlink();
            let opened = host.devices.open_direction_devices(site, netlink);
            opened?;
        }
        Ok(())
    }

    /// From here on packets wait in the TUN device.
    fn leaving(&mut self) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let both = Planes::Both { kernel_opens: true };
        self.waiting_since = Some(Instant::now());
        self.host.cross(&snapshot, both, false)?;
        let databases = self.databases()?;
        databases.remove_leading(&snapshot).map_err(Failure::new)
    }

    /// With `in` and `fwd` policies that need not be applied, what our threads have opened passes beside what the
    /// kernel opens.
    fn policies(&mut self) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let shares = self.shares();
        let databases = self.databases()?;
        if shares {
            databases.put_policies(&snapshot, &ARRIVING, true)
        } else {
            databases.remove_policies(&ARRIVING)
        }
        .map_err(Failure::new)
    }

    /// From here on our sockets hold a copy of each native packet that the kernel opens, and ESP in UDP but that of
    /// pairs that stay behind.
    fn open_sockets(&mut self) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let mut sockets = self.host.fresh_sockets(&self.context)?;
        sockets.share_udp(&self.host.sockets)?;
        let divided = Divided::open(&self.host.sockets, &snapshot)?;
        sockets.is_divided = !divided.is_empty();
        let divided = self.divided.insert(divided);
        divided.give_all(true)?;
        self.host.sockets.give_esp(false)?;
        if let Some(parting) = &self.host.parting {
            let followed = divided.follow(parting, &snapshot, &self.host.local);
            followed?;
        }
        let needs = sockets::needs(&snapshot, &self.host.local);
        sockets.bind(&needs)?;
        let host = &mut *self.host;
        self.sockets = Some(std::mem::replace(&mut host.sockets, sockets));
        host.put_rings(&snapshot).map_err(Failure::new)
    }

    /// All ESP in UDP is the kernel's.
    fn give_back_esp(&mut self) -> Result<(), Failure> {
        let sockets = &self.host.sockets;
        let Some(mut divided) = self.divided.take() else {
            sockets.give_esp(true)?;
            sockets.leave_gro_to_the_kernel();
            return Ok(());
        };
        divided.give_all(true)?;
        sockets.give_esp(true)?;
        sockets.leave_gro_to_the_kernel();
        divided.give_all(false).map_err(Failure::new)
    }

    /// The threads begin with what waits.
    fn start(&mut self) -> Result<(), Failure> {
        let plaintext = self
            .plaintext
            .take()
            .ok_or_else(|| Failure::new("there is no TUN device"))?;
        let host = &mut *self.host;
        self.kernel = host.kernel_plane.take();
        host.carried_before = self.carried;
        host.plaintext = plaintext;
        host.leave_to_the_kernel(&self.context.snapshot);
        let databases = host.databases.get().cloned();
        let databases = databases.ok_or_else(|| Failure::new("there are no databases"))?;
        let hook = Arc::clone(&self.context.hook);
        host.start(databases, hook)?;
        host.longest_wait = self.waiting_since.map(|since| since.elapsed());
        self.open_without_window()
    }

    /// Removes the kernel's remaining policies and associations, including those whose deletion was refused earlier.
    fn rest(&mut self) -> Result<(), Failure> {
        let databases = self.databases()?;
        databases.remove_policies(&EVERY)?;
        databases.remove_sas().map_err(Failure::new)
    }

    /// Once the kernel has none in UDP any more: what arrives may come coalesced again.
    fn join_sockets(&mut self) -> Result<(), Failure> {
        let Some(divided) = &mut self.divided else {
            return Ok(());
        };
        divided.give_all(false)?;
        let sockets = &mut self.host.sockets;
        sockets.is_divided = false;
        sockets.coalesce_shared(divided, true).map_err(Failure::new)
    }

    /// Undoes that. Which plane gets which SPIs is said on the way back.
    fn part_sockets(&mut self) -> Result<(), Failure> {
        let Some(divided) = self.divided.as_ref().filter(|divided| !divided.is_empty()) else {
            return Ok(());
        };
        let sockets = &mut self.host.sockets;
        sockets.is_divided = true;
        sockets
            .coalesce_shared(divided, false)
            .map_err(Failure::new)
    }

    fn unstart(&mut self) {
        let host = &mut *self.host;
        host.engine = None;
        if let Some(kernel) = self.kernel.take() {
            host.kernel_plane = Some(kernel);
        }
        self.plaintext = Some(std::mem::replace(&mut host.plaintext, Plaintext::Kernel));
    }
}

impl Mover for ToUser<'_> {
    type Step = Step;

    fn take(&mut self, step: Step) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let both = Planes::Both { kernel_opens: true };
        match step {
            Step::Device => self.device(),
            Step::Barriers => self.host.cross(&snapshot, both, true).map_err(Failure::new),
            Step::Leaving => self.leaving(),
            Step::Outbound => self.outbound(),
            Step::Sockets => self.open_sockets(),
            Step::Inbound => self.inbound(),
            Step::Policies => self.policies(),
            Step::Start => self.start(),
            Step::Rest => self.rest(),
            Step::OnePort => self.join_sockets(),
            Step::Closed => {
                let planes = Planes::User;
                self.host
                    .cross(&snapshot, planes, false)
                    .map_err(Failure::new)
            }
        }
    }

    fn undo(&mut self, step: Step) -> Result<(), Failure> {
        self.host.part(None);
        if let Some(kernel) = &mut self.kernel {
            kernel.databases.part(None);
        }
        let snapshot = Arc::clone(&self.context.snapshot);
        let both = Planes::Both { kernel_opens: true };
        match step {
            Step::Device => {
                self.plaintext = None;
                let site = self.host.installed.site();
                let offloads = !self.context.options.no_offloads;
                self.host.devices = Devices::new(site, true, offloads, &self.host.warn);
                Ok(())
            }
            Step::Barriers => {
                let planes = Planes::Kernel;
                self.host
                    .cross(&snapshot, planes, true)
                    .map_err(Failure::new)
            }
            Step::Leaving => {
                let databases = self.databases()?;
                databases.put_policies(&snapshot, &[Direction::Out], false)?;
                self.host.cross(&snapshot, both, true).map_err(Failure::new)
            }
            Step::Outbound | Step::Inbound => self.put_back_associations(),
            Step::Sockets => {
                if let Some(sockets) = self.sockets.take() {
                    self.host.sockets = sockets;
                }
                self.give_back_esp()?;
                self.host.end_ring_bypass().map_err(Failure::new)
            }
            Step::Policies => {
                let databases = self.databases()?;
                databases
                    .put_policies(&snapshot, &ARRIVING, false)
                    .map_err(Failure::new)
            }
            Step::Start => {
                self.unstart();
                Ok(())
            }
            // What is missing of them is put again with the next change.
            Step::Rest => Ok(()),
            Step::OnePort => self.part_sockets(),
            Step::Closed => self
                .host
                .cross(&snapshot, both, false)
                .map_err(Failure::new),
        }
    }
}
