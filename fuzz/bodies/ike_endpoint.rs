//! A sequence of messages and commands between two endpoints: datagrams delivered in any order, lost, repeated, changed
//! or made up, and authentic messages of any content from a peer that breaks every rule.

use ikev2::{
    connection::{Child, Connection, LocalProof, RemoteProof, Start, Traffic},
    encrypted::{MessageKey, Sealer},
    endpoint::{Action, ChildId, ChildUse, Endpoint, Input, Settings, Use},
    identity::Pattern,
    message::{
        ExchangeType, Flags, Header, IkeSpi, PayloadType,
        payload::{AddressRange, Protocol, parse_decrypted},
    },
    negotiation::Offer,
    work::{Done, Output, Secrets, Work},
};
use ipsec::suite::{Secret, Suite};
use std::{
    collections::{BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Steps of one input.
const MAX_STEPS: usize = 64;
/// Datagrams that are kept to be repeated.
const MAX_SEEN_DATAGRAMS: usize = 64;
/// After this time both ends have given up whatever they waited for.
const REST: Duration = Duration::from_secs(600);

struct Host {
    endpoint: Endpoint,
    secrets: Secrets,
    pairs: BTreeSet<ChildId>,
}

struct Datagram {
    to: usize,
    bytes: Vec<u8>,
}

struct Pair {
    now: Duration,
    hosts: [Host; 2],
    on_the_way: VecDeque<Datagram>,
    seen: Vec<Datagram>,
    /// SPIs, and keys of the initiator and of the responder.
    keys: Vec<([u8; 8], [u8; 8], Suite, Suite)>,
    random: u64,
}

/// Takes `data` as steps.
///
/// # Panics
///
/// If an endpoint panics, installs or removes a pair twice, or keeps anything when both were taken down in the end.
pub fn check(data: &[u8]) {
    let mut pair = Pair::new();
    let mut data = Bytes(data);
    for _ in 0..MAX_STEPS {
        let Some(step) = data.next() else { break };
        pair.step(step, &mut data);
    }
    pair.take_down();
}

/// The bytes of the input, in order.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn or_zero(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// As many as the next byte says.
    fn part(&mut self) -> &'a [u8] {
        let len = usize::from(self.or_zero()).min(self.0.len());
        let (part, rest) = self.0.split_at(len);
        self.0 = rest;
        part
    }
}

fn address(host: usize) -> SocketAddr {
    let last = if host == 0 { 1 } else { 2 };
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)), 500)
}

fn traffic(net: u8) -> Vec<Traffic> {
    let first = Ipv4Addr::new(10, net, 0, 0);
    let last = Ipv4Addr::new(10, net, 255, 255);
    AddressRange::new(first.into(), last.into())
        .map(Traffic::of)
        .into_iter()
        .collect()
}

fn connection(host: usize) -> Connection {
    let names = ["a.example.org", "b.example.org"];
    let local = names[host].parse().expect("an identity");
    let remote = names[1 - host].parse().expect("an identity");
    let mut connection = Connection::new(
        "peer",
        (local, LocalProof::SharedSecret(1)),
        (Pattern::Exactly(remote), RemoteProof::SharedSecret(1)),
        true,
    );
    connection.local = vec![address(host).ip()];
    connection.remote = vec![address(1 - host).ip()];
    let offer = |text, protocol| vec![Offer::parse(text, protocol).expect("a suite")];
    connection.ike = offer("aes128gcm16-prfsha256-x25519", Protocol::IKE);
    connection.start = [Start::AtStart, Start::Wait][host];
    let (local, remote) = (traffic(host as u8), traffic(1 - host as u8));
    let mut child = Child::new("net", local, remote, true);
    child.offers = offer("aes128gcm16-x25519", Protocol::ESP);
    connection.children = vec![child];
    connection
}

impl Pair {
    /// Both are configured, and have exchanged all that they have to say.
    fn new() -> Self {
        let host = || {
            let mut secrets = Secrets::new();
            secrets.add_shared_secret(1, Secret::new(b"a secret of both ends".to_vec()));
            Host {
                endpoint: Endpoint::new(Settings::default()),
                secrets,
                pairs: BTreeSet::new(),
            }
        };
        let mut pair = Self {
            now: Duration::from_secs(1),
            hosts: [host(), host()],
            on_the_way: VecDeque::new(),
            seen: Vec::new(),
            keys: Vec::new(),
            random: 1,
        };
        for host in 0..2 {
            let connections = vec![Arc::new(connection(host))];
            pair.call(host, |endpoint, now, random| {
                endpoint.configure(connections, now, random)
            });
        }
        pair.deliver_all();
        pair
    }

