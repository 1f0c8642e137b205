//! Meters on a real topology: their readings are compared with what was sent.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::contender::Tunnel;
use lab::host::{Command, Host, Process};
use lab::meter::{Meter, MeterContext, Profile, Protocols, Readings, Soaker, Softnet};
use lab::testbed::{Namespaces, Topology};
use lab::tool::{Class, SoakLine};

use super::built;
use super::filled::lab;

/// No tunnel: the kernel forwards.
struct NoTunnel;

impl Tunnel for NoTunnel {}

/// What a meter reads while `act` goes on.
pub fn read(meter: &mut dyn Meter, topology: &Topology, act: impl FnOnce()) -> Readings {
    let context = MeterContext {
        topology,
        tunnel: &NoTunnel,
        case: "plain",
    };
    let begun = meter.begin(&context).and_then(|()| meter.mark(&context));
    begun.unwrap_or_else(|fault| panic!("{fault}"));
    act();
    let ended = meter.mark(&context).and_then(|()| meter.end(&context));
    ended.unwrap_or_else(|fault| panic!("{fault}"))
}

fn pings(host: &dyn Host, count: u32) {
    let ping = format!("ping -q -n -c {count} -i 0.002 -W 2 10.2.0.2");
    let said = host.must(&Command::line(&ping), Duration::from_secs(30));
    said.unwrap_or_else(|fault| panic!("{fault}"));
}

/// Checked by `ping`: both gateways forward each request and each reply once.
pub fn counters(testbed: &mut Namespaces) {
    let topology = built(testbed);
    pings(&*topology.client, 1);
    let protocols = read(&mut Protocols::default(), &topology, || {
        pings(&*topology.client, 50)
    });
    for gateway in ["left", "right"] {
        let forwarded = protocols[&format!("{gateway}.kernel.Ip.ForwDatagrams_count")];
        assert_eq!(forwarded, 100.0, "{protocols:?}");
    }
    assert_eq!(protocols["server.kernel.Icmp.InEchos_count"], 50.0);
    assert!(protocols.values().all(|count| *count > 0.0));
    // Six virtual links are crossed, and each puts the packet into a backlog; other programs may add packets.
    let softnet = read(&mut Softnet::default(), &topology, || {
        pings(&*topology.client, 50)
    });
    assert!(softnet["softnet.processed_count"] >= 300.0, "{softnet:?}");
}

/// `yes` only writes: even on a busy machine some samples must be of it, as a program that is neither gateway nor
/// endpoint, and the sum of all shares must be one.
pub fn profile(testbed: &mut Namespaces) {
    let topology = built(testbed);
    let mut meter = Profile::default();
    if let Err(absence) = meter.presence(&topology) {
        // perf itself must fail as well. Then nothing else can be tested here.
        let itself = Command::line("perf stat -a -e cpu-clock true");
        let itself = topology.left.must(&itself, Duration::from_secs(10));
        assert!(itself.is_err(), "{}", absence.why);
        return;
    }
    let busy = Command::line("sh -c").arg("exec yes > /dev/null");
    let readings = read(&mut meter, &topology, || {
        let _busy = topology.client.start(&busy).unwrap();
        pings(&*topology.client, 500);
    });
    assert!(readings["profile.samples_count"] > 100.0, "{readings:?}");
    let whole: f64 = readings
        .iter()
        .filter(|(name, _)| !name.contains("busiest") && !name.contains("unnamed"))
        .filter(|(name, _)| name.ends_with("_ratio"))
        .map(|(_, share)| share)
        .sum();
    assert!((whole - 1.0).abs() < 1e-9, "{readings:?}");
    let stacks = std::fs::read_to_string("/run/results/stacks/plain.folded").unwrap();
    assert!(
        stacks.lines().any(|line| line.starts_with("others;yes;")),
        "{stacks}"
    );
}

/// What a soaker reads in a second of this.
fn soaked(topology: &Topology, act: impl FnOnce()) -> Readings {
    let readings = read(&mut Soaker::new(&lab()), topology, || {
        act();
        std::thread::sleep(Duration::from_secs(1));
    });
    let mut shares = readings.iter().filter(|(name, _)| name.ends_with("_ratio"));
    let whole = |(name, share): (&String, &f64)| {
        name.ends_with("faster_ratio") || (0.0..=1.0).contains(share)
    };
    assert!(shares.all(whole), "{readings:?}");
    assert!(readings["soaker.window_s"] > 0.5, "{readings:?}");
    readings
}

