//! From our own data plane to the kernel's IPsec.
//!
//! ```text
//!   numbers sent       ours up to a limit │ the kernel's behind it      new packets: the kernel, by its policies
//!   numbers received   ours up to a limit │ the kernel's behind it      a copy of each packet reaches both
//! ```
//!
//! Our threads run until the last step: what waits in the TUN device and in the sockets is sealed and opened by them.

use super::super::Host;
use super::super::crossing::{MoveContext, sum, text};
use super::super::kernel_plane::KernelPlane;
use super::paces::Paces;
use crate::plane::{KernelDatabases, Mover};
use crate::routes::firewall::ring_bypass::Rings;
use crate::routes::plan::Planes;
use crate::run::devices::Devices;
use crate::run::forward::Plaintext;
use crate::run::sockets::{self, Sockets};
use dataplane::DataPlane;
use ipsec::dropped::Dropped;
use ipsec::policy::Direction;
use ipsec::sa::{Sa, SavedCounters};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the numbers that are ours may take to arrive. An association that is slower than that is handed over at
/// the number where it is.
const MAX_SHARED_TIME: Duration = Duration::from_millis(300);

/// How long packets may wait in the TUN device for our threads.
const MAX_TUN_DRAIN_TIME: Duration = Duration::from_millis(20);

/// The TUN device counts as empty once nothing was in it for so long.
const TUN_IDLE_TIME: Duration = Duration::from_millis(2);

/// So long after an association's last packet was opened the threads have delivered it.
const DELIVERY_TIME: Duration = Duration::from_millis(5);

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
    Closed,
    Counters,
    Stop,
}

