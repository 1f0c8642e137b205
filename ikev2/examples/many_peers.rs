//! Many peers of a gateway on one host, in one process with one thread, for measurements: each brings up an IKE SA with
//! one child SA and has a packet echoed through it. tests/ikev2/measure starts it.
//!
//! ```text
//!   settings (JSON, one argument) ──► connections 0, 1, 2, … ──► handshakes, so many at a time
//!        each: IKE_SA_INIT, IKE_AUTH, ICMP echo in ESP in UDP ──► answered ──► the next one begins
//! ```
//!
//! With `"role": "responder"` it takes the gateway's place instead, without a data plane: then its peers are started
//! with `"echo": false`, and a child SA that is installed counts as answered.
//!
//! Every handshake has a key exchange of its own, an identity of its own, and a certificate of its own where there are
//! any: nothing that the responder has computed for one serves another. The report is one line of JSON.

#![expect(
    clippy::disallowed_methods,
    reason = "a program, not the pure crate: it has a clock"
)]

use ikev2::{
    endpoint::{Action, ChildId, ChildSa, Endpoint, Event, Input, Settings},
    work::{Done, Secrets, Verifier, Work, prepare_thread},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsFd,
    time::{Duration, Instant, SystemTime},
};

#[path = "many_peers/connections.rs"]
mod connections;
#[path = "many_peers/tunnel.rs"]
mod tunnel;

use connections::{connections, is_responder, number, text};
use tunnel::Tunnel;

/// An echo request without an answer is sent again after so long.
const ECHO_INTERVAL: Duration = Duration::from_millis(300);

const NON_ESP_MARKER: [u8; 4] = [0; 4];

fn main() {
    let text = std::env::args()
        .nth(1)
        .expect("settings in JSON as the only argument");
    let settings: Value = serde_json::from_str(&text).expect("settings in JSON");
    let mut peers = ManyPeers::new(settings);
    prepare_thread();
    if is_responder(&peers.settings) {
        println!("ready");
        return peers.hold();
    }
    let report = peers.bring_up();
    println!("{report}");
    if peers.settings["hold"] == true {
        peers.hold();
    }
}

struct ManyPeers {
    settings: Value,
    endpoint: Endpoint,
    secrets: Secrets,
    verifier: Verifier,
    sockets: [UdpSocket; 2],
    remote: IpAddr,
    began: Instant,
    /// By the SPI of packets that arrive.
    tunnels: HashMap<u32, Tunnel>,
    spis: HashMap<ChildId, u32>,
    /// Echo requests without an answer, by when they were sent.
    unanswered: BTreeMap<(Duration, u32), ()>,
    begun: u64,
    answered: u64,
    failed: Vec<String>,
    /// Time of works: key exchanges with their keys, signatures, certificates.
    key_work: Duration,
}

impl ManyPeers {
    fn new(settings: Value) -> Self {
        let local: IpAddr = text(&settings, "local").parse().expect("an address");
        let remote = text(&settings, "remote").parse().expect("an address");
        let sockets = [500, 4500].map(|port| {
            let socket = UdpSocket::bind((local, port)).expect("a free port");
            socket.set_nonblocking(true).expect("a socket");
            socket
        });
        let mut peers = Self {
            endpoint: Endpoint::new(Settings::default()),
            secrets: Secrets::new(),
            verifier: Verifier::new(),
            sockets,
            remote,
            began: Instant::now(),
            tunnels: HashMap::new(),
            spis: HashMap::new(),
            unanswered: BTreeMap::new(),
            begun: 0,
            answered: 0,
            failed: Vec::new(),
            key_work: Duration::ZERO,
            settings,
        };
        let all = connections(
            &peers.settings,
            (local, remote),
            &mut peers.secrets,
            &mut peers.verifier,
        );
        let now = peers.began.elapsed();
        let actions = peers.endpoint.configure(all, now, &mut random);
        assert!(actions.is_empty(), "nothing begins by itself");
        peers
    }

    /// Brings all up, and reports how long it took.
    fn bring_up(&mut self) -> Value {
        let (count, in_flight) = (
            number(&self.settings, "count"),
            number(&self.settings, "in_flight"),
        );
        let limit = Duration::from_secs(number(&self.settings, "limit_seconds"));
        let began = self.began.elapsed();
        let done = |all: &Self| all.answered + all.failed.len() as u64;
        while done(self) < count && self.began.elapsed() < began + limit {
            while self.begun < count && self.begun < done(self) + in_flight {
                let name = format!("p{}", self.begun);
                self.begun += 1;
                self.give(Input::Up { connection: &name });
            }
            self.turn(None);
        }
        let took = self.began.elapsed() - began;
        json!({
            "wanted": count,
            "answered": self.answered,
            "failed": self.failed.len(),
            "seconds": took.as_secs_f64(),
            "key_work_seconds": self.key_work.as_secs_f64(),
            "first_failure": self.failed.first(),
        })
    }

    /// Answers until standard input ends.
    fn hold(&mut self) {
        let input = std::io::stdin();
        while !self.turn(Some(&input)) {}
    }

    /// Waits for something to happen and handles it. True at the end of the input.
    fn turn(&mut self, input: Option<&std::io::Stdin>) -> bool {
        let now = self.began.elapsed();
        let echo = self
            .unanswered
            .first_key_value()
            .map(|((at, _), ())| *at + ECHO_INTERVAL);
        let next = echo.into_iter().chain(self.endpoint.next_at()).min();
        let time = next.map_or(Duration::from_secs(1), |at| at.saturating_sub(now));
        let time = time.min(Duration::from_secs(1));
        let limit = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut watched = Vec::new();
        for socket in &self.sockets {
            watched.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        if let Some(input) = input {
            watched.push(PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN));
        }
        // An interrupted wait is a short one.
        let _ = poll(&mut watched, Some(&limit));
        let has_ended = watched
            .get(2)
            .is_some_and(|input| !input.revents().is_empty());
        self.receive();
        if self
            .endpoint
            .next_at()
            .is_some_and(|at| at <= self.began.elapsed())
        {
            self.give(Input::Timer);
        }
        self.repeat_echoes();
        has_ended
    }

