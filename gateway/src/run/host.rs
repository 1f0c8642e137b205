//! The host around the data plane: TUN device, sockets, the kernel's tables.

mod by_kernel;
mod crossing;
mod engine;
mod kernel_plane;
mod moving;
mod out_of_band;
mod packet_rings;
mod parked;
mod passing_on;
mod planning;
mod same_keys;
mod side_by_side;
mod surroundings;
mod watch;

use super::devices::Devices;
use super::forward::Plaintext;
use super::icmp_validation::{self, Databases};
use super::outer_network::OuterNetwork;
use super::senders;
use super::sockets::{self, Sockets};
use super::{RunOptions, interface};
use crate::failure::Failure;
use crate::handover::Inheritance;
use crate::memory;
use crate::plane::{Kernel, Parting, Unsupported, carries, enforces, serves};
use crate::routes::Site;
use crate::routes::installed::Installed;
use crate::routes::plan::{self, Senders};
use arc_swap::ArcSwap;
pub(super) use crossing::MoveContext;
use dataplane::io::udp::FirstSocket;
use dataplane::io::{Family, PmtuCache, Waker, Warn};
use dataplane::iv::IvSource;
use dataplane::pipeline::governor::LaneReport;
use dataplane::{DataPlane, Ends, Hook, Totals, Wakers};
use ipsec::database::Snapshot;
use ipsec::policy::Policy;
use ipsec::sa::SaConfig;
use kernel_plane::KernelPlane;
pub(super) use out_of_band::is_silent;
use parked::SideBySide;
use same_keys::SameKeys;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Everything outside the databases.
pub(super) struct Host {
    installed: Installed,
    /// Present where the kernel's own IPsec carries the packets.
    kernel_plane: Option<KernelPlane>,
    has_cleared_kernel: bool,
    /// Present while the gateway moves from one plane to the other.
    crossing: Option<crossing::Crossing>,
    /// What is on which plane meanwhile.
    parting: Option<Arc<Parting>>,
    /// Present while both planes carry and wait for rekeys.
    side: Option<SideBySide>,
    /// What was carried on the other plane before a move.
    carried_before: Totals,
    /// How long packets have waited in the TUN device during the last move to our own data plane.
    longest_wait: Option<Duration>,
    same_keys: SameKeys,
    plaintext: Plaintext,
    devices: Devices,
    sockets: Sockets,
    paths: PmtuCache,
    databases: Databases,
    outside: OuterNetwork,
    /// The user of the gateway's sockets, for the drop rules.
    senders: Senders,
    /// This host's addresses, as last read.
    local: Vec<IpAddr>,
    /// Random bits for dummy packets.
    random: IvSource,
    engine: Option<DataPlane>,
    options: dataplane::Options,
    /// Whether IKE negotiates keys.
    exchanges_keys: bool,
    warn: Warn,
}

impl Host {
    /// Opens the device, or connects to the kernel's IPsec (`by_kernel`). No route leads there yet.
    pub(super) fn new(
        site: Site,
        options: &RunOptions,
        by_kernel: bool,
        outside: OuterNetwork,
        inheritance: Inheritance,
        warn: &Warn,
    ) -> Result<Self, Failure> {
        let paths = PmtuCache::default();
        let databases = Databases::default();
        let judge = icmp_validation::judge(&databases, &paths);
        let mut sockets =
            Sockets::new(&site, options, &outside, &paths, judge, warn).map_err(Failure::new)?;
        let kernel_plane = by_kernel.then(|| KernelPlane::open(&site)).transpose()?;
        if by_kernel {
            sockets.leave_to_the_kernel();
        }
        sockets.inherit(inheritance.sockets, inheritance.order);
        let mut devices = Devices::new(&site, by_kernel, !options.no_offloads, warn);
        devices.inherit(inheritance.devices);
        let mut installed = Installed::new(site.clone()).map_err(|error| {
            Failure::new(format!("cannot reach the kernel's routing tables: {error}"))
        })?;
        let plaintext = if by_kernel {
            Plaintext::Kernel
        } else {
            Plaintext::open(&site, options, inheritance.tun, installed.netlink(), warn)?
        };
        let engine_options = engine::options(options);
        Ok(Self {
            installed,
            kernel_plane,
            has_cleared_kernel: false,
            crossing: None,
            parting: None,
            side: None,
            carried_before: Totals::default(),
            longest_wait: None,
            same_keys: SameKeys::default(),
            plaintext,
            devices,
            sockets,
            paths,
            databases,
            outside,
            senders: senders::of_this_process(warn),
            local: Vec::new(),
            random: IvSource::from_system()
                .map_err(|error| Failure::new(format!("no random numbers: {error}")))?,
            engine: None,
            options: engine_options,
            exchanges_keys: false,
            warn: Arc::clone(warn),
        })
    }

