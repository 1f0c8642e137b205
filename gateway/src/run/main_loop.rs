//! The gateway's main thread: requests, signals, notices, the kernel's notifications and a tick a second, one after the
//! other.

mod answers;
mod changes;
mod compare;
mod end;
mod hold;
mod ike;
mod kernel_plane;
mod leave;
mod plane_move;
mod rekey;
mod requests;
mod watch;

use super::host::Host;
use super::ike::KeyExchange;
use super::interface;
use super::options::RunOptions;
use super::plane_choice::ChosenPlane;
use super::rates::Rate;
use super::removals::Removals;
use super::signals::{Signal, Signals};
use super::source::Source;
use super::warnings::Warnings;
use crate::apply;
use crate::control::{Answer, ClientId, Server, SetkeyText};
use crate::events::{Event, What};
use crate::failure::Failure;
use crate::memory;
use crate::plane::{KernelNotices, OwnPlane};
use crate::rekey::RekeyProgress;
use crate::report;
use crate::routes::Site;
use crate::routes::monitor::Monitor;
use crate::routes::record::Record;
use dataplane::clock::now;
use dataplane::{Hook, Notice};
use hold::Hold;
use ipsec::database::Snapshot;
use ipsec::sa::SaId;
use plane_move::PlaneMove;
use rustix::event::{EventfdFlags, eventfd};
use sd_notify::NotifyState;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The least time between two checks of addresses and paths without a sign that they have changed.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Notices that may wait. If the main thread is that far behind, further notices of the same kind are redundant.
const MAX_QUEUED_NOTICES: usize = 256;

/// A running gateway.
pub(super) struct Gateway {
    plane: OwnPlane<Host>,
    server: Server,
    signals: Signals,
    file: Source,
    options: RunOptions,
    record: Record,
    warnings: Warnings,
    bell: Arc<OwnedFd>,
    notices: Receiver<Notice>,
    sender: SyncSender<Notice>,
    started: Instant,
    /// When addresses and paths are checked next.
    next_check: Instant,
    path_changes: u64,
    outbound: Rate,
    inbound: Rate,
    acquired: HashMap<(u32, u32), Instant>,
    /// The source of each association's packets, as last reported.
    moved: HashMap<SaId, SocketAddr>,
    /// Whether it has been reported that keys are not locked.
    told_unlocked: bool,
    monitor: Monitor,
    /// Present where the kernel's own IPsec carries the packets.
    kernel_notices: Option<KernelNotices>,
    /// Which plane carries them, and why.
    chosen_plane: ChosenPlane,
    /// Whether it has changed since the last tick.
    has_moved: bool,
    /// The move that waits for rekeys, if there is one.
    plane_move: Option<PlaneMove>,
    removals: Removals,
    rekey: Option<RekeyProgress>,
    ike: Option<KeyExchange>,
    /// Whether another process replaces this one.
    is_replaced: bool,
    /// The peers whose child SAs that process takes over; none if it does not know of them.
    carried: Option<HashSet<String>>,
    /// Whether addresses of this host have changed since they were last read.
    addresses_changed: bool,
}

/// Whether to continue.
enum Next {
    Wait,
    Stop {
        take_away: bool,
        asked_by: Option<ClientId>,
    },
}

impl Gateway {
    /// Brings the parts together; nothing is enforced yet.
    pub(super) fn new(
        mut plane: OwnPlane<Host>,
        server: Server,
        signals: Signals,
        file: Source,
        options: &RunOptions,
        record: Record,
        warnings: Warnings,
    ) -> io::Result<Self> {
        let (sender, notices) = sync_channel(MAX_QUEUED_NOTICES);
        let started = Instant::now();
        let monitor = Monitor::open(plane.kernel().installed().site())?;
        Ok(Self {
            plane,
            server,
            signals,
            file,
            options: options.clone(),
            record,
            warnings,
            bell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            notices,
            sender,
            started,
            next_check: started + MIN_CHECK_INTERVAL,
            path_changes: 0,
            outbound: Rate::new(started),
            inbound: Rate::new(started),
            acquired: HashMap::new(),
            moved: HashMap::new(),
            told_unlocked: false,
            monitor,
            kernel_notices: None,
            chosen_plane: ChosenPlane::default(),
            has_moved: false,
            plane_move: None,
            removals: Removals::default(),
            rekey: None,
            ike: None,
            is_replaced: false,
            carried: None,
            addresses_changed: false,
        })
    }

