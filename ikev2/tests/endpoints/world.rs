//! Two hosts, a network and a virtual clock.

use crate::{
    hostile::Hostile,
    network::{Nat, Packet, Path},
    plane::{Frame, Plane},
    random::SeededRandom,
};
use ikev2::{
    connection::{Child, Connection, LocalProof, RemoteProof, Start, Traffic},
    endpoint::{Action, ChildId, ChildUse, Endpoint, Event, Input, Settings, Use},
    identity::{Identity, Pattern},
    message::payload::{AddressRange, Protocol},
    negotiation::Offer,
    work::{Done, Output, Secrets, Work, WorkError},
};
use ipsec::suite::Secret;
use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

/// The one connection of each host.
pub const NAME: &str = "peer";
/// Its first child.
pub const CHILD: &str = "net";

const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// One end.
pub struct Host {
    pub endpoint: Endpoint,
    pub secrets: Secrets,
    pub plane: Plane,
    pub events: Vec<Event>,
    random: SeededRandom,
    /// The first octet of nonces from now on.
    pub nonce_begins_with: Option<u8>,
    /// The data plane does one thing after the other.
    plane_free_at: Duration,
}

/// What happens at a time.
enum Happening {
    Arrives(Packet),
    Done(usize, Done),
    /// The data plane of a host does what the endpoint wanted.
    Plane(usize, Box<Action>),
    FirstReceived(usize, ChildId),
    SendFrame(usize),
    FrameArrives(usize, Frame),
}

/// Everything.
pub struct World {
    pub now: Duration,
    pub hosts: [Host; 2],
    pub path: Path,
    pub nat: Option<Nat>,
    pub hostile: Option<Hostile>,
    pub random: SeededRandom,
    queue: BTreeMap<(Duration, u64), Happening>,
    next_number: u64,
    /// Key work and the data plane take up to this long.
    pub slowness: Duration,
    /// How long frames are on the way.
    pub frame_delay: Duration,
    /// A frame from each host so often.
    frames_every: Option<Duration>,
    /// Datagrams are kept back while this is on.
    is_holding: bool,
    pub held: Vec<Packet>,
    /// Every stage and state that was seen.
    pub seen: HashSet<String>,
    /// How often a key exchange has started again: its children are named apart from those before.
    restarts: u64,
    /// The initiator's SPI of an IKE SA whose datagrams are lost from now on.
    lost_ike: Option<[u8; 8]>,
}

/// What both hosts have configured, but for who is who.
#[derive(Clone)]
pub struct Setup {
    pub seed: u64,
    pub ike: [&'static str; 2],
    pub esp: [&'static str; 2],
    pub start: [Start; 2],
    pub change: fn(&mut Connection),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            ike: ["aes256gcm16-prfsha256-x25519"; 2],
            esp: ["aes256gcm16-x25519"; 2],
            start: [Start::AtStart, Start::Wait],
            change: |_| {},
        }
    }
}

fn traffic(text: &str) -> Vec<Traffic> {
    let first: std::net::Ipv4Addr = text.parse().expect("an address");
    let last = std::net::Ipv4Addr::from_bits(first.to_bits() | 0xffff);
    let range = AddressRange::new(first.into(), last.into()).expect("a range");
    vec![Traffic::of(range)]
}

fn connection(setup: &Setup, host: usize) -> Connection {
    let identity = |host: usize| -> Identity {
        let text = ["a.example.org", "b.example.org"][host];
        text.parse().expect("an identity")
    };
    let mut connection = Connection::new(
        NAME,
        (identity(host), LocalProof::SharedSecret(1)),
        (
            Pattern::Exactly(identity(1 - host)),
            RemoteProof::SharedSecret(1),
        ),
        true,
    );
    let address = |host: usize| ADDRESSES[host].parse().expect("an address");
    connection.local = vec![address(host)];
    connection.remote = vec![address(1 - host)];
    connection.ike = vec![Offer::parse(setup.ike[host], Protocol::IKE).expect("a suite")];
    connection.start = setup.start[host];
    let networks = ["10.1.0.0", "10.2.0.0"];
    let (local, remote) = (traffic(networks[host]), traffic(networks[1 - host]));
    let mut child = Child::new(CHILD, local, remote, true);
    child.offers = vec![Offer::parse(setup.esp[host], Protocol::ESP).expect("a suite")];
    connection.children = vec![child];
    (setup.change)(&mut connection);
    connection
}