    /// IKE negotiates keys, and its messages pass the barriers; or it may do so later (`sockets_are_open`: false).
    pub(super) fn exchange_keys(&mut self, sockets_are_open: bool) {
        self.exchanges_keys = sockets_are_open;
        self.sockets.beside_ike = Some(if sockets_are_open {
            FirstSocket::Ike
        } else {
            FirstSocket::Esp
        });
        if sockets_are_open {
            self.sockets.expect_peers();
        }
    }

    /// Whether ESP has port 4500 already when the sockets of IKE are opened.
    pub(super) fn first_socket(&self, family: Family) -> FirstSocket {
        self.sockets.first_socket(family)
    }

    /// The kernel's tables.
    pub(super) fn installed(&mut self) -> &mut Installed {
        &mut self.installed
    }

    /// The learnt path MTUs.
    pub(super) fn paths(&self) -> &PmtuCache {
        &self.paths
    }

    /// Devices with associations of their own, and the MTU of each.
    pub(super) fn devices(&self) -> Vec<(String, u32)> {
        self.devices.describe()
    }

    /// How batches are read and waited for, as text.
    pub(super) fn polling(&self) -> String {
        let dataplane::Options {
            batch,
            poll_budget,
            idle,
            ref placement,
            ..
        } = self.options;
        format!(
            "batches of {} · poll budget {poll_budget} · {idle} · priority {}",
            batch.items, placement.priority
        )
    }

    /// How the outbound and the inbound lane work, and why.
    pub(super) fn lanes(&self) -> Option<[LaneReport; 2]> {
        self.engine.as_ref().map(DataPlane::lanes)
    }

    /// The TUN device; empty without one.
    pub(super) fn tun(&self) -> &str {
        self.installed.site().tun().unwrap_or_default()
    }

    /// The Ethernet device of --forward, if it is used instead.
    pub(super) fn forward(&self) -> Option<&str> {
        self.installed.site().forward()
    }

    /// Features and statistics of the plaintext side, as text.
    pub(super) fn plaintext(&self) -> Vec<String> {
        self.plaintext.describe()
    }

    /// The open sockets, as text.
    pub(super) fn sockets(&self) -> Vec<String> {
        self.sockets.describe()
    }

    /// Starts the threads.
    pub(super) fn start(
        &mut self,
        databases: Arc<ArcSwap<Snapshot>>,
        hook: Hook,
    ) -> io::Result<()> {
        // Set once: a gateway starts once.
        let _ = self.databases.set(Arc::clone(&databases));
        self.devices.forget_inherited();
        if self.is_by_kernel() {
            return Ok(());
        }
        let (gathering, dispatching, arrival) =
            self.sockets.ends().ok_or(io::ErrorKind::AlreadyExists)?;
        let waker = Waker::new()?;
        let tunnels = self.devices.tunnels();
        let (source, sink, replies) = self.plaintext.ends(tunnels, &databases, &waker)?;
        let ends = Ends {
            plaintext_source: source,
            protected_sink: Box::new(dispatching),
            protected_source: Box::new(gathering),
            plaintext_sink: sink,
            replies: Some(replies),
            paths: self.paths.clone(),
            wakers: Wakers {
                plaintext: Some(waker),
                protected: Some(arrival),
            },
        };
        self.engine = Some(DataPlane::start(ends, databases, &self.options, hook)?);
        Ok(())
    }

    /// Stops the threads; packets in flight are still sent.
    pub(super) fn stop(&mut self) {
        self.engine = None;
    }