pub(super) const STEPS: [Step; 13] = [
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
    Step::Closed,
    Step::Counters,
    Step::Stop,
];

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
    /// The last number that we open, of each inbound association.
    edges: Vec<(Arc<Sa>, u64, u64)>,
    sockets: Option<Sockets>,
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
            edges: Vec::new(),
            sockets: None,
        }
    }

    fn databases(&mut self) -> Result<&mut KernelDatabases, String> {
        let kernel = self.kernel.as_mut();
        let kernel = kernel.ok_or("not connected to the kernel's IPsec")?;
        Ok(&mut kernel.databases)
    }

    fn connect(&mut self) -> Result<(), String> {
        let mut kernel = KernelPlane::open(self.host.installed.site()).map_err(text)?;
        kernel.databases.begin(&self.host.local).map_err(text)?;
        self.kernel = Some(kernel);
        self.paces.wait();
        Ok(())
    }

    fn outbound(&mut self) -> Result<(), String> {
        let sas: Vec<_> = self
            .sas
            .iter()
            .filter(|(_, is_inbound)| !is_inbound)
            .collect();
        let sas: Vec<_> = sas.into_iter().map(|(sa, _)| Arc::clone(sa)).collect();
        for sa in sas {
            let sent = sa
                .state
                .share_sending(&sa.config, self.paces.numbers_to_send(&sa));
            let start = SavedCounters {
                sent,
                ..sa.state.saved()
            };
            self.databases()?.add_from(&sa, start).map_err(text)?;
        }
        Ok(())
    }

    /// From the first policy on, packets that it names are sealed by the kernel.
    fn leaving(&mut self) -> Result<(), String> {
        let snapshot = Arc::clone(&self.context.snapshot);
        self.databases()?
            .put_policies(&snapshot, &[Direction::Out], false)
            .map_err(text)?;
        let both = Planes::Both { kernel_opens: true };
        self.host.cross(&snapshot, both, true).map_err(text)
    }

    /// Our threads seal what came before the policies.
    fn drain(&mut self) -> Result<(), String> {
        let Some((tun, _)) = self.host.plaintext.share() else {
            return Ok(());
        };
        let (began, mut idle_since) = (Instant::now(), Instant::now());
        while began.elapsed() < MAX_TUN_DRAIN_TIME && idle_since.elapsed() < TUN_IDLE_TIME {
            let mut watched = [PollFd::from_borrowed_fd(tun.as_fd(), PollFlags::IN)];
            let none = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            if poll(&mut watched, Some(&none)).map_err(text)? > 0 {
                idle_since = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn arriving(&mut self, is_optional: bool) -> Result<(), String> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let databases = self.databases()?;
        databases
            .put_policies(&snapshot, &ARRIVING, is_optional)
            .map_err(text)
    }

    /// The kernel gets a copy of each packet, and opens those that are its own.
    fn inbound(&mut self) -> Result<(), String> {
        let none = Rings::default();
        self.host
            .installed
            .install_ring_bypass(&none)
            .map_err(text)?;
        let sas: Vec<_> = self
            .sas
            .iter()
            .filter(|(_, is_inbound)| *is_inbound)
            .collect();
        let sas: Vec<_> = sas.into_iter().map(|(sa, _)| Arc::clone(sa)).collect();
        for sa in sas {
            let others = of_the_other_plane(&sa);
            let edge = match (sa.config.encapsulation, sa.config.replay_window) {
                // None reaches the kernel before the socket is the kernel's.
                (Some(_), _) => sa.state.saved().edge,
                // Without a window the kernel cannot leave numbers to us.
                (None, 0) => sa.state.share_opening(&sa.config, 0),
                (None, _) => sa
                    .state
                    .share_opening(&sa.config, self.paces.numbers_to_open(&sa)),
            };
            let start = SavedCounters {
                edge,
                ..sa.state.saved()
            };
            self.databases()?.add_from(&sa, start).map_err(text)?;
            self.edges.push((sa, edge, others));
        }
        Ok(())
    }

    /// From one moment on ESP in UDP is the kernel's. What came before waits in the sockets, and is ours.
    fn sockets(&mut self) -> Result<(), String> {
        let mut sockets = self.host.fresh_sockets(&self.context)?;
        sockets.leave_to_the_kernel();
        sockets.share_udp(&self.host.sockets).map_err(text)?;
        let needs = sockets::needs(&self.context.snapshot, &self.host.local);
        let bound = sockets.bind(&needs).map_err(text);
        let sockets = self.sockets.insert(sockets);
        bound?;
        let (began, mut idle_since) = (Instant::now(), Instant::now());
        while began.elapsed() < MAX_SHARED_TIME && idle_since.elapsed() < TUN_IDLE_TIME {
            if sockets.has_waiting().map_err(text)? {
                idle_since = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        for (sa, edge, _) in self.edges.clone() {
            let last = match sa.config.encapsulation {
                Some(_) => sa.state.share_opening(&sa.config, 0),
                None => continue,
            };
            if last > edge && sa.config.replay_window > 0 {
                self.databases()?.raise_edge(&sa, last).map_err(text)?;
            }
        }
        Ok(())
    }

    /// Waits until the numbers that are ours have come; what is slower is handed over where it is.
    fn shared(&mut self) -> Result<(), String> {
        let began = Instant::now();
        let is_over = |(sa, edge, others): &(Arc<Sa>, u64, u64)| {
            let has_come = sa.state.saved().edge >= *edge || of_the_other_plane(sa) > *others;
            has_come || sa.config.encapsulation.is_some()
        };
        while began.elapsed() < MAX_SHARED_TIME && !self.edges.iter().all(is_over) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for entry in std::mem::take(&mut self.edges) {
            let (sa, edge, _) = &entry;
            if !is_over(&entry) && sa.config.replay_window > 0 {
                let last = sa.state.share_opening(&sa.config, 0);
                if last < *edge {
                    self.databases()?.set_edge(sa, last).map_err(text)?;
                }
            }
        }
        std::thread::sleep(DELIVERY_TIME);
        Ok(())
    }

    /// Nothing of this can fail: what could has been done before.
    fn stop(&mut self) -> Result<(), String> {
        let (Some(mut kernel), Some(sockets)) = (self.kernel.take(), self.sockets.take()) else {
            return Err("not connected to the kernel's IPsec".to_owned());
        };
        let host = &mut *self.host;
        let last = host.engine.take().map(DataPlane::stop);
        host.carried_before = sum(last.unwrap_or_default(), host.carried_before);
        kernel.count_drops_from_now();
        for (sa, _) in &self.sas {
            sa.state.own_all_numbers();
        }
        host.kernel_plane = Some(kernel);
        host.plaintext = Plaintext::Kernel;
        let site = host.installed.site().clone();
        host.devices = Devices::new(&site, true, !self.context.options.no_offloads, &host.warn);
        host.sockets = sockets;
        Ok(())
    }
}

fn of_the_other_plane(sa: &Sa) -> u64 {
    let drops = sa.state.drops().into_iter();
    let mut others = drops.filter(|(reason, _)| *reason == Dropped::OtherPlane);
    others.next().map_or(0, |(_, count)| count)
}

impl Mover for ToKernel<'_> {
    type Step = Step;

    fn take(&mut self, step: Step) -> Result<(), String> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let both = Planes::Both { kernel_opens: true };
        match step {
            Step::Connect => self.connect(),
            Step::Barriers => self.host.cross(&snapshot, both, false).map_err(text),
            Step::Outbound => self.outbound(),
            Step::Leaving => self.leaving(),
            Step::Drain => self.drain(),
            Step::Arriving => self.arriving(true),
            Step::Inbound => self.inbound(),
            Step::Sockets => self.sockets(),
            Step::Shared => self.shared(),
            Step::Required => self.arriving(false),
            Step::Closed => {
                let planes = Planes::Kernel;
                self.host.cross(&snapshot, planes, true).map_err(text)
            }
            Step::Counters => self.databases()?.begin_counting().map_err(text),
            Step::Stop => self.stop(),
        }
    }

    fn undo(&mut self, step: Step) -> Result<(), String> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let both = Planes::Both { kernel_opens: true };
        match step {
            Step::Connect => {
                self.kernel = None;
                Ok(())
            }
            Step::Barriers => {
                let planes = Planes::User;
                self.host.cross(&snapshot, planes, false).map_err(text)
            }
            Step::Outbound => self.databases()?.withdraw(false).map_err(text),
            Step::Leaving => {
                self.host.cross(&snapshot, both, false).map_err(text)?;
                let databases = self.databases()?;
                databases.remove_policies(&[Direction::Out]).map_err(text)
            }
            Step::Arriving => {
                let databases = self.databases()?;
                databases.remove_policies(&ARRIVING).map_err(text)
            }
            Step::Inbound => {
                self.databases()?.withdraw(true).map_err(text)?;
                self.host.put_rings(&snapshot).map_err(text)
            }
            Step::Sockets => {
                self.sockets = None;
                self.host.sockets.give_esp(false).map_err(text)
            }
            Step::Required => self.arriving(true),
            Step::Closed => self.host.cross(&snapshot, both, true).map_err(text),
            Step::Drain | Step::Shared | Step::Counters | Step::Stop => Ok(()),
        }
    }
}
