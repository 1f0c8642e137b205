//! From the kernel's IPsec to our own data plane.
//!
//! ```text
//!   threads start ──► `out` policies and their associations end, group by group ──► inbound associations end, likewise
//!                      a group: the direction's thread stays, new packets wait ──► the kernel's numbers and window
//!                               ──► the thread goes on behind them
//! ```
//!
//! No packet waits longer than the groups of one pause take. What ends in the kernel, and in which order, is said by
//! `KernelDatabases`.

mod arriving;
mod leaving;
mod one_pause;
mod way_back;

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
use one_pause::is_one_pause;
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
    Arriving,
    Sockets,
    Start,
    Leaving,
    Inbound,
    Policies,
    Rest,
    OnePort,
    Closed,
}

pub(super) const STEPS: [Step; 11] = [
    Step::Device,
    Step::Barriers,
    Step::Arriving,
    Step::Sockets,
    Step::Start,
    Step::Leaving,
    Step::Inbound,
    Step::Policies,
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
            Self::Arriving => "`in` and `fwd` policies that do not require the kernel",
            Self::Sockets => "our own sockets",
            Self::Start => "starting our own data plane",
            Self::Leaving => "routes into the TUN device, and the end of what seals in the kernel",
            Self::Inbound => "the end of the kernel's inbound associations",
            Self::Policies => "the end of the kernel's `in` and `fwd` policies",
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
    /// What was carried on the other plane before this move.
    before: Totals,
    /// Since when ESP in UDP waits in our sockets for our threads.
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

    /// While `in` and `fwd` policies need not be applied, what our threads have opened passes beside what the kernel
    /// opens: also at the end, if the kernel still carries associations of IKE.
    fn policies(&mut self) -> Result<(), Failure> {
        if self.shares() {
            return Ok(());
        }
        let snapshot = Arc::clone(&self.context.snapshot);
        let removed = self.databases()?.remove_policies(&ARRIVING, &snapshot);
        removed.map_err(Failure::new)
    }

    fn put_arriving(&mut self, is_optional: bool) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let databases = self.databases()?;
        databases
            .put_policies(&snapshot, &ARRIVING, is_optional)
            .map_err(Failure::new)
    }

    /// From here on our sockets hold a copy of each native packet that the kernel opens; and ESP in UDP, of which the
    /// kernel opens that of pairs that stay behind and no other.
    fn open_sockets(&mut self) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let mut sockets = self.host.fresh_sockets(&self.context)?;
        sockets.share_udp(&self.host.sockets)?;
        let needs = sockets::needs(&snapshot, &self.host.local);
        sockets.probe(&needs);
        let divided = Divided::open(&self.host.sockets, &snapshot)?;
        sockets.is_divided = !divided.is_empty();
        let divided = self.divided.insert(divided);
        divided.give_all(true)?;
        self.waiting_since = Some(Instant::now());
        self.host.sockets.give_esp(false)?;
        if let Some(parting) = &self.host.parting {
            let followed = divided.follow(parting, &snapshot, &self.host.local);
            followed?;
        }
        sockets.bind(&needs)?;
        let host = &mut *self.host;
        self.sockets = Some(std::mem::replace(&mut host.sockets, sockets));
        host.put_rings(&snapshot)?;
        self.take_over_in_udp()
    }

    /// The threads start, and seal and open nothing by what the kernel has. Routes lead into the TUN device before:
    /// without them the host would take what our threads open for forged.
    fn start(&mut self) -> Result<(), Failure> {
        let plaintext = self
            .plaintext
            .take()
            .ok_or_else(|| Failure::new("there is no TUN device"))?;
        self.leave_to_the_kernel()?;
        let snapshot = Arc::clone(&self.context.snapshot);
        if !is_one_pause(&snapshot) {
            self.lead_into_the_device(&snapshot)?;
        }
        let host = &mut *self.host;
        self.kernel = host.kernel_plane.take();
        host.plaintext = plaintext;
        let databases = host.databases.get().cloned();
        let databases = databases.ok_or_else(|| Failure::new("there are no databases"))?;
        let hook = Arc::clone(&self.context.hook);
        host.start(databases, hook)?;
        let waited = self.waiting_since.map(|since| since.elapsed());
        host.longest_wait = Some(waited.unwrap_or_default());
        Ok(())
    }

    /// Removes the kernel's remaining policies and associations, including those whose deletion was refused earlier.
    fn rest(&mut self) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let databases = self.databases()?;
        databases.remove_policies(&EVERY, &snapshot)?;
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
}

impl Mover for ToUser<'_> {
    type Step = Step;

    fn take(&mut self, step: Step) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let both = Planes::Both { kernel_opens: true };
        match step {
            Step::Device => self.device(),
            Step::Barriers => self.host.cross(&snapshot, both, true).map_err(Failure::new),
            Step::Arriving => self.put_arriving(true),
            Step::Sockets => self.open_sockets(),
            Step::Start => self.start(),
            Step::Leaving => self.leaving(),
            Step::Inbound => self.inbound(),
            Step::Policies => self.policies(),
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
        // What the threads have is the kernel's again once they have ended.
        if !matches!(step, Step::Closed | Step::OnePort | Step::Rest) {
            self.end_threads();
        }
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
            Step::Arriving | Step::Policies => self.put_arriving(false),
            Step::Sockets => {
                let put = self.put_back_associations();
                put.and(self.put_back_sockets())
            }
            Step::Leaving => {
                let put = self.put_back_associations();
                let databases = self.databases()?;
                databases.put_policies(&snapshot, &[Direction::Out], false)?;
                self.host.cross(&snapshot, both, true)?;
                put
            }
            Step::Inbound => self.put_back_associations(),
            // What is missing of them is put again with the next change.
            Step::Start | Step::Rest => Ok(()),
            Step::OnePort => self.part_sockets(),
            Step::Closed => self
                .host
                .cross(&snapshot, both, false)
                .map_err(Failure::new),
        }
    }
}
