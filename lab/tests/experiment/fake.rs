//! A testbed in memory: hosts with configured answers, a contender that can fail in every way that the check must
//! notice, a load with a configured result. It uses the public traits only and needs no root.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use lab::absence::Absence;
use lab::capture::Frame;
use lab::contender::{Contender, Protection, Tunnel};
use lab::fault::Fault;
use lab::gateway::{Gateway, Side};
use lab::host::{Command, Datagrams, Finished, Host, Process, Tap};
use lab::load::{Carried, Demand, Load, Prepared};
use lab::stop::Stop;
use lab::testbed::{Addresses, Layout, Testbed, Topology, TopologySpec};

/// How a contender behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Plain packets, declared as such.
    Plain,
    /// Encrypts as declared.
    Secret,
    /// Declares encryption and sends plaintext.
    Leaking,
    /// Carries packets from client to server only.
    OneWay,
    /// Lets later packets overtake earlier ones.
    Reordering,
    /// Does so once.
    ReorderingOnce,
    /// Loses one packet of many.
    Lossy,
    /// Reports that it is up and carries nothing.
    Dead,
    /// Never comes up.
    Refusing,
    /// Comes up and takes longer than allowed in the load.
    Hanging,
    /// Not on this machine.
    Absent,
    /// The user stops the run during the check whether it is on this machine.
    Abandoned,
    /// Encrypts as declared, but fails to go down.
    Stubborn,
    /// The user stops the run while it is measured.
    Stopping,
    /// Encrypts as declared, but the soaker beside it ends during the load.
    Drowning,
    /// Encrypts as declared, but the soaker beside it stops printing.
    Hushing,
}

/// What passes between the fake hosts.
#[derive(Default)]
pub struct Wire {
    behaviour: Option<Behaviour>,
    client_side: Vec<Vec<u8>>,
    wire: Vec<Vec<u8>>,
    queued: BTreeMap<SocketAddr, VecDeque<Vec<u8>>>,
    /// What happened, in order.
    pub diary: Vec<String>,
}

impl Wire {
    /// How often a load ran.
    fn loads(&self) -> u64 {
        let loads = self.diary.iter().filter(|entry| *entry == "load");
        loads.count() as u64
    }
}

/// Shared by everything that belongs to one topology.
pub type Shared = Rc<RefCell<Wire>>;

/// Builds fake topologies.
pub struct FakeTestbed {
    pub wire: Shared,
}

impl Testbed for FakeTestbed {
    fn build(&mut self, _spec: &TopologySpec) -> Result<Topology, Fault> {
        let host = |name: &'static str| {
            Box::new(FakeHost {
                name,
                wire: self.wire.clone(),
            })
        };
        Ok(Topology {
            client: host("client"),
            left: host("left"),
            right: host("right"),
            server: host("server"),
            addresses: Addresses::default(),
            mtu: 1500,
            machinery: Vec::new(),
            layout: Layout::Gateways,
            path: None,
            one_clock: true,
            throttle: None,
        })
    }

    fn describe(&self) -> String {
        "no machine at all".into()
    }
}

struct FakeHost {
    name: &'static str,
    wire: Shared,
}

impl Host for FakeHost {
    fn name(&self) -> &str {
        self.name
    }

    /// Knows `ping` only.
    fn run(&self, command: &Command, _limit: Duration) -> Result<Finished, Fault> {
        assert_eq!(command.program, "ping", "the check used another program");
        let behaviour = self.wire.borrow().behaviour;
        let lost = match behaviour {
            Some(Behaviour::Dead) => true,
            Some(Behaviour::OneWay) => self.name == "server",
            _ => false,
        };
        Ok(Finished {
            code: i32::from(lost),
            ..Finished::default()
        })
    }

    /// Knows the soaker of the program `lab` only.
    fn start(&self, command: &Command) -> Result<Box<dyn Process>, Fault> {
        if command.to_string() == "lab tool soak" {
            Ok(Box::new(FakeSoaker {
                loads: self.wire.borrow().loads(),
                wire: self.wire.clone(),
            }))
        } else {
            Err(Fault::failed("nothing can be started here"))
        }
    }