    /// The threads' counters, or the kernel's.
    pub(super) fn totals(&self) -> Totals {
        let now = match (&self.kernel_plane, &self.side) {
            (Some(plane), None) => plane.totals(),
            (kernel, side) => {
                let by_kernel = kernel.as_ref().zip(side.as_ref());
                let by_kernel = by_kernel.map(|(plane, side)| side.carried_by(plane));
                crossing::sum(self.by_threads(), by_kernel.unwrap_or_default())
            }
        };
        crossing::sum(now, self.carried_before)
    }

    /// How long packets have waited at most in the TUN device, if the last move was to our own data plane.
    pub(super) fn longest_wait(&self) -> Option<Duration> {
        self.longest_wait
    }

    /// The name of a device with associations of its own.
    pub(super) fn device_name(&self, number: u32) -> Option<String> {
        self.devices.name(number)
    }

    /// Warns if the host does not forward packets of the tunnel.
    pub(super) fn warn_about_host(&self) {
        // Without a TUN device the kernel forwards nothing for us.
        let plan = self.installed.plan();
        if let Some(plan) = plan.filter(|_| self.forward().is_none()) {
            // A single address as destination is most likely this host's own.
            let forwards = |family| {
                plan.passing.iter().any(|entry| {
                    let prefix = entry.selector.destination;
                    let host = if family == plan::Family::V4 { 32 } else { 128 };
                    entry.family() == Some(family) && prefix.len < host
                })
            };
            interface::warn_without_forwarding(
                forwards(plan::Family::V4),
                forwards(plan::Family::V6),
                &self.warn,
            );
        }
    }
}

impl Kernel for Host {
    fn can_serve(&self, config: &SaConfig) -> Result<(), Unsupported> {
        if let (Some(interface), Some(device)) =
            (&config.interface, self.installed.site().forward())
        {
            return Err(Unsupported(format!(
                "`-o interface={interface}` needs a TUN device, but --forward {device} works without one: remove one \
                 of the two"
            )));
        }
        match self.side {
            Some(_) => self.can_serve_side_by_side(config)?,
            None if self.is_by_kernel() => carries(config)?,
            None => serves(config)?,
        }
        if self.outside.kernel_owns(&config.id, self.installed.site()) {
            return Err(Unsupported(format!(
                "the kernel's IPsec already has an association to {} with SPI {} and would receive its packets: \
                 delete it first (`ip xfrm state delete …`, or stop the daemon that made it)",
                config.id.destination, config.id.spi
            )));
        }
        Ok(())
    }

    fn can_enforce(&self, policy: &Policy) -> Result<(), Unsupported> {
        if self.kernel_plane.is_some() {
            enforces(policy)
        } else {
            Ok(())
        }
    }

    fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        self.outside.netlink.addresses()
    }

    fn open_devices(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.open_all_devices(snapshot)
    }

    fn enforce(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let addresses = self.addresses()?;
        let needs = sockets::needs(snapshot, &addresses);
        self.local = addresses;
        self.plaintext.know_addresses(self.installed.netlink())?;
        self.sockets.bind(&needs)?;
        if self.side.is_some() {
            return self.enforce_side_by_side(snapshot, &needs);
        }
        if let Some(plane) = &mut self.kernel_plane {
            let devices = self.devices.names();
            plane.databases.put(snapshot, &self.local, devices)?;
            self.end_ring_bypass()?;
        } else {
            self.put_rings(snapshot)?;
        }
        if snapshot.in_and_fwd_differ() && self.forward().is_none() && !self.is_by_kernel() {
            let (site, netlink) = self.installed.site_and_netlink();
            self.devices.open_direction_devices(site, netlink)?;
        }
        self.open_all_devices(snapshot)?;
        // The plan holds selectors and addresses, no keys.
        memory::without_keys(|| {
            let plan = self.plan(snapshot, &needs)?;
            self.installed.enforce(plan)
        })?;
        if let Some(plane) = &mut self.kernel_plane {
            plane.databases.remove_others(snapshot)?;
        }
        self.remove_left_in_kernel(snapshot)?;
        // The new plan is in force, so this error is only a warning; the next check of addresses tries again.
        let netlink = self.installed.netlink();
        if let Err(error) = self.devices.close(snapshot.interfaces(), netlink) {
            (self.warn)(&format!("an unused device could not be deleted: {error}"));
        }
        Ok(())
    }

    fn follow(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.follow_side_by_side(snapshot)
    }
}
