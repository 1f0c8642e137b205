//! From our own data plane to the kernel's IPsec.
//!
//! ```text
//!   numbers sent       user plane up to a limit │ kernel behind it      new packets: the kernel, by its policies
//!   numbers received   user plane up to a limit │ kernel behind it      a copy of each packet reaches both
//! ```
//!
//! Our threads run until the last step. Each direction passes over while its thread is held still and nothing waits for
//! it, so that no packet that the user plane seals or opens leaves behind one of the kernel's.

mod arriving;
mod in_udp;

use super::super::Host;
use super::super::crossing::{MoveContext, sum};
use super::super::kernel_plane::KernelPlane;
use super::super::parked::Parked;
use super::paces::Paces;
use super::shared_bundle::{SharedBundle, has_numbers};
use crate::failure::Failure;
use crate::plane::{KernelDatabases, Mover};
use crate::routes::plan::Planes;
use crate::run::devices::Devices;
use crate::run::forward::Plaintext;
use crate::run::sockets::{Divided, Sockets};
use dataplane::DataPlane;
use dataplane::pipeline::hold::Held;
use ipsec::policy::Direction;
use ipsec::sa::Sa;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest wait for a quiet moment. The threads carry packets meanwhile.
const MAX_QUIET_TIME: Duration = Duration::from_secs(1);

/// The total time spent waiting for quiet moments between the `out` policies. The user plane has sequence numbers for
/// twice as long.
const MAX_TIME_BETWEEN_POLICIES: Duration = Duration::from_millis(20);

const ARRIVING: [Direction; 2] = [Direction::In, Direction::Fwd];

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Connect,
    Barriers,
    Outbound,
    Leaving,
    Drain,
    Arriving,
    Inbound,
    Sockets,
    Shared,
    Required,
    OnePort,
    Closed,
    Counters,
    Stop,
}

pub(super) const STEPS: [Step; 14] = [
    Step::Connect,
    Step::Barriers,
    Step::Outbound,
    Step::Leaving,
    Step::Drain,
    Step::Arriving,
    Step::Inbound,
    Step::Sockets,
    Step::Shared,
    Step::Required,
    Step::OnePort,
    Step::Closed,
    Step::Counters,
    Step::Stop,
];

/// How many of them are taken before rekeys are waited for.
pub(super) const STEPS_BEFORE_REKEYS: usize = 9;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting to the kernel's IPsec",
            Self::Barriers => "the barriers of both planes",
            Self::Outbound => "outbound associations in the kernel",
            Self::Leaving => "`out` policies and routes to the kernel",
            Self::Drain => "what waits in the TUN device",
            Self::Arriving => "`in` and `fwd` policies in the kernel",
            Self::Inbound => "inbound associations in the kernel",
            Self::Sockets => "ESP in UDP for the kernel",
            Self::Shared => "the last packets that our own data plane opens",
            Self::Required => "`in` and `fwd` policies that require the kernel",
            Self::OnePort => "all ESP in UDP for the kernel",
            Self::Closed => "the barriers of the kernel alone",
            Self::Counters => "the counters of both planes",
            Self::Stop => "stopping our own data plane",
        })
    }
}

/// The move.
pub(super) struct ToKernel<'a> {
    host: &'a mut Host,
    context: MoveContext<'a>,
    kernel: Option<KernelPlane>,
    sas: Vec<(Arc<Sa>, bool)>,
    paces: Paces,
    /// Inbound associations of which our threads still open numbers.
    shared: Vec<SharedBundle>,
    sockets: Option<Sockets>,
    divided: Option<Divided>,
}

impl<'a> ToKernel<'a> {
    pub(super) fn new(host: &'a mut Host, context: MoveContext<'a>) -> Self {
        let sas = KernelDatabases::to_carry(&context.snapshot, &host.local);
        Self {
            paces: Paces::of(sas.iter().map(|(sa, _)| &**sa)),
            host,
            context,
            kernel: None,
            sas,
            shared: Vec::new(),
            sockets: None,
            divided: None,
        }
    }