    /// A process 7 whose numbers grow with every look.
    fn read(&self, path: &Path) -> Result<String, Fault> {
        let looks = self.wire.borrow().loads();
        let text = match path.to_str().unwrap_or_default() {
            "/proc/7/stat" | "/proc/7/task/7/stat" => {
                format!(
                    "7 (fake) S 1 7 7 0 -1 0 0 0 0 0 {} {} 0 0 20 0 1 0 1 1 1",
                    100 * looks,
                    50 * looks
                )
            }
            "/proc/7/status" => "Name:\tfake\nVmHWM:\t 3000 kB\n".into(),
            "/proc/stat" => format!("cpu  {looks} 0 0 {looks} 0 0 0 0 0 0\n"),
            "/proc/net/dev" => format!("head\nhead\n wan: 1 {looks} 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"),
            "/proc/net/snmp" => {
                "Udp: RcvbufErrors SndbufErrors\nUdp: 0 0\nTcp: RetransSegs\nTcp: 0\n".into()
            }
            "/proc/net/netstat" => format!("TcpExt: TCPTimeouts Other\nTcpExt: {looks} 5\n"),
            "/proc/net/softnet_stat" => format!("{looks:08x} 00000000 00000000\n"),
            "/proc/sys/kernel/random/boot_id" => "one machine\n".into(),
            other => return Err(Fault::failed(format!("there is no {other}"))),
        };
        Ok(text)
    }

    fn list(&self, _path: &Path) -> Result<Vec<String>, Fault> {
        Ok(vec!["7".into()])
    }

    fn write_file(&self, name: &str, _text: &str) -> Result<PathBuf, Fault> {
        Ok(PathBuf::from(name))
    }

    fn scratch(&self) -> Result<PathBuf, Fault> {
        Ok(PathBuf::from("/nowhere"))
    }

    fn tap(&self, interface: &str) -> Result<Box<dyn Tap>, Fault> {
        Ok(Box::new(FakeTap {
            client_side: interface == "lan",
            wire: self.wire.clone(),
        }))
    }

    fn datagrams(&self, local: SocketAddr) -> Result<Box<dyn Datagrams>, Fault> {
        Ok(Box::new(FakeSocket {
            local,
            wire: self.wire.clone(),
        }))
    }
}

/// Two processors, of one of which the load takes half, and half of that in interrupts.
struct FakeSoaker {
    /// How many there had been when it was started.
    loads: u64,
    wire: Shared,
}

impl FakeSoaker {
    /// The contender that the load ran beside, if it ran.
    fn after(&self) -> Option<Behaviour> {
        let wire = self.wire.borrow();
        wire.behaviour.filter(|_| wire.loads() > self.loads)
    }
}

impl Process for FakeSoaker {
    fn pid(&self) -> u32 {
        8
    }

    fn ended(&mut self) -> Option<i32> {
        let drowned = self.after() == Some(Behaviour::Drowning);
        drowned.then_some(137)
    }

    fn output(&mut self) -> String {
        let spinning = |cpu| format!(r#"{{"cpu":{cpu},"units_per_s":1000.0,"class":"idle"}}"#);
        let ready = format!(r#"{{"ready":[{},{}]}}"#, spinning(0), spinning(1));
        let before = r#"{"counts":{"at_ns":1000000000,"units":[7,9],"cpu_ns":[0,0],"own_ns":0}}"#;
        let after = r#"{"counts":{"at_ns":3000000000,"units":[1007,2009],"cpu_ns":[1500000000,2000000000],"own_ns":0}}"#;
        let last = match self.after() {
            None | Some(Behaviour::Hushing) => "",
            Some(Behaviour::Drowning) => "error: it became too much",
            Some(_) => after,
        };
        format!("{ready}\n{before}\n{last}\n")
    }

    fn stop(&mut self, _grace: Duration) -> Result<(), Fault> {
        Ok(())
    }
}

struct FakeTap {
    client_side: bool,
    wire: Shared,
}

impl Tap for FakeTap {
    fn frames(&mut self) -> Result<Vec<Frame>, Fault> {
        let mut wire = self.wire.borrow_mut();
        let seen = if self.client_side {
            &mut wire.client_side
        } else {
            &mut wire.wire
        };
        let frame = |bytes| Frame {
            at: Duration::ZERO,
            bytes,
            udp_segment: None,
            checksum: None,
        };
        Ok(seen.drain(..).map(frame).collect())
    }
}

struct FakeSocket {
    local: SocketAddr,
    wire: Shared,
}

impl Datagrams for FakeSocket {
    fn send(&self, to: SocketAddr, payload: &[u8]) -> Result<(), Fault> {
        let mut wire = self.wire.borrow_mut();
        wire.client_side.push(payload.to_vec());
        let readable = matches!(wire.behaviour, Some(Behaviour::Plain | Behaviour::Leaking));
        let sent = if readable {
            payload.to_vec()
        } else {
            payload.iter().map(|byte| !byte).collect()
        };
        wire.wire.push(sent);
        let behaviour = wire.behaviour;
        let queue = wire.queued.entry(to).or_default();
        let fifth = payload.ends_with(b" 5");
        match behaviour {
            Some(Behaviour::Lossy) if fifth => {}
            Some(Behaviour::Reordering) if fifth => queue.push_front(payload.to_vec()),
            Some(Behaviour::ReorderingOnce) if payload.ends_with(b" 0 5") => {
                queue.push_front(payload.to_vec());
            }
            _ => queue.push_back(payload.to_vec()),
        }
        Ok(())
    }

    fn receive(&self, _within: Duration) -> Result<Option<Vec<u8>>, Fault> {
        let mut wire = self.wire.borrow_mut();
        let queue = wire.queued.get_mut(&self.local);
        Ok(queue.and_then(VecDeque::pop_front))
    }
}

/// A contender with a given behaviour.
pub struct FakeContender {
    pub behaviour: Behaviour,
    pub id: String,
    pub wire: Shared,
    pub stop: Stop,
}

impl Contender for FakeContender {
    fn id(&self) -> &str {
        &self.id
    }

    fn label(&self) -> &str {
        &self.id
    }

    fn factors(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("behaviour".into(), format!("{:?}", self.behaviour))])
    }

