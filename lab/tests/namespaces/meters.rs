//! Meters on a real bed: what they say is held against what was sent.

use std::time::Duration;

use lab::contender::Tunnel;
use lab::host::{Command, Host};
use lab::meter::{Meter, Profile, Protocols, Readings, Scene, Softnet};
use lab::testbed::{Bed, Namespaces};

use super::raised;

/// The kernel forwards; nobody else has anything to do.
struct Nobody;

impl Tunnel for Nobody {}

/// What a meter reads while `act` goes on.
pub fn read(meter: &mut dyn Meter, bed: &Bed, act: impl FnOnce()) -> Readings {
    let scene = Scene {
        bed,
        tunnel: &Nobody,
        case: "plain",
    };
    meter
        .begin(&scene)
        .unwrap_or_else(|fault| panic!("{fault}"));
    act();
    meter.end(&scene).unwrap_or_else(|fault| panic!("{fault}"))
}

fn pings(host: &dyn Host, count: u32) {
    let ping = format!("ping -q -n -c {count} -i 0.002 -W 2 10.2.0.2");
    let said = host.must(&Command::line(&ping), Duration::from_secs(30));
    said.unwrap_or_else(|fault| panic!("{fault}"));
}

/// `ping` is the judge: both gateways forward each question and each answer once.
pub fn counters(testbed: &mut Namespaces) {
    let bed = raised(testbed);
    pings(&*bed.client, 1);
    let protocols = read(&mut Protocols::default(), &bed, || pings(&*bed.client, 50));
    for gateway in ["left", "right"] {
        let forwarded = protocols[&format!("{gateway}.kernel.Ip.ForwDatagrams_count")];
        assert_eq!(forwarded, 100.0, "{protocols:?}");
    }
    assert_eq!(protocols["server.kernel.Icmp.InEchos_count"], 50.0);
    assert!(protocols.values().all(|count| *count > 0.0));
    // Six virtual links are crossed, and each puts the packet into a backlog; others may do so beside us.
    let softnet = read(&mut Softnet::default(), &bed, || pings(&*bed.client, 50));
    assert!(softnet["softnet.processed_count"] >= 300.0, "{softnet:?}");
}

/// `yes` does nothing but write: however busy the machine is with others, samples must meet it, as one that is neither gateway
/// nor endpoint, and all shares make a whole.
pub fn profile(testbed: &mut Namespaces) {
    let bed = raised(testbed);
    let mut meter = Profile::default();
    if let Err(absence) = meter.presence(&bed) {
        // perf itself is asked whether that is so. Then nothing else can be tried here.
        let itself = Command::line("perf stat -a -e cpu-clock true");
        let itself = bed.left.must(&itself, Duration::from_secs(10));
        assert!(itself.is_err(), "{}", absence.why);
        return;
    }
    let busy = Command::line("sh -c").arg("exec yes > /dev/null");
    let readings = read(&mut meter, &bed, || {
        let _busy = bed.client.start(&busy).unwrap();
        pings(&*bed.client, 500);
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