    fn receive(&mut self) {
        let mut room = [0; 65_536];
        for number in 0..self.sockets.len() {
            let to = self.sockets[number].local_addr().expect("a bound socket");
            while let Ok((len, from)) = self.sockets[number].recv_from(&mut room) {
                let datagram = &mut room[..len];
                let is_shared = to.port() == 4500;
                if is_shared && !datagram.starts_with(&NON_ESP_MARKER) {
                    self.take_esp(datagram);
                    continue;
                }
                let begin = if is_shared { NON_ESP_MARKER.len() } else { 0 };
                let bytes = &mut datagram[begin..];
                self.give(Input::Datagram { from, to, bytes });
            }
        }
    }

    fn take_esp(&mut self, datagram: &mut [u8]) {
        let Some((spi, _)) = datagram.split_first_chunk() else {
            return;
        };
        let spi = u32::from_be_bytes(*spi);
        let Some(tunnel) = self.tunnels.get_mut(&spi) else {
            return;
        };
        if tunnel.take(datagram)
            && let Some(sent) = tunnel.sent_at.take()
        {
            self.unanswered.remove(&(sent, spi));
            self.answered += 1;
        }
    }

    fn repeat_echoes(&mut self) {
        let now = self.began.elapsed();
        while let Some((&(at, spi), ())) = self.unanswered.first_key_value()
            && at + ECHO_INTERVAL <= now
        {
            self.unanswered.remove(&(at, spi));
            self.send_echo(spi);
        }
    }

    fn send_echo(&mut self, spi: u32) {
        let now = self.began.elapsed();
        let Some(tunnel) = self.tunnels.get_mut(&spi) else {
            return;
        };
        tunnel.sent_at = Some(now);
        self.unanswered.insert((now, spi), ());
        let packet = tunnel.echo_request();
        // One that does not arrive is sent again.
        let _ = self.sockets[1].send_to(&packet, (self.remote, 4500));
    }

    fn give(&mut self, input: Input<'_>) {
        let now = self.began.elapsed();
        let mut actions: VecDeque<_> = self.endpoint.handle(input, now, &mut random).into();
        while let Some(action) = actions.pop_front() {
            let now = self.began.elapsed();
            let more = match action {
                Action::Work(id, work) => {
                    let result = self.perform(work);
                    let done = Input::Done(Done { id, result });
                    self.endpoint.handle(done, now, &mut random)
                }
                Action::Install(child) => {
                    self.install(&child);
                    let (child, outcome) = (child.id, Ok(()));
                    let installed = Input::Installed { child, outcome };
                    self.endpoint.handle(installed, now, &mut random)
                }
                other => {
                    self.act(other);
                    continue;
                }
            };
            actions.extend(more);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send {
                from,
                to,
                datagrams,
            } => self.send(from, to, &datagrams),
            Action::Remove { child, .. } => {
                let spi = self.spis.remove(&child);
                let tunnel = spi.and_then(|spi| Some((spi, self.tunnels.remove(&spi)?)));
                if let Some((
                    spi,
                    Tunnel {
                        sent_at: Some(at), ..
                    },
                )) = tunnel
                {
                    self.unanswered.remove(&(at, spi));
                }
            }
            Action::Event(
                event @ (Event::Failed { .. } | Event::Refused { .. } | Event::Down { .. }),
            ) => {
                self.failed.push(event.to_string());
            }
            _ => {}
        }
    }

    fn send(&self, from: SocketAddr, to: SocketAddr, datagrams: &[Vec<u8>]) {
        let is_shared = from.port() == 4500;
        let socket = &self.sockets[usize::from(is_shared)];
        for datagram in datagrams {
            let marker = if is_shared { &NON_ESP_MARKER[..] } else { &[] };
            // One that does not arrive is sent again.
            let _ = socket.send_to(&[marker, datagram].concat(), to);
        }
    }

    fn perform(&mut self, work: Work) -> Result<ikev2::work::Output, ikev2::work::WorkError> {
        let began = Instant::now();
        let is_key_work = !matches!(
            work,
            Work::ChildKeys { .. } | Work::Forget(_) | Work::SharedSecret { .. }
        );
        let result = if work.needs_secrets() {
            self.secrets.perform(work, &mut random)
        } else {
            self.verifier.perform(work, unix_time())
        };
        if is_key_work {
            self.key_work += began.elapsed();
        }
        result
    }

    /// A pair of child SAs: an echo request for a new one, none for one that replaces another.
    fn install(&mut self, child: &ChildSa) {
        let mut word = [0; 8];
        random(&mut word);
        let tunnel = Tunnel::new(child, u64::from_be_bytes(word));
        self.tunnels.insert(child.inbound_spi, tunnel);
        self.spis.insert(child.id, child.inbound_spi);
        if child.replaces.is_some() || is_responder(&self.settings) {
            return;
        }
        if self.settings["echo"] == false {
            self.answered += 1;
        } else {
            self.send_echo(child.inbound_spi);
        }
    }
}

fn random(bytes: &mut [u8]) {
    aws_lc_rs::rand::fill(bytes).expect("random bytes of the system");
}

fn unix_time() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