    fn call(
        &mut self,
        host: usize,
        what: impl FnOnce(&mut Endpoint, Duration, &mut dyn FnMut(&mut [u8])) -> Vec<Action>,
    ) {
        let mut state = self.random;
        let mut fill = |bytes: &mut [u8]| {
            for byte in bytes {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
        };
        let actions = what(&mut self.hosts[host].endpoint, self.now, &mut fill);
        self.random = state;
        for action in actions {
            self.act(host, action);
        }
    }

    fn input(&mut self, host: usize, input: Input<'_>) {
        self.call(host, |endpoint, now, random| {
            endpoint.handle(input, now, random)
        });
    }

    fn act(&mut self, host: usize, action: Action) {
        match action {
            Action::Send { datagrams, .. } => {
                for bytes in datagrams {
                    let to = 1 - host;
                    if self.seen.len() < MAX_SEEN_DATAGRAMS {
                        let bytes = bytes.clone();
                        self.seen.push(Datagram { to, bytes });
                    }
                    self.on_the_way.push_back(Datagram { to, bytes });
                }
            }
            Action::Work(id, work) => {
                let spis = match &work {
                    Work::IkeKeys { spis, .. } => Some((spis.initiator, spis.responder)),
                    _ => None,
                };
                self.random = self.random.wrapping_add(1);
                let mut state = self.random;
                let mut fill = |bytes: &mut [u8]| {
                    for byte in bytes {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        *byte = (state >> 56) as u8;
                    }
                };
                let result = self.hosts[host].secrets.perform(work, &mut fill);
                if let (Some((initiator, responder)), Ok(Output::IkeKeys(parts))) = (spis, &result)
                {
                    let keys = (parts.initiator.clone(), parts.responder.clone());
                    self.keys.push((initiator, responder, keys.0, keys.1));
                }
                self.input(host, Input::Done(Done { id, result }));
            }
            Action::Install(sa) => {
                let child = sa.id;
                assert!(self.hosts[host].pairs.insert(child), "installed twice");
                let outcome = Ok(());
                self.input(host, Input::Installed { child, outcome });
            }
            Action::UseOutbound(id) => assert!(self.hosts[host].pairs.contains(&id)),
            Action::Remove { child, .. } => {
                assert!(self.hosts[host].pairs.remove(&child), "removed twice");
            }
            _ => {}
        }
    }

    fn deliver(&mut self, datagram: Datagram) {
        let Datagram { to, mut bytes } = datagram;
        let bytes = &mut bytes;
        let (from, to, host) = (address(1 - to), address(to), to);
        self.input(host, Input::Datagram { from, to, bytes });
    }

    fn deliver_all(&mut self) {
        for _ in 0..1000 {
            let Some(datagram) = self.on_the_way.pop_front() else {
                return;
            };
            self.deliver(datagram);
        }
    }

    /// Time passes, and what is due is done.
    fn wait(&mut self, time: Duration, is_delivering: bool) {
        let end = self.now + time;
        for _ in 0..2000 {
            let next = |host: usize| self.hosts[host].endpoint.next_at();
            let due = (0..2).filter_map(|host| next(host).map(|at| (at, host)));
            let Some((at, host)) = due.min().filter(|(at, _)| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            self.input(host, Input::Timer);
            if is_delivering {
                self.deliver_all();
            }
        }
        self.now = end;
    }

    fn step(&mut self, step: u8, data: &mut Bytes<'_>) {
        let host = usize::from(step & 1);
        let connection = "peer";
        match step >> 1 & 15 {
            0 => self.deliver_all(),
            1 => {
                let datagram = self.on_the_way.pop_front();
                datagram
                    .into_iter()
                    .for_each(|datagram| self.deliver(datagram));
            }
            2 => drop(self.on_the_way.pop_front()),
            3 => {
                let datagram = self.on_the_way.pop_back();
                datagram
                    .into_iter()
                    .for_each(|datagram| self.deliver(datagram));
            }
            4 => self.repeat(usize::from(data.or_zero()), None),
            5 => self.repeat(
                usize::from(data.or_zero()),
                Some((data.or_zero(), data.or_zero())),
            ),
            6 => {
                let bytes = data.part().to_vec();
                self.deliver(Datagram { to: host, bytes });
            }
            7 | 8 => self.authentic(host, data),
            9 => self.wait(
                Duration::from_millis(u64::from(data.or_zero()) * 100),
                false,
            ),
            10 => self.wait(Duration::from_secs(u64::from(data.or_zero()) * 20), true),
            what @ (11 | 12) => {
                let ike = what == 12;
                self.input(host, Input::Rekey { connection, ike });
            }
            13 => self.input(host, Input::Up { connection }),
            14 => self.input(host, Input::Down { connection }),
            _ => match data.or_zero() {
                u8::MAX => {
                    let remote = address(1 - host);
                    self.input(host, Input::Recover { connection, remote });
                }
                what => self.report(host, what),
            },
        }
    }

    fn repeat(&mut self, which: usize, change: Option<(u8, u8)>) {
        let len = self.seen.len().max(1);
        let Some(Datagram { to, bytes }) = self.seen.get(which % len) else {
            return;
        };
        let (to, mut bytes) = (*to, bytes.clone());
        if let Some((at, flip)) = change {
            let len = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(usize::from(at) % len) {
                *byte ^= flip;
            }
        }
        self.deliver(Datagram { to, bytes });
    }

    /// What the data plane may report about a pair.
    fn report(&mut self, host: usize, which: u8) {
        let pairs = &self.hosts[host].pairs;
        let nth = usize::from(which >> 2) % pairs.len().max(1);
        let Some(child) = pairs.iter().nth(nth).copied() else {
            return;
        };
        let uses = [
            Use::SoftLimit,
            Use::HardLimit,
            Use::Received,
            Use::FirstReceived,
        ];
        let what = uses[usize::from(which & 3)];
        self.input(host, Input::ChildUse(&[ChildUse { child, what }]));
    }

    /// A message with the keys of an IKE SA and content from the input, as if the peer of `host` had sent it.
    fn authentic(&mut self, host: usize, data: &mut Bytes<'_>) {
        let (which, flags, first) = (data.or_zero(), data.or_zero(), data.or_zero());
        let content = data.part();
        let newest = self.keys.len().saturating_sub(1 + usize::from(which & 3));
        let Some((initiator_spi, responder_spi, initiator, responder)) = self.keys.get(newest)
        else {
            return;
        };
        let is_initiator = flags & 1 != 0;
        let suite = if is_initiator { initiator } else { responder };
        let header = Header {
            initiator_spi: IkeSpi(*initiator_spi),
            responder_spi: IkeSpi(*responder_spi),
            exchange: ExchangeType(ExchangeType::IKE_SA_INIT.0 + (flags >> 2 & 3)),
            flags: Flags {
                initiator: is_initiator,
                version: false,
                response: flags & 2 != 0,
            },
            message_id: u32::from(flags >> 4),
        };
        let (Ok(key), Ok(payloads)) = (
            MessageKey::new(suite),
            parse_decrypted(PayloadType(first), content),
        ) else {
            return;
        };
        let mut zeroes = |bytes: &mut [u8]| bytes.fill(0);
        if let Ok(bytes) = Sealer::new(key).seal(&header, &payloads, &mut zeroes) {
            self.deliver(Datagram { to: host, bytes });
        }
    }

    /// Both ends are taken down, and nothing is left.
    fn take_down(&mut self) {
        let connection = "peer";
        self.input(0, Input::Down { connection });
        self.input(1, Input::Down { connection });
        self.deliver_all();
        self.wait(REST, true);
        for host in &self.hosts {
            let reports = host.endpoint.report(self.now);
            let all_down = reports.iter().all(|report| report.ike.is_empty());
            assert!(all_down, "{reports:#?}");
            assert!(host.pairs.is_empty(), "{:?}", host.pairs);
            assert_eq!(host.secrets.held(), (0, 0));
        }
    }
}