    /// Both planes carry until rekeys have brought the last association of IKE to the kernel.
    pub(super) fn park(self) -> Parked {
        if self.kernel.is_some() {
            self.host.kernel_plane = self.kernel;
        }
        Parked {
            to_kernel: true,
            sas: self.sas,
            sockets: self.sockets,
            divided: self.divided,
            before: self.host.carried_before,
        }
    }

    /// Goes on, or is to be undone.
    pub(super) fn unpark(host: &'a mut Host, context: MoveContext<'a>, parked: Parked) -> Self {
        let Parked {
            sas,
            sockets,
            divided,
            ..
        } = parked;
        Self {
            paces: Paces::of(sas.iter().map(|(sa, _)| &**sa)),
            kernel: host.kernel_plane.take(),
            host,
            context,
            sas,
            shared: Vec::new(),
            sockets,
            divided,
        }
    }

    fn databases(&mut self) -> Result<&mut KernelDatabases, Failure> {
        let kernel = self.kernel.as_mut();
        let kernel = kernel.ok_or_else(|| Failure::new("not connected to the kernel's IPsec"))?;
        Ok(&mut kernel.databases)
    }

    fn connect(&mut self) -> Result<(), Failure> {
        let mut kernel = KernelPlane::open(self.host.installed.site())?;
        kernel.databases.begin(&self.host.local)?;
        kernel.databases.part(self.host.parting.clone());
        self.kernel = Some(kernel);
        self.paces.wait();
        Ok(())
    }

    /// The associations of one direction that the kernel is to carry.
    fn carried(&self, inbound: bool) -> Vec<Arc<Sa>> {
        let sas = self.sas.iter();
        sas.filter(|(_, is_inbound)| *is_inbound == inbound)
            .map(|(sa, _)| Arc::clone(sa))
            .collect()
    }

    /// Numbers that the kernel does not have any more are the user plane's again.
    fn own_what_the_kernel_has_not(&mut self, inbound: bool) {
        for sa in self.carried(inbound) {
            let kernel = self.kernel.as_ref();
            if kernel.is_none_or(|kernel| kernel.databases.sa(&sa.config.id).is_none()) {
                sa.state.own_all_numbers();
            }
        }
    }

    /// The kernel seals nothing by them before its policies are there.
    fn outbound(&mut self) -> Result<(), Failure> {
        let outbound = self.carried(false);
        self.host.same_keys.watch(&outbound);
        for sa in outbound {
            let start = sa.state.saved();
            self.databases()?.add_from(&sa, start)?;
        }
        Ok(())
    }

    /// From the first policy on the kernel seals the packets that it names, behind a limit up to which the user plane
    /// has the sequence numbers. New packets wait in the TUN device meanwhile, so that the user plane seals none that
    /// leaves behind the kernel's.
    fn leaving(&mut self) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let until = Instant::now() + MAX_QUIET_TIME;
        let mut held = self.share_numbers(until)?;
        // The fewer calls there are between the last look into the TUN device and the policies, the better.
        while held.is_some() && self.host.has_waiting(Direction::Out)? {
            for sa in self.carried(false) {
                sa.state.own_all_numbers();
            }
            drop(held);
            held = self.share_numbers(until)?;
        }
        let policies = self.databases()?.policies_to_put(&snapshot, Direction::Out);
        let until = Instant::now() + MAX_TIME_BETWEEN_POLICIES;
        for policy in policies {
            // What came to the TUN device while the policy before this one was added is sealed at once.
            if held.is_some() && self.host.has_waiting(Direction::Out)? {
                drop(held);
                let left = until.saturating_duration_since(Instant::now());
                held = self.host.quiet(Direction::Out, left)?;
            }
            self.databases()?.put_policy(&policy)?;
        }
        drop(held);
        // What came after the last look is sealed before this thread does more work.
        self.host.drain(Direction::Out)?;
        self.host.same_keys.capture_from_now()?;
        let both = Planes::Both { kernel_opens: true };
        self.host.cross(&snapshot, both, true).map_err(Failure::new)
    }

    /// The user plane has the sequence numbers of outbound associations up to a limit, from a quiet moment on if there
    /// is one.
    fn share_numbers(&mut self, until: Instant) -> Result<Option<Held>, Failure> {
        let left = until.saturating_duration_since(Instant::now());
        let held = self.host.quiet(Direction::Out, left)?;
        let mut limits = HashMap::new();
        for sa in self.carried(false).iter().filter(|sa| has_numbers(sa)) {
            let more = self.paces.numbers_to_send(sa);
            let limit = sa.state.share_sending(&sa.config, more);
            self.databases()?.set_sent(sa, limit)?;
            self.host.same_keys.begin_behind(&sa.config.id, limit);
            limits.insert(sa.config.id, limit);
        }
        if !limits.is_empty() {
            self.databases()?.check_sent(&limits)?;
        }
        Ok(held)
    }

    fn arriving(&mut self, is_optional: bool) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let databases = self.databases()?;
        databases
            .put_policies(&snapshot, &ARRIVING, is_optional)
            .map_err(Failure::new)
    }

    /// Nothing of this can fail: what could has been done before.
    fn stop(&mut self) -> Result<(), Failure> {
        let (Some(mut kernel), Some(sockets)) = (self.kernel.take(), self.sockets.take()) else {
            return Err(Failure::new("not connected to the kernel's IPsec"));
        };
        let host = &mut *self.host;
        let last = host.engine.take().map(DataPlane::stop);
        host.carried_before = sum(last.unwrap_or_default(), host.carried_before);
        kernel.count_drops_from_now();
        for (sa, _) in &self.sas {
            sa.state.own_all_numbers();
        }
        kernel.databases.part(None);
        host.kernel_plane = Some(kernel);
        host.plaintext = Plaintext::Kernel;
        let site = host.installed.site().clone();
        host.devices = Devices::new(&site, true, !self.context.options.no_offloads, &host.warn);
        host.sockets = sockets;
        Ok(())
    }
}