    fn protection(&self) -> Protection {
        if self.behaviour == Behaviour::Plain {
            Protection::Clear
        } else {
            Protection::Secret
        }
    }

    fn presence(&self, _topology: &Topology) -> Result<(), Absence> {
        match self.behaviour {
            Behaviour::Absent => Err(Absence::new("it was never written", "write it")),
            Behaviour::Abandoned => {
                self.stop.ask();
                Err(Absence::new("its trial was interrupted", "install it"))
            }
            _ => Ok(()),
        }
    }

    fn version(&self, _topology: &Topology) -> Option<(String, String)> {
        Some((self.id.clone(), "1.2.3".into()))
    }

    fn up(&self, _topology: &Topology) -> Result<Box<dyn Tunnel>, Fault> {
        if self.behaviour == Behaviour::Refusing {
            return Err(Fault::failed("it does not want to"));
        }
        let mut wire = self.wire.borrow_mut();
        wire.behaviour = Some(self.behaviour);
        wire.diary.push(format!("up {}", self.id));
        Ok(Box::new(FakeTunnel {
            behaviour: self.behaviour,
            wire: self.wire.clone(),
        }))
    }
}

struct FakeTunnel {
    behaviour: Behaviour,
    wire: Shared,
}

impl Tunnel for FakeTunnel {
    fn gateways(&self) -> Vec<Gateway> {
        match self.behaviour {
            Behaviour::Plain => Vec::new(),
            _ => Side::BOTH.map(|side| Gateway { side, pid: 7 }).to_vec(),
        }
    }

    fn drops(&self, _topology: &Topology) -> Result<Option<BTreeMap<String, u64>>, Fault> {
        let loads = self.wire.borrow().loads();
        Ok(Some(BTreeMap::from([("replayed".into(), 2 * loads)])))
    }

    fn down(&mut self, _topology: &Topology) -> Result<(), Fault> {
        self.wire.borrow_mut().diary.push("down".into());
        match self.behaviour {
            Behaviour::Stubborn => Err(Fault::failed("it holds on to a route")),
            _ => Ok(()),
        }
    }
}

/// A load that carries 100 Mbit/s for each trial so far.
#[derive(Clone)]
pub struct FakeLoad {
    pub wire: Shared,
    pub stop: Stop,
}

impl Load for FakeLoad {
    fn id(&self) -> &str {
        "fake"
    }

    fn demand(&self) -> Demand {
        Demand::Saturating
    }

    fn presence(&self, _topology: &Topology) -> Result<(), Absence> {
        Ok(())
    }

    fn prepare<'topology>(
        &'topology self,
        _topology: &'topology Topology,
    ) -> Result<Box<dyn Prepared + 'topology>, Fault> {
        Ok(Box::new(Ready(self)))
    }
}

struct Ready<'a>(&'a FakeLoad);

impl Prepared for Ready<'_> {
    fn warm_up(&mut self) -> Result<(), Fault> {
        self.0.wire.borrow_mut().diary.push("warm up".into());
        Ok(())
    }

    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let mut wire = self.0.wire.borrow_mut();
        wire.diary.push("load".into());
        match wire.behaviour {
            Some(Behaviour::Hanging) => {
                return Err(Fault::TimedOut {
                    what: "the load".into(),
                    after: duration,
                });
            }
            Some(Behaviour::Stopping) => {
                self.0.stop.ask();
                return Err(Fault::Interrupted);
            }
            _ => {}
        }
        Ok(Carried {
            tool: "fake 1".into(),
            seconds: duration.as_secs_f64(),
            bytes: 12_500_000,
            goodput_bps: 1e8,
            retransmits: Some(1),
            intervals_bps: vec![1e8],
            figures: BTreeMap::from([("rtt.p50_us".into(), 42.0)]),
        })
    }
}