impl World {
    /// Both hosts are configured; nothing has been sent yet.
    pub fn new(setup: &Setup) -> Self {
        let host = |number: u64| {
            let mut secrets = Secrets::new();
            secrets.add_shared_secret(1, Secret::new(b"a secret of both ends".to_vec()));
            Host {
                endpoint: Endpoint::new(Settings::default()),
                secrets,
                plane: Plane::default(),
                events: Vec::new(),
                random: SeededRandom::new(setup.seed * 2 + number),
                nonce_begins_with: None,
                plane_free_at: Duration::ZERO,
            }
        };
        let mut world = Self {
            now: Duration::from_secs(1),
            hosts: [host(0), host(1)],
            path: Path::GOOD,
            nat: None,
            hostile: None,
            random: SeededRandom::new(setup.seed ^ 0x5eed),
            queue: BTreeMap::new(),
            next_number: 0,
            slowness: Duration::ZERO,
            frame_delay: Duration::from_millis(8),
            frames_every: None,
            is_holding: false,
            held: Vec::new(),
            seen: HashSet::new(),
            restarts: 0,
            lost_ike: None,
        };
        for host in 0..2 {
            let connection = Arc::new(connection(setup, host));
            world.call(host, |endpoint, now, random| {
                endpoint.configure(vec![connection], now, random)
            });
        }
        world
    }

    /// Both hosts, with the connection up.
    pub fn up(setup: &Setup) -> Self {
        let mut world = Self::new(setup);
        world.run_for(Duration::from_secs(2));
        for host in &world.hosts {
            assert_eq!(host.plane.pairs.len(), 1, "{:?}", host.events);
        }
        world
    }

    /// The key exchange of a host ends without a word and starts again. Its data plane carries on.
    pub fn restart(&mut self, host: usize, setup: &Setup) {
        self.queue.retain(|_, happening| {
            let of = match happening {
                Happening::Done(of, _) | Happening::Plane(of, _) => *of,
                Happening::FirstReceived(of, _) => *of,
                _ => return true,
            };
            of != host
        });
        self.restarts += 1;
        let settings = Settings {
            first_child: self.restarts << 32,
            ..Settings::default()
        };
        let mut secrets = Secrets::new();
        secrets.add_shared_secret(1, Secret::new(b"a secret of both ends".to_vec()));
        self.hosts[host].endpoint = Endpoint::new(settings);
        self.hosts[host].secrets = secrets;
        let connection = Arc::new(connection(setup, host));
        self.call(host, |endpoint, now, random| {
            endpoint.configure(vec![connection], now, random)
        });
    }

    /// The first host is behind a NAT.
    pub fn behind_nat(setup: &Setup) -> Self {
        let mut world = Self::new(setup);
        let nat = crate::seeds::nat();
        world.nat = Some(nat);
        let mut connection = connection(setup, 0);
        connection.local = vec![nat.inside];
        world.call(0, |endpoint, now, random| {
            endpoint.configure(vec![Arc::new(connection)], now, random)
        });
        world
    }

    fn push(&mut self, at: Duration, happening: Happening) {
        self.next_number += 1;
        self.queue.insert((at, self.next_number), happening);
    }

    /// Has an endpoint do something, and does what it wants.
    pub fn call(
        &mut self,
        host: usize,
        what: impl FnOnce(&mut Endpoint, Duration, &mut dyn FnMut(&mut [u8])) -> Vec<Action>,
    ) {
        let Host {
            endpoint,
            random,
            nonce_begins_with,
            ..
        } = &mut self.hosts[host];
        let mut fill = |bytes: &mut [u8]| {
            random.fill(bytes);
            // Of all that an endpoint draws, nonces alone have 32 bytes.
            if let (32, Some(first)) = (bytes.len(), *nonce_begins_with) {
                bytes[0] = first;
            }
        };
        let actions = what(endpoint, self.now, &mut fill);
        for action in actions {
            self.act(host, action);
        }
        self.note_states(host);
    }