impl Mover for ToKernel<'_> {
    type Step = Step;

    fn take(&mut self, step: Step) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let both = Planes::Both { kernel_opens: true };
        match step {
            Step::Connect => self.connect(),
            Step::Barriers => self
                .host
                .cross(&snapshot, both, false)
                .map_err(Failure::new),
            Step::Outbound => self.outbound(),
            Step::Leaving => self.leaving(),
            Step::Drain => self.host.drain(Direction::Out).map_err(Failure::new),
            Step::Arriving => self.arriving(true),
            Step::Inbound => self.inbound(),
            Step::Sockets => self.sockets(),
            Step::Shared => self.shared(),
            Step::Required => self.arriving(false),
            Step::OnePort => self.join_sockets(),
            Step::Closed => {
                let planes = Planes::Kernel;
                self.host
                    .cross(&snapshot, planes, true)
                    .map_err(Failure::new)
            }
            Step::Counters => self.databases()?.begin_counting().map_err(Failure::new),
            Step::Stop => self.stop(),
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
            Step::Connect => {
                self.kernel = None;
                Ok(())
            }
            Step::Barriers => {
                let planes = Planes::User;
                self.host
                    .cross(&snapshot, planes, false)
                    .map_err(Failure::new)
            }
            Step::Outbound => {
                let withdrawn = self.databases()?.withdraw(false, &snapshot);
                self.own_what_the_kernel_has_not(false);
                let outbound = self.carried(false);
                self.host.same_keys.end(&outbound, &snapshot);
                withdrawn.map_err(Failure::new)
            }
            Step::Leaving => {
                self.host.cross(&snapshot, both, false)?;
                let databases = self.databases()?;
                databases
                    .remove_policies(&[Direction::Out], &snapshot)
                    .map_err(Failure::new)
            }
            Step::Arriving => {
                let databases = self.databases()?;
                databases
                    .remove_policies(&ARRIVING, &snapshot)
                    .map_err(Failure::new)
            }
            Step::Inbound => {
                let withdrawn = self.databases()?.withdraw(true, &snapshot);
                self.own_what_the_kernel_has_not(true);
                let rings = self.host.put_rings(&snapshot);
                withdrawn.and(rings).map_err(Failure::new)
            }
            Step::Sockets => self.take_back_sockets(),
            Step::OnePort => self.part_sockets(),
            Step::Required => self.arriving(true),
            Step::Closed => self.host.cross(&snapshot, both, true).map_err(Failure::new),
            Step::Drain | Step::Shared | Step::Counters | Step::Stop => Ok(()),
        }
    }
}
