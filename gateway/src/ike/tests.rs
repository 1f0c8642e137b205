//! Two gateways' ike and key processes, each on a thread of its own, over UDP on the loopback device; the main
//! processes are this test.

use super::ike_process::IkeProcess;
use super::key_process::KeyProcess;
use super::link::Link;
use super::message::{Configuration, FromIke, Reported, SecretEntry, ToIke};
use crate::routes::firewall::tests::kernel::{in_a_namespace, isolated, said};
use dataplane::io::udp::IkeSocket;
use ikev2::connection::{Child, Connection, LocalProof, RemoteProof, Start, Traffic};
use ikev2::endpoint::{ChildSa, Event, PeerState, StateChange};
use ikev2::message::payload::AddressRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const LEFT: &str = "127.0.0.1";
const RIGHT: &str = "127.0.0.2";

/// The number of the pre-shared key.
const KEY: u32 = 7;

/// Longer than any handshake here takes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// What a test's main process has heard.
#[derive(Default)]
struct Heard {
    children: Vec<ChildSa>,
    events: Vec<Event>,
    states: Vec<StateChange>,
    others: Vec<FromIke>,
}

struct Side {
    link: Link,
    heard: Heard,
    ike: JoinHandle<io::Result<()>>,
    keys: JoinHandle<io::Result<()>>,
}

fn stream_pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

fn socket(address: &str, port: u16) -> IkeSocket {
    let socket = UdpSocket::bind((address, port)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let on: c_int = 1;
    // SAFETY: the kernel reads four bytes from where they are.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            (&raw const on).cast(),
            4,
        )
    };
    assert_eq!(outcome, 0);
    IkeSocket::over(OwnedFd::from(socket)).unwrap()
}

impl Side {
    fn start(address: &str) -> Self {
        let (main_to_ike, ike) = stream_pair();
        let (main_to_keys, keys) = stream_pair();
        let (ike_to_keys, keys_to_ike) = stream_pair();
        let sockets = [500, 4500].map(|port| socket(address, port)).into();
        let process = IkeProcess::new(ike, ike_to_keys.into(), sockets).unwrap();
        let ike = std::thread::spawn(move || process.serve());
        let process = KeyProcess::new(keys, keys_to_ike.into(), 2).unwrap();
        let keys = std::thread::spawn(move || process.serve());
        Self {
            link: Link::new(main_to_ike, main_to_keys).unwrap(),
            heard: Heard::default(),
            ike,
            keys,
        }
    }

    fn configure(&mut self, connection: Connection, secret: &[u8]) {
        let configuration = Configuration {
            connections: vec![connection],
            log_keys: true,
            ..Configuration::default()
        };
        let secret = Zeroizing::new(secret.to_vec());
        let secrets = vec![SecretEntry::SharedSecret(KEY, secret)];
        assert!(self.link.configure(configuration, secrets));
    }

    /// Takes what has come; an error once the processes have gone.
    fn turn(&mut self) -> io::Result<()> {
        while let Some(message) = self.link.receive()? {
            match message {
                FromIke::Install(sa) => {
                    let child = sa.id;
                    self.heard.children.push(*sa);
                    let outcome = Ok(());
                    assert!(self.link.send(ToIke::Installed { child, outcome }));
                }
                FromIke::Event(event) => self.heard.events.push(event),
                FromIke::States(changes) => self.heard.states.extend(changes),
                other => self.heard.others.push(other),
            }
        }
        Ok(())
    }

    fn is_up(&self) -> bool {
        let mut events = self.heard.events.iter();
        events.any(|event| matches!(event, Event::ChildUp { .. }))
    }
}

fn connection(local: &str, remote: &str, start: Start) -> Connection {
    let (local, remote): (IpAddr, IpAddr) = (local.parse().unwrap(), remote.parse().unwrap());
    let mut connection = Connection::new(
        "net",
        (
            local.to_string().parse().unwrap(),
            LocalProof::SharedSecret(KEY),
        ),
        (
            remote.to_string().parse().unwrap(),
            RemoteProof::SharedSecret(KEY),
        ),
        true,
    );
    let network = |address: IpAddr| {
        let IpAddr::V4(host) = address else {
            unreachable!("the tests use IPv4")
        };
        let last = host.octets()[3];
        let range = |end| IpAddr::from([10, last, 0, end]);
        vec![Traffic::of(
            AddressRange::new(range(0), range(255)).unwrap(),
        )]
    };
    connection.children = vec![Child::new("net", network(local), network(remote), true)];
    (connection.local, connection.remote) = (vec![local], vec![remote]);
    connection.start = start;
    connection
}

/// Serves both until `done`.
fn until(sides: &mut [Side; 2], done: impl Fn(&[Side; 2]) -> bool) {
    let end = Instant::now() + HANDSHAKE_TIMEOUT;
    while !done(sides) {
        assert!(Instant::now() < end, "nothing more came");
        let mut fds = [
            PollFd::new(&sides[0].link, PollFlags::IN),
            PollFd::new(&sides[1].link, PollFlags::IN),
        ];
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        poll(&mut fds, Some(&limit)).unwrap();
        for side in &mut *sides {
            side.turn().unwrap();
        }
    }
}