/// Checked by a loop of the shell: it takes its processor from the soaker. Other programs may add load, so there is no
/// upper bound but the whole.
pub fn soaker(testbed: &mut Namespaces) {
    let topology = built(testbed);
    let alone = soaked(&topology, || ());
    let count = alone["soaker.processors_count"] as usize;
    let load = |readings: &Readings, cpu: usize| {
        readings
            .get(&format!("soaker.cpu{cpu}.load_ratio"))
            .copied()
    };
    let cpus: Vec<usize> = (0..1024)
        .filter(|cpu| load(&alone, *cpu).is_some())
        .collect();
    assert_eq!(cpus.len(), count);
    let quiet = cpus.iter().copied();
    let quiet = quiet.min_by(|a, b| load(&alone, *a).partial_cmp(&load(&alone, *b)).unwrap());
    let quiet = quiet.unwrap();
    let command = Command::line(&format!("taskset -c {quiet} sh -c")).arg("while :; do :; done");
    let _busy = topology.client.start(&command).unwrap();
    let beside = soaked(&topology, || ());
    assert!(load(&beside, quiet).unwrap() > 0.9, "{beside:?}");
    assert!(beside["soaker.busiest_ratio"] > 0.9, "{beside:?}");
    assert!(
        beside["soaker.load_ratio"] > 0.9 / count as f64,
        "{beside:?}"
    );
}

/// The lines of a soaker that has come as far as counting.
fn counting(process: &mut dyn Process) -> Vec<SoakLine> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(30) {
        let said = process.output();
        let lines = said
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let read: Vec<SoakLine> = lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if read.len() > 2 {
            return read;
        }
        assert_eq!(process.ended(), None, "{said}");
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not count: {}", process.output());
}

/// A processor that this process may use.
fn first_allowed() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = list.unwrap().trim();
    list.split([',', '-']).next().unwrap().into()
}

/// Checked by the kernel: the scheduling class of a soaker, and its end.
pub fn soaker_gives_way(testbed: &mut Namespaces) {
    const IDLE: i64 = 5;
    let topology = built(testbed);
    // Also where the gateways are kept to one processor, as here by hand.
    let bound = Command::line(&format!("taskset -c {}", first_allowed()));
    let bound = bound.arg(lab()).arg("tool").arg("soak");
    let mut process = topology.left.start(&bound).unwrap();
    let said = counting(&mut *process);
    let SoakLine::Ready(spinning) = &said[0] else {
        panic!("{said:?}")
    };
    let tasks = PathBuf::from(format!("/proc/{}/task", process.pid()));
    let of_task = |task: &String| {
        let stat = topology.left.read(&tasks.join(task).join("stat")).unwrap();
        let (name, rest) = stat.rsplit_once(") ").unwrap();
        let field = |number: usize| {
            rest.split(' ')
                .nth(number - 3)
                .unwrap()
                .parse::<i64>()
                .unwrap()
        };
        // proc_pid_stat(5): nice is the 19th, policy the 41st.
        (name.contains("(soak-"), field(19), field(41))
    };
    let tasks: Vec<_> = topology.left.list(&tasks).unwrap();
    let tasks: Vec<_> = tasks.iter().map(of_task).collect();
    let spinners: Vec<_> = tasks.iter().filter(|(spins, ..)| *spins).collect();
    assert_eq!(spinners.len(), spinning.len(), "{tasks:?}");
    assert_eq!(tasks.len(), spinning.len() + 1, "{tasks:?}");
    for (_, nice, policy) in spinners {
        assert_eq!(
            (*nice, *policy == IDLE),
            (19, spinning[0].class == Class::Idle)
        );
    }
    let allowed = std::thread::available_parallelism().unwrap().get();
    assert!(spinning.len() >= allowed, "{spinning:?}");
    let place = format!("/proc/{}", process.pid());
    drop(process);
    assert!(!Path::new(&place).exists(), "it outlived its owner");
}