    /// Negotiates keys with peers.
    pub(super) fn exchange_keys(mut self, ike: Option<KeyExchange>) -> Self {
        if let Some(ike) = &ike {
            self.plane.kernel().exchange_keys(ike.has_sockets());
        }
        self.ike = ike;
        self
    }

    /// Applies the file and starts the threads; a failure undoes what this start has changed. `is_first` unless an
    /// earlier gateway's rules are taken over.
    pub(super) fn start(mut self, text: SetkeyText, is_first: bool) -> Result<Self, Failure> {
        let installed = self.plane.kernel().installed();
        if is_first && installed.is_present().map_err(Failure::new)? {
            return Err(in_the_way(&self.record, installed.site()));
        }
        self.save_record().map_err(|error| {
            Failure::new(format!(
                "cannot write the record of what will be changed: {error}"
            ))
        })?;
        let brought_up = self.bring_up(&text);
        // The gateway runs for long, and the file's text is not needed any more.
        drop(text);
        memory::wipe_stack();
        if let Err(failure) = brought_up {
            if is_first {
                self.take_away().ok();
            }
            return Err(failure);
        }
        self.server.is_up();
        Ok(self)
    }

    fn save_record(&self) -> io::Result<()> {
        self.record.save(self.server.folder())
    }

    fn bring_up(&mut self, text: &SetkeyText) -> Result<(), Failure> {
        self.plane.collect();
        let applied = memory::with_keys(|| apply::apply(&mut self.plane, text, now()));
        let applied = applied.map_err(Failure::new)?;
        for warning in &applied.warnings {
            eprint!("{warning}");
        }
        for warning in report::rivals(&Snapshot::default(), &self.snapshot()) {
            (self.warnings.warn())(&warning);
        }
        memory::with_keys(|| self.close_peers())?;
        memory::with_keys(|| self.adopt_children());
        let enforced = memory::with_keys(|| self.plane.enforce_collected());
        enforced.map_err(Failure::new)?;
        self.relax_rp_filter();
        let hook = self.hook();
        let published = self.plane.published();
        let host = self.plane.kernel();
        host.start(published, hook)
            .map_err(|error| Failure::new(format!("cannot start the data plane: {error}")))?;
        host.warn_about_host();
        Ok(())
    }

    /// Serves until a signal or a request ends it. All that this thread allocates here may hold keys.
    pub(super) fn serve(mut self) -> Result<(), Failure> {
        self.say_ready();
        self.warn_of_unlocked_keys();
        self.start_ike();
        let (take_away, asked_by) = memory::with_keys(|| self.serve_until_the_end())?;
        self.finish(take_away, asked_by)
    }

