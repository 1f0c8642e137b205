//! Two endpoints that talk in memory: every work is done at once, every datagram arrives unless a test takes it away.

use super::*;
use crate::{
    certificate::Trust,
    connection::{Child, ChildMode, Encapsulation, LocalProof, RemoteProof, Start, Traffic},
    identity::Identity,
    message::payload::AddressRange,
    negotiation::Offer,
    signatures::{PrivateKey, choice::RsaPadding},
    work::{Secrets, Verifier},
};
use ipsec::suite::Secret;
use std::{
    collections::{HashMap as Map, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

mod failures;
mod handshakes;
mod lives;
mod strangers;

const SECRET: u32 = 1;
const KEY: u32 = 2;
const TRUST: u32 = 3;

/// Random bytes that are the same in each run.
struct Dice(u64);

impl Dice {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            // The generator of Knuth's MMIX.
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

/// One gateway: an endpoint, its secrets, and what it has done.
struct Host {
    endpoint: Endpoint,
    secrets: Secrets,
    verifier: Verifier,
    address: IpAddr,
    events: Vec<Event>,
    installed: Map<ChildId, ChildSa>,
    outbox: VecDeque<Packet>,
    dice: Dice,
    unix_time: u64,
    refuses_children: bool,
}

#[derive(Clone, Debug)]
struct Packet {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// What the network does with a packet: it may change it, or take it away.
type Path<'a> = &'a mut dyn FnMut(Packet) -> Option<Packet>;

/// The outside of the NAT in front of the left host.
const OUTSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

/// What a NAT in front of `inside` makes of a packet: ports are higher by `offset` outside.
fn behind_nat(inside: IpAddr, mut packet: Packet, offset: u16) -> Option<Packet> {
    if packet.from.ip() == inside {
        packet.from = SocketAddr::new(OUTSIDE, packet.from.port() + offset);
    } else {
        assert_eq!(packet.to.ip(), OUTSIDE);
        packet.to = SocketAddr::new(inside, packet.to.port() - offset);
    }
    Some(packet)
}

impl Host {
    fn new(address: &str, settings: Settings) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let mut seed = [0; 8];
        seed.copy_from_slice(&format!("{address:>8}").as_bytes()[..8]);
        Self {
            endpoint: Endpoint::new(settings),
            secrets: Secrets::new(),
            verifier: Verifier::new(),
            address,
            events: Vec::new(),
            installed: Map::new(),
            outbox: VecDeque::new(),
            dice: Dice(u64::from_be_bytes(seed)),
            unix_time: vectors()["now"].as_u64().unwrap(),
            refuses_children: false,
        }
    }

    fn configure(&mut self, connections: Vec<Connection>, now: Duration) {
        let connections = connections.into_iter().map(Arc::new).collect();
        let actions = self
            .endpoint
            .configure(connections, now, &mut |bytes| self.dice.fill(bytes));
        self.act(actions, now);
    }

    fn give(&mut self, input: Input<'_>, now: Duration) {
        let actions = self
            .endpoint
            .handle(input, now, &mut |bytes| self.dice.fill(bytes));
        self.act(actions, now);
    }

    fn act(&mut self, actions: Vec<Action>, now: Duration) {
        for action in actions {
            match action {
                Action::Send {
                    from,
                    to,
                    datagrams,
                } => {
                    let from = if from.ip().is_unspecified() {
                        SocketAddr::new(self.address, from.port())
                    } else {
                        from
                    };
                    let packets = datagrams
                        .into_iter()
                        .map(|bytes| Packet { from, to, bytes });
                    self.outbox.extend(packets);
                }
                Action::Work(id, work) => {
                    let result = if work.needs_secrets() {
                        self.secrets
                            .perform(work, &mut |bytes| self.dice.fill(bytes))
                    } else {
                        self.verifier.perform(work, self.unix_time)
                    };
                    self.give(Input::Done(Done { id, result }), now);
                }
                Action::Install(child) => {
                    let id = child.id;
                    let outcome = if self.refuses_children {
                        Err("no room".to_owned())
                    } else {
                        self.installed.insert(id, *child);
                        Ok(())
                    };
                    self.give(Input::Installed { child: id, outcome }, now);
                }
                Action::Remove { child, .. } => {
                    self.installed.remove(&child);
                }
                Action::UseOutbound(child) => assert!(self.installed.contains_key(&child)),
                Action::LogKeys(_) => {}
                Action::Event(event) => self.events.push(event),
            }
        }
    }

    fn reports(&self, now: Duration) -> Vec<PeerReport> {
        self.endpoint.report(now)
    }

    fn is_up(&self) -> bool {
        self.reports(Duration::ZERO)
            .iter()
            .any(|report| report.state == PeerState::Up)
    }

    fn ups(&self) -> usize {
        let is_up = |event: &&Event| matches!(event, Event::Up { .. });
        self.events.iter().filter(is_up).count()
    }

    /// The story of the connection as one text.
    fn story(&self, now: Duration) -> String {
        let story = self.endpoint.why("peer", now).expect("a story");
        let texts: Vec<_> = story.steps.into_iter().map(|step| step.text).collect();
        texts.join("\n")
    }
}

/// Two hosts and the time.
struct Pair {
    left: Host,
    right: Host,
    now: Duration,
}

impl Pair {
    fn new() -> Self {
        Self::with_settings(Settings::default())
    }

    fn with_settings(settings: Settings) -> Self {
        Self {
            left: Host::new("192.0.2.1", settings.clone()),
            right: Host::new("198.51.100.7", settings),
            now: Duration::from_secs(1000),
        }
    }

    /// Configures both sides; the left one begins.
    fn configure(&mut self, left: Connection, right: Connection) {
        self.right.configure(vec![right], self.now);
        self.left.configure(vec![left], self.now);
    }

    /// Passes packets on until there are none.
    fn settle(&mut self) {
        self.settle_over(&mut Some);
    }

    fn settle_over(&mut self, path: Path<'_>) {
        for _ in 0..10_000 {
            let packet = self
                .left
                .outbox
                .pop_front()
                .or_else(|| self.right.outbox.pop_front());
            let Some(packet) = packet else { return };
            let Some(mut packet) = path(packet) else {
                continue;
            };
            let host = if packet.to.ip() == self.left.address {
                &mut self.left
            } else if packet.to.ip() == self.right.address {
                &mut self.right
            } else {
                continue;
            };
            let input = Input::Datagram {
                from: packet.from,
                to: packet.to,
                bytes: &mut packet.bytes,
            };
            host.give(input, self.now);
        }
        panic!("the two sides never stop talking");
    }

    /// Goes on to the next timer of either side, at most to `until`.
    fn run_until(&mut self, until: Duration, path: Path<'_>) {
        self.settle_over(path);
        loop {
            let next = [&self.left, &self.right].map(|host| host.endpoint.next_at());
            match next.into_iter().flatten().min() {
                Some(at) if at <= until => self.now = self.now.max(at),
                _ => break,
            }
            self.left.give(Input::Timer, self.now);
            self.right.give(Input::Timer, self.now);
            self.settle_over(path);
        }
        self.now = until;
    }

    fn run_for(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        self.run_until(until, &mut Some);
    }

    /// Both are up, and what one side sends with, the other receives with.
    fn assert_agreed(&self, children: usize) {
        assert!(self.left.is_up(), "{}", self.left.story(self.now));
        assert!(self.right.is_up(), "{}", self.right.story(self.now));
        assert_eq!(self.left.installed.len(), children);
        assert_eq!(self.right.installed.len(), children);
        for left in self.left.installed.values() {
            let mut others = self.right.installed.values();
            let right = others
                .find(|right| right.inbound_spi == left.outbound_spi)
                .expect("the other half");
            assert_eq!(left.inbound_spi, right.outbound_spi);
            assert!(left.inbound == right.outbound && left.outbound == right.inbound);
            assert_eq!(left.local_traffic, right.remote_traffic);
            assert_eq!(left.remote_traffic, right.local_traffic);
            assert_eq!((left.mode, left.protocol), (right.mode, right.protocol));
            assert_eq!(
                left.extended_sequence_numbers,
                right.extended_sequence_numbers
            );
        }
    }

    /// Nothing is left: no child, no key exchange, no SK_d.
    fn assert_clean(&self) {
        for host in [&self.left, &self.right] {
            assert!(host.installed.is_empty());
            assert_eq!(host.secrets.held(), (0, 0));
            assert!(host.endpoint.sas.is_empty());
            assert!(host.endpoint.half_open.is_empty());
            assert!(host.endpoint.shared.works.is_empty());
            assert!(host.endpoint.shared.owners.is_empty());
        }
    }
}

fn vectors() -> serde_json::Value {
    let text = include_str!("../../tests/vectors/endpoints.json");
    serde_json::from_str(text).expect("as endpoints.py writes it")
}

fn bytes(hex: &serde_json::Value) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_str()
        .unwrap()
        .as_bytes()
        .chunks(2)
        .map(pair)
        .collect()
}

fn network(text: &str) -> Traffic {
    let (first, last) = text.split_once('-').unwrap();
    Traffic::of(AddressRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap())
}

const LEFT_NETWORK: &str = "10.1.0.0-10.1.255.255";
const RIGHT_NETWORK: &str = "10.2.0.0-10.2.255.255";

/// Connections of both sides by pre-shared key: the left one begins.
fn by_secret(pair: &mut Pair, left: &[u8], right: &[u8]) -> (Connection, Connection) {
    let secret = |bytes: &[u8]| Secret::new(bytes.to_vec());
    pair.left.secrets.add_shared_secret(SECRET, secret(left));
    pair.right.secrets.add_shared_secret(SECRET, secret(right));
    let proofs = (
        LocalProof::SharedSecret(SECRET),
        RemoteProof::SharedSecret(SECRET),
    );
    connections(
        pair,
        ("left.example.org", proofs.clone()),
        ("right.example.org", proofs),
    )
}

type End<'a> = (&'a str, (LocalProof, RemoteProof));

fn connections(pair: &Pair, left: End<'_>, right: End<'_>) -> (Connection, Connection) {
    let connection =
        |own: &End<'_>, peer: &End<'_>, addresses: [IpAddr; 2], networks: [&str; 2]| {
            let local_id: Identity = own.0.parse().unwrap();
            let local = (local_id, own.1.0.clone());
            let remote = (peer.0.parse().unwrap(), own.1.1.clone());
            let mut connection = Connection::new("peer", local, remote, true);
            connection.local = vec![addresses[0]];
            connection.remote = vec![addresses[1]];
            connection.jitter_percent = 0;
            let [own, peer] = networks.map(|text| vec![network(text)]);
            connection.children = vec![Child::new("net", own, peer, true)];
            connection
        };
    let (a, b) = (pair.left.address, pair.right.address);
    let networks = [LEFT_NETWORK, RIGHT_NETWORK];
    let one = connection(&left, &right, [a, b], networks);
    let mut other = connection(&right, &left, [b, a], [networks[1], networks[0]]);
    other.start = Start::Wait;
    (one, other)
}

/// Gives a side a key of this kind and the test's CA; returns its identity and proofs.
fn certified(
    host: &mut Host,
    kind: &str,
    padding: RsaPadding,
) -> (String, (LocalProof, RemoteProof)) {
    let vectors = vectors();
    let end = &vectors["ends"][kind];
    let key = PrivateKey::from_pem(end["key"].as_str().unwrap().as_bytes()).unwrap();
    host.secrets.add_private_key(KEY, key);
    let mut trust = Trust::default();
    trust.add_roots(&bytes(&vectors["ca"])).unwrap();
    let authorities = trust.key_hashes();
    host.verifier.add_trust(TRUST, trust);
    let local = LocalProof::Certificate {
        key: KEY,
        chain: vec![bytes(&end["certificate"])],
        padding,
    };
    let remote = RemoteProof::Certificate {
        trust: TRUST,
        authorities,
    };
    (end["name"].as_str().unwrap().to_owned(), (local, remote))
}

fn by_certificate(pair: &mut Pair, left: &str, right: &str) -> (Connection, Connection) {
    let left = certified(&mut pair.left, left, RsaPadding::Pss);
    let right = certified(&mut pair.right, right, RsaPadding::Pss);
    connections(pair, (&left.0, left.1.clone()), (&right.0, right.1.clone()))
}
