//! Processes that are limited to a share of a processor, checked against the kernel: the group of each process, and the
//! processor time it has used.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use lab::gateway::{Gateway, Side};
use lab::host::{Command, Process};
use lab::meter::Share;
use lab::testbed::{Namespaces, Testbed, Topology, TopologySpec};

use super::{meters, on};

const SHARE: f64 = 0.2;
/// A process that has used its quota up runs on until the kernel looks.
const SLACK_S: f64 = 0.1;

fn spec() -> TopologySpec {
    TopologySpec {
        share: Some(SHARE),
        ..TopologySpec::default()
    }
}

/// Whether it can be tried here; that it cannot must be so.
fn possible(testbed: &Namespaces) -> bool {
    match testbed.presence(&spec()) {
        Ok(()) => true,
        Err(absence) => {
            assert!(!a_group_has_a_quota(), "{}", absence.why);
            false
        }
    }
}

/// Two processes that would take a processor each. An upper bound holds on the busiest machine, too.
pub fn held(testbed: &mut Namespaces) {
    if !possible(testbed) {
        return;
    }
    let topology = on(testbed, &spec());
    let busy = Command::line("sh -c").arg("while :; do :; done");
    let both = Side::BOTH.map(|side| (side, topology.gateway(side).start(&busy).unwrap()));
    let gateways = both
        .each_ref()
        .map(|(side, process)| gateway(*side, &**process));
    topology
        .limit(&gateways)
        .unwrap_or_else(|fault| panic!("{fault}"));
    for gateway in &gateways {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", gateway.pid)).unwrap();
        let own = format!("/{}\n", gateway.side.name());
        assert!(
            groups.contains("/esplanade-lab-") && groups.contains(&own),
            "{groups}"
        );
    }
    let started = Instant::now();
    while !both_were_stopped(&topology, &gateways) {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "no process was ever throttled"
        );
    }
    topology.remove_quotas().unwrap();
    let free = stops(&topology);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(stops(&topology), free, "stopped after the quota was lifted");
    drop((both, topology));
    assert_eq!(
        stops(&on(testbed, &spec())),
        [0.0; 2],
        "groups of the last topology are there"
    );
}

fn gateway(side: Side, process: &dyn Process) -> Gateway {
    Gateway {
        side,
        pid: process.pid(),
    }
}

/// Two seconds under the meter; whether it saw that both were stopped, which a busy machine may put off.
fn both_were_stopped(topology: &Topology, gateways: &[Gateway]) -> bool {
    let (before, clock) = (used(gateways), Instant::now());
    let readings = meters::read(&mut Share::default(), topology, || {
        std::thread::sleep(Duration::from_secs(2));
    });
    let (after, window) = (used(gateways), clock.elapsed().as_secs_f64());
    for (before, after) in before.iter().zip(&after) {
        let spent = after - before;
        assert!(
            spent <= SHARE * window + SLACK_S,
            "{spent} s in {window} s: {readings:?}"
        );
    }
    let given = readings["left.share.given_s"];
    assert!(
        (2.0 * SHARE..=SHARE * window).contains(&given),
        "{readings:?}"
    );
    ["left", "right"].iter().all(|side| {
        let of = |name: &str| readings[&format!("{side}.share.{name}")];
        assert!(of("throttled_count") <= of("periods_count"), "{readings:?}");
        of("throttled_count") > 0.0 && of("throttled_s") > 0.0
    })
}

/// proc(5): user and system time in ticks are fields 14 and 15.
fn used(gateways: &[Gateway]) -> Vec<f64> {
    let of = |gateway: &Gateway| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", gateway.pid)).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks = fields.split_whitespace().skip(11).take(2);
        ticks
            .map(|ticks| ticks.parse::<f64>().unwrap())
            .sum::<f64>()
            / 100.0
    };
    gateways.iter().map(of).collect()
}

fn stops(topology: &Topology) -> [f64; 2] {
    let throttle = topology.throttle.as_ref().unwrap();
    Side::BOTH.map(|side| throttle.counts(side).unwrap().stopped)
}

/// What no quota could hold is refused, not measured.
pub fn refused(testbed: &mut Namespaces) {
    if !possible(testbed) {
        return;
    }
    let topology = on(testbed, &spec());
    let sleeper = topology.left.start(&Command::line("sleep 60")).unwrap();
    let one = gateway(Side::Left, &*sleeper);
    let alone = topology.limit(&[one]).unwrap_err().to_string();
    assert!(
        alone.starts_with("the right gateway has no process"),
        "{alone}"
    );
    let mut gone = topology.right.start(&Command::line("true")).unwrap();
    while gone.ended().is_none() {}
    let gone = topology.limit(&[gateway(Side::Left, &*sleeper), gateway(Side::Right, &*gone)]);
    let gone = gone.unwrap_err().to_string();
    assert!(
        gone.starts_with("cannot limit process ") && gone.contains("right gateway"),
        "{gone}"
    );
    // Where nothing may run in real time, no real-time task can take the processor away.
    let limit = Duration::from_secs(5);
    if topology
        .left
        .must(&Command::line("chrt -r 1 true"), limit)
        .is_ok()
    {
        let hurried = Command::line("chrt -r 1 sh -c").arg("echo ready; exec sleep 60");
        let mut hurried = topology.left.start(&hurried).unwrap();
        while hurried.output().is_empty() {
            assert_eq!(hurried.ended(), None);
        }
        let said = topology.limit(&[
            gateway(Side::Left, &*hurried),
            gateway(Side::Right, &*sleeper),
        ]);
        assert!(
            said.unwrap_err()
                .to_string()
                .contains("has a real-time priority")
        );
    }
}

/// Looks for a hierarchy in which a new group has a quota, at the top of each: another way than the lab's own.
fn a_group_has_a_quota() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let tops = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (at, kind) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup").then(|| Path::new(at).to_owned())
    });
    let quota = |top: &Path| {
        let group = top.join(format!("probe-{}", std::process::id()));
        let made = fs::create_dir(&group).is_ok();
        let files = ["cpu.cfs_quota_us", "cpu.max"];
        let found = made && files.iter().any(|file| group.join(file).exists());
        let _ = fs::remove_dir(&group);
        found
    };
    tops.into_iter().any(|top| quota(&top))
}
