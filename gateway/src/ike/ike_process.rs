//! The process that exchanges IKE messages: it drives the endpoint.
//!
//! ```text
//!   UDP 500, 4500 ─► datagrams ─┐                 ┌─► datagrams
//!   main          ─► commands  ─┼─► Endpoint ─────┼─► main: child SAs, events, reports
//!   ike-keys      ─► results   ─┤   (one thread)  ├─► ike-keys: requests that need secrets
//!   threads       ─► results   ─┘                 └─► threads: signatures and certificates of peers
//! ```
//!
//! One thread, which never waits but in one poll. In each turn results and commands come before datagrams, and each
//! of them gives a bounded number, so that a flood of one kind leaves time for all others. A question for `status`
//! waits for one turn at most (`inbox`). Queues are bounded: a request that does not fit ends its exchange, which the
//! peer or the next attempt begins again.

mod reports;

use super::channel::Channel;
use super::inbox::Inbox;
use super::inherited::{ProcessOptions, settle};
use super::key_process::refused;
use super::message::{Configuration, FromIke, ToIke};
use super::pool::Pool;
use super::trusted::trust;
use crate::failure::Failure;
use crate::memory;
use crate::privileges::{self, ChildCalls};
use crate::random::fill_with_random;
use dataplane::io::Family;
use dataplane::io::udp::{IkeBuffer, IkeSocket};
use ikev2::endpoint::{Action, Endpoint, Input, Settings};
use ikev2::work::{Done, Verifier, Work, WorkError, WorkId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Requests to the key process that are not answered yet.
const MAX_KEY_REQUESTS: usize = 4096;

/// Verifications that wait for a thread, and the threads.
const MAX_VERIFICATIONS: usize = 1024;
const VERIFYING_THREADS: usize = 2;

/// Results of the key process that are handled in a turn.
const MAX_RESULTS_PER_TURN: usize = 64;

/// While so many bytes wait for the main process, datagrams wait in their sockets.
const MAX_UNREAD_BYTES: usize = 8 << 20;

/// How long peers have for answers to Deletes when the gateway stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// `esplanade ike-process`.
pub(crate) fn ike_process(options: ProcessOptions) -> Result<(), Failure> {
    privileges::let_keys_be_locked();
    let (main, given) = settle(options, c"ike", Some(ChildCalls::Ike))?;
    memory::with_keys(|| {
        let mut given = given.into_iter();
        let keys = given
            .next()
            .ok_or_else(|| Failure::new("the stream to the key process is missing"))?;
        let sockets: Result<Vec<_>, _> = given.map(IkeSocket::over).collect();
        let sockets = sockets.map_err(Failure::new)?;
        let process = IkeProcess::new(main, keys, sockets).map_err(Failure::new)?;
        match process.serve() {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(Failure::new(error)),
            _ => Ok(()),
        }
    })
}

type Verification = (Arc<Verifier>, WorkId, Work);

/// The endpoint and what it is connected to.
pub(super) struct IkeProcess {
    /// None before the first configuration.
    endpoint: Option<Endpoint>,
    main: Channel,
    /// What the main process has sent.
    inbox: Inbox<ToIke>,
    keys: Channel,
    /// Whether more results of the key process may have come than the last turn handled.
    has_more_results: bool,
    key_requests: usize,
    verifier: Arc<Verifier>,
    pool: Pool<Verification, Done>,
    sockets: Vec<IkeSocket>,
    started: Instant,
    refused: u64,
    /// When the process ends, once the gateway stops.
    ends_at: Option<Instant>,
}

impl IkeProcess {
    pub(super) fn new(
        main: UnixStream,
        keys: OwnedFd,
        sockets: Vec<IkeSocket>,
    ) -> io::Result<Self> {
        let verify = |(verifier, id, work): Verification| Done {
            id,
            result: verifier.perform(work, unix_time()),
        };
        Ok(Self {
            endpoint: None,
            main: Channel::new(main)?,
            inbox: Inbox::default(),
            has_more_results: false,
            keys: Channel::new(keys.into())?,
            key_requests: 0,
            verifier: Arc::new(Verifier::new()),
            pool: Pool::start(
                "verify",
                (VERIFYING_THREADS, MAX_VERIFICATIONS),
                || {},
                verify,
            )?,
            sockets,
            started: Instant::now(),
            refused: 0,
            ends_at: None,
        })
    }

    /// Serves until the gateway stops, or until one of the two other processes has gone.
    pub(super) fn serve(mut self) -> io::Result<()> {
        let mut room = IkeBuffer::default();
        loop {
            self.wait()?;
            self.take_results()?;
            while let Some(message) = self.main.receive()? {
                self.inbox.add(message);
            }
            for message in self.inbox.take_turn() {
                self.apply(message);
            }
            let now = self.now();
            if self.next_at().is_some_and(|at| at <= now) {
                self.give(Input::Timer);
            }
            if self.main.waiting_bytes() < MAX_UNREAD_BYTES {
                self.take_datagrams(&mut room)?;
            }
            self.tell_states();
            self.keys.flush()?;
            self.main.flush()?;
            if self.has_stopped() {
                return self.send_stopped();
            }
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn next_at(&self) -> Option<Duration> {
        self.endpoint.as_ref().and_then(Endpoint::next_at)
    }

    /// Sleeps until something has happened or the endpoint's next time has come.
    fn wait(&self) -> io::Result<()> {
        let both = |channel: &Channel| {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, channel.waiting_bytes() > 0);
            flags
        };
        let reads = self.endpoint.is_some() && self.main.waiting_bytes() < MAX_UNREAD_BYTES;
        let sockets: &[IkeSocket] = if reads { &self.sockets } else { &[] };
        let watched = |fd, flags| PollFd::from_borrowed_fd(fd, flags);
        let mut fds = vec![
            watched(self.main.as_fd(), both(&self.main)),
            watched(self.keys.as_fd(), both(&self.keys)),
            watched(self.pool.as_fd(), PollFlags::IN),
        ];
        let sockets = sockets.iter().map(IkeSocket::as_fd);
        fds.extend(sockets.map(|fd: BorrowedFd<'_>| watched(fd, PollFlags::IN)));
        let timer = self.next_at().map(|at| at.saturating_sub(self.now()));
        let end = self
            .ends_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        let has_more = self.has_more_results || !self.inbox.is_empty();
        let at_once = has_more.then_some(Duration::ZERO);
        let times = timer.into_iter().chain(end).chain(at_once);
        let limit = times.min().map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_results(&mut self) -> io::Result<()> {
        let mut count = 0;
        while count < MAX_RESULTS_PER_TURN
            && let Some(done) = self.keys.receive::<Done>()?
        {
            self.key_requests = self.key_requests.saturating_sub(1);
            self.give(Input::Done(done));
            count += 1;
        }
        self.has_more_results = count == MAX_RESULTS_PER_TURN;
        let verified: Vec<_> = self.pool.results().collect();
        for done in verified {
            self.give(Input::Done(done));
        }
        Ok(())
    }

    fn take_datagrams(&mut self, room: &mut IkeBuffer) -> io::Result<()> {
        if self.endpoint.is_none() {
            return Ok(());
        }
        for number in 0..self.sockets.len() {
            let mut arrived: Vec<(SocketAddr, SocketAddr, Vec<u8>)> = Vec::new();
            let Some(socket) = self.sockets.get_mut(number) else {
                continue;
            };
            socket.receive(room, |from, to, bytes| {
                arrived.push((from, to, bytes.to_vec()));
            })?;
            for (from, to, mut bytes) in arrived {
                let bytes = &mut bytes[..];
                self.give(Input::Datagram { from, to, bytes });
            }
        }
        Ok(())
    }

    fn apply(&mut self, message: ToIke) {
        match message {
            ToIke::Configure(configuration) => self.configure(configuration),
            ToIke::Up { connection } => self.give(Input::Up {
                connection: &connection,
            }),
            ToIke::Recover { connection, remote } => self.give(Input::Recover {
                connection: &connection,
                remote,
            }),
            ToIke::Down { connection } => self.give(Input::Down {
                connection: &connection,
            }),
            ToIke::Rekey { connection, ike } => self.give(Input::Rekey {
                connection: &connection,
                ike,
            }),
            ToIke::Acquire {
                connection,
                child,
                packet,
            } => self.give(Input::Acquire {
                connection: &connection,
                child: &child,
                packet,
            }),
            ToIke::ChildUse(uses) => self.give(Input::ChildUse(&uses)),
            ToIke::Installed { child, outcome } => self.give(Input::Installed { child, outcome }),
            ToIke::Report { token, which } => self.report(token, &which),
            ToIke::Why { token, connection } => self.why(token, &connection),
            ToIke::Probe => self.push(&FromIke::Alive),
            ToIke::Stop => {
                self.give(Input::Stop);
                self.ends_at = Some(Instant::now() + STOP_TIMEOUT);
            }
        }
    }

    fn configure(&mut self, configuration: Configuration) {
        let Configuration {
            connections,
            trusted,
            first_child,
            log_keys,
        } = configuration;
        let mut verifier = Verifier::new();
        for files in trusted {
            verifier.add_trust(files.number, trust(&files));
        }
        self.verifier = Arc::new(verifier);
        let settings = Settings {
            first_child,
            log_keys,
            ..Settings::default()
        };
        let now = self.now();
        let endpoint = self.endpoint.get_or_insert_with(|| Endpoint::new(settings));
        let connections = connections.into_iter().map(Arc::new).collect();
        let actions = endpoint.configure(connections, now, &mut |bytes| fill_with_random(bytes));
        self.act(actions);
    }

    fn give(&mut self, input: Input<'_>) {
        let now = self.now();
        if let Some(endpoint) = &mut self.endpoint {
            let actions = endpoint.handle(input, now, &mut |bytes| fill_with_random(bytes));
            self.act(actions);
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send {
                    from,
                    to,
                    datagrams,
                } => self.send(from, to, &datagrams),
                Action::Work(id, work) => self.begin(id, work),
                Action::Install(child) => self.push(&FromIke::Install(child)),
                Action::UseOutbound(child) => self.push(&FromIke::UseOutbound(child)),
                Action::Remove { child, reason } => self.push(&FromIke::Remove { child, reason }),
                Action::LogKeys(keys) => self.push(&FromIke::LogKeys(keys)),
                Action::Event(event) => self.push(&FromIke::Event(event)),
            }
        }
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, datagrams: &[Vec<u8>]) {
        let family = Family::of(to.ip());
        let mut sockets = self.sockets.iter_mut();
        let fits =
            |socket: &&mut IkeSocket| socket.port() == from.port() && socket.family() == family;
        if let Some(socket) = sockets.find(fits) {
            socket.send(from.ip(), to, datagrams);
        }
    }

    /// Has a work done elsewhere; what there is no room for fails at once.
    fn begin(&mut self, id: WorkId, work: Work) {
        let has_room = if !work.needs_secrets() {
            let job = (Arc::clone(&self.verifier), id, work);
            self.pool.submit(job).is_ok()
        } else if self.key_requests < MAX_KEY_REQUESTS {
            let pushed = self.keys.push(&(id, work)).is_ok();
            self.key_requests += usize::from(pushed);
            pushed
        } else {
            false
        };
        if !has_room {
            self.refused += 1;
            self.give(Input::Done(refused(id, WorkError::Full)));
        }
    }

    /// A main process that does not read for so long has no use for this one.
    fn push(&mut self, message: &FromIke) {
        if self.main.push(message).is_err() {
            eprintln!("esplanade: key exchange starts anew: its reports are not read");
            self.ends_at = Some(Instant::now());
        }
    }

    fn has_stopped(&self) -> bool {
        self.ends_at.is_some_and(|at| at <= Instant::now())
            || self.ends_at.is_some() && self.next_at().is_none()
    }

    fn send_stopped(&mut self) -> io::Result<()> {
        // Without room for it the main process notices the end of the stream.
        let _ = self.main.push(&FromIke::Stopped);
        self.main.flush()
    }
}

/// Seconds since 1970, for the validity of certificates.
fn unix_time() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