    /// Gives an endpoint an input.
    pub fn input(&mut self, host: usize, input: Input<'_>) {
        self.call(host, |endpoint, now, random| {
            endpoint.handle(input, now, random)
        });
    }

    fn some_time(&mut self) -> Duration {
        let most = self.slowness.as_micros() as u64;
        Duration::from_micros(self.random.below(most + 1))
    }

    fn act(&mut self, host: usize, action: Action) {
        match action {
            Action::Send {
                from,
                to,
                datagrams,
            } => {
                for bytes in datagrams {
                    self.send(Packet { from, to, bytes });
                }
            }
            Action::Work(id, work) => {
                let at = self.now + self.some_time();
                let result = self.perform(host, work);
                self.push(at, Happening::Done(host, Done { id, result }));
            }
            Action::Event(event) => self.hosts[host].events.push(event),
            plane => {
                let at = self.now + self.some_time();
                let at = at.max(self.hosts[host].plane_free_at);
                self.hosts[host].plane_free_at = at;
                self.push(at, Happening::Plane(host, Box::new(plane)));
            }
        }
    }

    fn perform(&mut self, host: usize, work: Work) -> Result<Output, WorkError> {
        let Host {
            secrets, random, ..
        } = &mut self.hosts[host];
        secrets.perform(work, &mut |bytes: &mut [u8]| random.fill(bytes))
    }

    fn send(&mut self, mut packet: Packet) {
        if let Some(nat) = &self.nat {
            nat.outward(&mut packet);
        }
        if self.is_holding {
            self.held.push(packet);
            return;
        }
        let forged = match &mut self.hostile {
            Some(hostile) => hostile.sees(&packet, &mut self.random),
            None => Vec::new(),
        };
        for at in self.path.arrivals(self.now, &mut self.random) {
            self.push(at, Happening::Arrives(packet.clone()));
        }
        for packet in forged {
            let at = self.now + Duration::from_millis(self.random.below(2000));
            self.push(at, Happening::Arrives(packet));
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrives(packet) => self.deliver(packet),
            Happening::Done(host, done) => self.input(host, Input::Done(done)),
            Happening::Plane(host, action) => self.plane_acts(host, *action),
            Happening::FirstReceived(host, child) => {
                let what = Use::FirstReceived;
                self.input(host, Input::ChildUse(&[ChildUse { child, what }]));
            }
            Happening::SendFrame(host) => {
                if let Some(frame) = self.hosts[host].plane.send() {
                    let at = self.now + self.frame_delay;
                    self.push(at, Happening::FrameArrives(1 - host, frame));
                }
                if let Some(every) = self.frames_every {
                    self.push(self.now + every, Happening::SendFrame(host));
                }
            }
            Happening::FrameArrives(host, frame) => {
                if let Some(first) = self.hosts[host].plane.receive(&frame) {
                    let at = self.now + self.some_time();
                    self.push(at, Happening::FirstReceived(host, first));
                }
            }
        }
    }

    fn plane_acts(&mut self, host: usize, action: Action) {
        let plane = &mut self.hosts[host].plane;
        match action {
            Action::Install(sa) => {
                let child = sa.id;
                plane.install(*sa);
                let outcome = Ok(());
                self.input(host, Input::Installed { child, outcome });
            }
            Action::UseOutbound(id) => plane.use_outbound(id),
            Action::Remove { child, .. } => plane.remove(child),
            _ => {}
        }
    }

    /// The datagrams of an IKE SA, by its initiator's SPI, are lost from now on.
    pub fn drop_datagrams_of(&mut self, initiator_spi: [u8; 8]) {
        self.lost_ike = Some(initiator_spi);
    }

    /// A datagram arrives, wherever it came from.
    pub fn deliver(&mut self, mut packet: Packet) {
        if self
            .lost_ike
            .is_some_and(|spi| packet.bytes.starts_with(&spi))
        {
            return;
        }
        if let Some(nat) = &self.nat {
            nat.inward(&mut packet);
        }
        let address = |host: usize| -> std::net::IpAddr { self.address(host).ip() };
        let Some(host) = (0..2).find(|host| address(*host) == packet.to.ip()) else {
            return;
        };
        let Packet {
            from,
            to,
            mut bytes,
        } = packet;
        let bytes = &mut bytes;
        self.input(host, Input::Datagram { from, to, bytes });
    }