fn in_own_network(body: impl FnOnce() + Send) {
    in_a_namespace(|| {
        said(&["ip", "link", "set", "lo", "up"], "");
        body();
    });
}

fn brought_up() -> [Side; 2] {
    let mut sides = [LEFT, RIGHT].map(Side::start);
    sides[0].configure(connection(LEFT, RIGHT, Start::AtStart), b"the same secret");
    sides[1].configure(connection(RIGHT, LEFT, Start::Wait), b"the same secret");
    until(&mut sides, |sides| sides.iter().all(Side::is_up));
    sides
}

#[test]
fn two_gateways_agree_on_child_sas_over_real_sockets_and_stop_in_order() {
    isolated(|| {
        in_own_network(|| {
            let mut sides = brought_up();
            let [left, right] = &sides;
            let (one, other) = (&left.heard.children[0], &right.heard.children[0]);
            assert_eq!(one.outbound_spi, other.inbound_spi);
            assert!(one.outbound == other.inbound && one.inbound == other.outbound);
            for side in &mut sides {
                assert!(side.link.send(ToIke::Report {
                    token: 3,
                    which: Reported::All,
                }));
                let connection = "net".to_owned();
                assert!(side.link.send(ToIke::Why {
                    token: 4,
                    connection
                }));
                assert!(side.link.send(ToIke::Probe));
            }
            until(&mut sides, |sides| {
                sides.iter().all(|side| side.heard.others.len() >= 4)
            });
            for side in &sides {
                // Answers overtake what waits.
                let others = &side.heard.others;
                let report = others.iter().find_map(|message| match message {
                    FromIke::Report {
                        token: 3,
                        is_all: true,
                        peers,
                        dropped,
                    } => Some((peers, *dropped)),
                    _ => None,
                });
                let (peers, dropped) = report.expect("a report");
                assert!(peers.len() == 1 && matches!(peers[0].state, PeerState::Up));
                assert_eq!(dropped, super::message::IkeDrops::default());
                assert!(others.iter().any(|message| {
                    matches!(message, FromIke::Why { token: 4, story: Some(story) } if !story.steps.is_empty())
                }));
                let logged = |message: &&FromIke| matches!(message, FromIke::LogKeys(_));
                assert_eq!(others.iter().filter(logged).count(), 1);
                assert!(
                    others
                        .iter()
                        .any(|message| matches!(message, FromIke::Alive))
                );
                assert_eq!(others.len(), 4);
                assert_states_told(&side.heard.states);
            }
            let [mut left, right] = sides;
            assert!(left.link.send(ToIke::Stop));
            let end = Instant::now() + HANDSHAKE_TIMEOUT;
            while left.turn().is_ok() {
                assert!(Instant::now() < end, "it does not end");
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(matches!(left.heard.others.last(), Some(FromIke::Stopped)));
            left.ike.join().unwrap().unwrap();
            drop(right.link);
            for process in [left.keys, right.keys, right.ike] {
                let end = process.join().unwrap().unwrap_err();
                assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
            }
        });
    });
}

/// Without being asked: the state at first, and each that differs from the one before, to the last.
fn assert_states_told(states: &[StateChange]) {
    let is_here = |change: &StateChange| change.connection == "net";
    assert!(states.len() >= 2 && states.iter().all(is_here));
    assert!(states.windows(2).all(|two| two[0] != two[1]), "{states:?}");
    let last = states.last().map(|change| &change.state);
    assert_eq!(last, Some(&PeerState::Up));
}

#[test]
fn a_wrong_secret_is_refused_and_one_that_is_corrected_by_a_reload_is_accepted() {
    isolated(|| {
        in_own_network(|| {
            let mut sides = [LEFT, RIGHT].map(Side::start);
            sides[0].configure(connection(LEFT, RIGHT, Start::AtStart), b"the same secret");
            sides[1].configure(connection(RIGHT, LEFT, Start::Wait), b"another secret");
            until(&mut sides, |sides| {
                let mut events = sides[0].heard.events.iter();
                events.any(|event| matches!(event, Event::Failed { .. }))
            });
            assert!(sides.iter().all(|side| side.heard.children.is_empty()));
            sides[1].configure(connection(RIGHT, LEFT, Start::Wait), b"the same secret");
            until(&mut sides, |sides| sides.iter().all(Side::is_up));
        });
    });
}

#[test]
fn the_end_of_one_process_ends_the_other_and_is_noticed() {
    isolated(|| {
        in_own_network(|| {
            let [mut left, _right] = brought_up();
            // The key process sees the end of its stream to the main process, and ends as if it were killed.
            let (replacement, _) = stream_pair();
            let (main_to_ike, _) = stream_pair();
            let link = Link::new(main_to_ike, replacement).unwrap();
            let before = std::mem::replace(&mut left.link, link);
            let mut ike_alone = before.into_ike();
            assert!(left.keys.join().unwrap().is_err());
            let end = left.ike.join().unwrap().unwrap_err();
            assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
            let end = ike_alone.receive::<FromIke>().err().map(|end| end.kind());
            assert_eq!(end, Some(io::ErrorKind::UnexpectedEof));
        });
    });
}