    /// Whether to remove the rules at the end, and which client requested the end.
    fn serve_until_the_end(&mut self) -> Result<(bool, Option<ClientId>), Failure> {
        let mut next_tick = Instant::now() + Duration::from_secs(1);
        let mut hold = Hold::default();
        loop {
            // While a client is about to ask, or reads its answer, rounds of IKE wait for a moment.
            let held_until = hold.end(self.server.preferred_until(), Instant::now());
            let ike_due = self
                .ike_due()
                .map(|at| Some(at).max(held_until).unwrap_or(at));
            let due = self.removals.due().into_iter().chain(ike_due);
            let due = due.chain(held_until);
            let due = due.chain(self.plane_move.as_ref().map(PlaneMove::due));
            let next = due.chain([next_tick]).min().unwrap_or(next_tick);
            let time = next.saturating_duration_since(Instant::now());
            let mut others = vec![self.signals.as_fd(), self.bell.as_fd()];
            others.extend(self.monitor.fds());
            others.extend(self.kernel_notices.iter().map(KernelNotices::fd));
            let ike = self.ike.iter().filter(|_| held_until.is_none());
            others.extend(ike.flat_map(KeyExchange::descriptors));
            let received = self.server.wait(&others, time).map_err(Failure::new)?;
            match self.signals.take() {
                Some(Signal::Stop(name)) => {
                    println!("esplanade: {name}, stopping");
                    return Ok((self.options.fail_open, None));
                }
                Some(Signal::Reload) => self.reload_file(),
                None => {}
            }
            let mut end = None;
            for (id, request) in received.requests {
                if let Next::Stop {
                    take_away,
                    asked_by,
                } = self.serve_one(id, request)
                {
                    end = Some((take_away, asked_by));
                }
                memory::wipe_stack();
            }
            if let Some(end) = end {
                return Ok(end);
            }
            let preferred_until = self.server.preferred_until();
            if hold.end(preferred_until, Instant::now()).is_none() {
                self.hear_ike();
                hold.round_done();
            }
            self.handle_notices()?;
            self.handle_kernel_notices();
            self.handle_notifications();
            self.look_at_ike();
            self.look_at_hooks();
            self.look_at_move();
            if Instant::now() >= next_tick {
                next_tick += Duration::from_secs(1);
                self.tick();
                self.removals.suspect(Instant::now());
            }
            if self.removals.due().is_some_and(|due| due <= Instant::now()) {
                self.compare();
            }
        }
    }

    /// Warns once, at start or when there are more keys than may be locked.
    fn warn_of_unlocked_keys(&mut self) {
        if !memory::is_locked() && !std::mem::replace(&mut self.told_unlocked, true) {
            (self.warnings.warn())(
                "keys may be swapped out: this process is not allowed to lock enough memory. Raise the limit (ulimit \
                 -l unlimited, LimitMEMLOCK=infinity), or disable swap",
            );
        }
    }

    fn say_ready(&self) {
        let snapshot = self.snapshot();
        let carrier = if self.chosen_plane.by_kernel {
            format!("the kernel's IPsec ({})", self.chosen_plane.reason)
        } else {
            format!("device {}", self.record.tun)
        };
        println!(
            "esplanade {} ready: {carrier}, control socket {}, {} associations",
            env!("CARGO_PKG_VERSION"),
            self.server.folder().socket().display(),
            snapshot.sas().count(),
        );
        // Without a service manager there is nothing to notify.
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }

    /// Relaxes strict reverse path checks on the devices to peers, once the tunnel's own outer addresses are protected.
    fn relax_rp_filter(&mut self) {
        let before = self.record.settings.len();
        for device in self.plane.kernel().devices_to_gateway_peers() {
            interface::relax_rp_filter(&device, &mut self.record, &self.warnings.warn());
        }
        if self.record.settings.len() > before {
            // The record only serves to restore this setting; without it the setting stays, which does no harm.
            let _ = self.save_record();
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.plane.published().load_full()
    }

    /// Called on the data plane's threads: if the queue is full the notice is lost, but the thread never waits.
    fn hook(&self) -> Hook {
        let (sender, bell) = (self.sender.clone(), Arc::clone(&self.bell));
        Arc::new(move |notice| {
            if sender.try_send(notice).is_ok() {
                let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
            }
        })
    }

    fn report_event(&mut self, what: What) {
        if matches!(
            what,
            What::SaExpired(_) | What::SaExhausted(_) | What::Mapping { .. }
        ) {
            eprintln!("esplanade: {what}");
        }
        let time = dataplane::clock::today();
        let event = Event { time, what };
        self.server.publish(&Answer::Event(event));
    }
}

/// Routing rules exist at the gateway's preferences, and there is no record beside this socket of which gateway
/// installed them.
fn in_the_way(record: &Record, site: &Site) -> Failure {
    let kind = if record.forwards { "forward" } else { "tun" };
    Failure::new(format!(
        "routing rules {} to {} exist already, and this control socket has no record of them. If an earlier gateway \
         left them: remove them with `esplanade down --force --{kind} {} --table {} --mark {:#x}`. If another \
         gateway is running here: choose another routing table with --table",
        site.first_preference(),
        site.first_preference() + crate::routes::PREFERENCES_PER_SITE - 1,
        site.name(),
        site.table(),
        site.outside_mark(),
    ))
}