    fn address(&self, host: usize) -> SocketAddr {
        let address = match (&self.nat, host) {
            (Some(nat), 0) => nat.inside,
            _ => ADDRESSES[host].parse().expect("an address"),
        };
        SocketAddr::new(address, 500)
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    /// The next thing that happens, if it does before `end`.
    fn step(&mut self, end: Duration) -> bool {
        let queued = self.queue.first_key_value().map(|(key, _)| key.0);
        let timer = |host: usize| self.hosts[host].endpoint.next_at();
        let timers = [timer(0), timer(1)];
        let next = queued.into_iter().chain(timers.into_iter().flatten()).min();
        let Some(next) = next.filter(|next| *next <= end) else {
            return false;
        };
        self.now = self.now.max(next);
        if queued == Some(next) {
            if let Some((_, happening)) = self.queue.pop_first() {
                self.happen(happening);
            }
            return true;
        }
        for (host, timer) in timers.into_iter().enumerate() {
            if timer.is_some_and(|at| at <= next) {
                self.input(host, Input::Timer);
            }
        }
        true
    }

    /// From now on each host sends a frame so often.
    pub fn send_frames(&mut self, every: Duration) {
        self.frames_every = Some(every);
        for host in 0..2 {
            self.push(self.now, Happening::SendFrame(host));
        }
    }

    pub fn stop_frames(&mut self) {
        self.frames_every = None;
    }

    /// The data plane of a host does nothing for so long.
    pub fn delay_plane(&mut self, host: usize, time: Duration) {
        self.hosts[host].plane_free_at = self.now + time;
    }

    /// Keeps datagrams back from now on.
    pub fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Lets datagrams pass again, those kept back first.
    pub fn release(&mut self) {
        self.is_holding = false;
        for host in &mut self.hosts {
            host.nonce_begins_with = None;
        }
        for packet in std::mem::take(&mut self.held) {
            self.deliver(packet);
        }
    }

    /// How many rekeys of child SAs a host has reported.
    pub fn rekeyed_children(&self, host: usize) -> usize {
        let events = self.hosts[host].events.iter();
        events
            .filter(|event| matches!(event, Event::ChildRekeyed { .. }))
            .count()
    }

    /// Lets datagrams pass again; those kept back stay so.
    pub fn stop_holding(&mut self) {
        self.is_holding = false;
    }

    /// Takes the oldest datagram that a host has sent and that was kept back.
    pub fn take_from(&mut self, host: usize) -> Packet {
        let ip = self.address(host).ip();
        let place = self.held.iter().position(|packet| packet.from.ip() == ip);
        self.held
            .remove(place.expect("the host has sent a datagram"))
    }

    /// Delivers the oldest datagram of a host, and lets the receiver do what it wants to do at once.
    pub fn pass_from(&mut self, host: usize) {
        let packet = self.take_from(host);
        self.deliver(packet);
        self.run_for(Duration::from_millis(1));
    }

    /// How many datagrams of a host are kept back.
    pub fn held_from(&self, host: usize) -> usize {
        let ip = self.address(host).ip();
        let held = self.held.iter().filter(|packet| packet.from.ip() == ip);
        held.count()
    }

    /// Asks a host to rekey its child SAs, and lets it do its key work.
    pub fn rekey_child(&mut self, host: usize) {
        self.rekey(host, false);
    }

    /// Asks a host to rekey the IKE SA, and lets it do its key work.
    pub fn rekey_ike(&mut self, host: usize) {
        self.rekey(host, true);
    }

    fn rekey(&mut self, host: usize, ike: bool) {
        let connection = NAME;
        self.input(host, Input::Rekey { connection, ike });
        self.run_for(Duration::from_millis(1));
    }

    /// Counts stages and states.
    fn note_states(&mut self, host: usize) {
        for report in self.hosts[host].endpoint.report(self.now) {
            let state = format!("{:?}", report.state);
            let word = state.split([' ', '{']).next().unwrap_or_default();
            self.seen.insert(format!("peer {word}"));
            for child in report.ike.iter().flat_map(|ike| &ike.children) {
                self.seen.insert(format!("child {:?}", child.stage));
            }
            self.seen.insert(format!("{} IKE SAs", report.ike.len()));
        }
    }
}
