//! Topologies under a load: the results of the lab's loads are compared with the kernel's counters, ping and iperf3.

use std::path::PathBuf;
use std::time::Duration;

use lab::host::Command;
use lab::load::{
    Carried, Direction, Frames, Iperf3, Load, Protocol, RequestTransport, RoundTrip, Search,
};
use lab::testbed::{Impairment, Namespaces, Receiving, Shape, Topology, TopologySpec};

use super::{built, on};

fn shaped_to(mbit: f64) -> TopologySpec {
    TopologySpec {
        shape: Some(Shape {
            bits_per_second: mbit * 1e6,
            burst_bytes: None,
            latency_ms: None,
            in_front: false,
        }),
        ..TopologySpec::default()
    }
}

/// What a load carries over a topology, after its warm-up.
pub fn carried(topology: &Topology, load: &dyn Load, seconds: u64) -> Carried {
    let mut load = load
        .prepare(topology)
        .unwrap_or_else(|fault| panic!("{fault}"));
    let run = load
        .warm_up()
        .and_then(|()| load.run(Duration::from_secs(seconds)));
    run.unwrap_or_else(|fault| panic!("{fault}"))
}

/// The shaping, measured by iperf3, with the framing counted by hand: 38 bytes around every packet.
pub fn shaped(testbed: &mut Namespaces) {
    let topology = on(testbed, &shaped_to(100.0));
    let stream = Iperf3 {
        warm_up_megabytes: 1,
        ..Iperf3::default()
    };
    let ideal = 100e6 * (1500.0 - 40.0 - 12.0) / (1500.0 + 38.0);
    the_middle_of_three_is_near(0.01, || carried(&topology, &stream, 4).goodput_bps / ideal);
}

/// A machine that others keep busy may starve one measurement: the middle one of three must be near 1.
fn the_middle_of_three_is_near(tolerance: f64, ratio: impl FnMut() -> f64) {
    let mut found: Vec<f64> = std::iter::repeat_with(ratio).take(3).collect();
    found.sort_by(f64::total_cmp);
    assert!((found[1] - 1.0).abs() < tolerance, "{found:?}");
}

/// The lab's own program.
pub fn lab() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_esplanade-lab"))
}

pub fn impaired(testbed: &mut Namespaces) {
    let topology = on(
        testbed,
        &TopologySpec {
            impairment: Some(Impairment {
                program: lab(),
                delay_ms: 10.0,
                loss: 0.1,
                duplicate: 0.0,
                reorder: 0.0,
                seed: 7,
            }),
            ..TopologySpec::default()
        },
    );
    let asked = carried(
        &topology,
        &RoundTrip::new(&lab(), 64, RequestTransport::Datagram),
        1,
    )
    .figures;
    assert!(asked["rtt.p50_us"] >= 20_000.0, "{asked:?}");
    // Measured by ping: both ways lose, so 0.81 come back.
    let ping = Command::line("ping -n -q -c 3000 -i 0.002 -W 1 10.2.0.2");
    let report = topology
        .client
        .run(&ping, Duration::from_secs(60))
        .unwrap()
        .stdout;
    let number = |before: &str, after: &str| -> f64 {
        let (head, _) = report.split_once(after).unwrap();
        let (_, digits) = head.rsplit_once(before).unwrap();
        digits.parse().unwrap()
    };
    let loss = number(" ", "% packet loss") / 100.0;
    // The standard error of a share of 0.19 in 3000 is 0.007.
    assert!((loss - 0.19).abs() < 0.03, "{report}");
    let (_, times) = report.split_once("mdev = ").unwrap();
    let shortest: f64 = times.split('/').next().unwrap().parse().unwrap();
    assert!((20.0..40.0).contains(&shortest), "{report}");
}

/// No frame may count as overtaken here. A kernel reorders frames where the sender moves to another processor, or where
/// another processor continues with the shaped queue; it cannot while one processor receives all frames for gateways.
pub fn agreement(testbed: &mut Namespaces) {
    let receiving = Receiving {
        steered_to: Some("0".into()),
        ..Receiving::default()
    };
    let topology = on(
        testbed,
        &TopologySpec {
            receiving,
            ..shaped_to(50.0)
        },
    );
    let frames = Frames {
        program: lab(),
        frame_bytes: vec![1046],
        direction: Direction::Forward,
        search: Search::Pdr,
        latency_at_percent: vec![50],
    };
    let stream = Iperf3 {
        protocol: Protocol::Udp { offered_mbit: 60.0 },
        message_bytes: Some(1000),
        ..Iperf3::default()
    };
    the_middle_of_three_is_near(0.04, || {
        let ours = carried(&topology, &frames, 3);
        assert_eq!(ours.figures["reordered_count"], 0.0);
        the_queue_is_empty_at_half_of_the_rate(&ours);
        ours.goodput_bps / carried(&topology, &stream, 3).goodput_bps
    });
}

fn the_queue_is_empty_at_half_of_the_rate(ours: &Carried) {
    let figure = |name: &str| ours.figures[name];
    let share = figure("rate_at_50_pps") / figure("rate_pps");
    assert!((share - 0.5).abs() < 0.05, "{ours:?}");
    let (half, whole) = (figure("latency_at_50.p50_us"), figure("latency.p50_us"));
    assert!(half < whole, "{ours:?}");
}

/// The direction is checked by the kernel's counters of the server's link.
pub fn reverse(testbed: &mut Namespaces) {
    let topology = on(testbed, &shaped_to(100.0));
    let count = |name: &str| -> f64 {
        let table = topology.server.read("/proc/net/dev".as_ref()).unwrap();
        let line = table
            .lines()
            .find_map(|line| line.trim().strip_prefix("lan:"));
        let place = if name == "received" { 0 } else { 8 };
        let fields = line.unwrap().split_whitespace();
        fields
            .skip(place)
            .map(|field| field.parse().unwrap())
            .next()
            .unwrap()
    };
    let stream = Iperf3 {
        warm_up_megabytes: 0,
        direction: Direction::Reverse,
        ..Iperf3::default()
    };
    let sent = carried(&topology, &stream, 1).bytes as f64;
    assert!(count("sent") > sent && count("received") < sent / 4.0);
    let both = Iperf3 {
        direction: Direction::Both,
        ..stream
    };
    let before = [count("sent"), count("received")];
    let figures = carried(&topology, &both, 1).figures;
    for ((way, word), before) in [("reverse", "sent"), ("forward", "received")]
        .into_iter()
        .zip(before)
    {
        let bytes = figures[&format!("{way}.goodput_bps")] / 8.0;
        let passed = count(word) - before;
        // More bytes pass than the load reports: those of the last moments, which it does not count, and replies.
        assert!(
            bytes > 0.0 && passed > bytes && passed < 2.0 * bytes + 1e6,
            "{way}: {passed} {figures:?}"
        );
    }
    let mix = Frames {
        program: lab(),
        frame_bytes: vec![64, 64, 64, 512, 1518],
        search: Search::Steady(500.0),
        direction: Direction::Reverse,
        latency_at_percent: Vec::new(),
    };
    let before = count("sent");
    let mixed = carried(&topology, &mix, 1);
    // User data of a frame is what 46 bytes of headers and check sequence leave, but never less than its stamp.
    let (each, frames) = (
        mixed.bytes as f64 / mixed.seconds,
        mixed.figures["rate_pps"],
    );
    let mean = f64::from(3 * 20 + 466 + 1472) / 5.0;
    assert!((each / frames / mean - 1.0).abs() < 0.03, "{mixed:?}");
    assert_eq!(mixed.figures["lost_count"], 0.0, "{mixed:?}");
    assert!(count("sent") - before > mixed.bytes as f64);
}

pub fn connections(testbed: &mut Namespaces) {
    let topology = built(testbed);
    let figures = carried(
        &topology,
        &RoundTrip::new(&lab(), 64, RequestTransport::Connection),
        1,
    )
    .figures;
    assert!(figures["connections_per_s"] > 0.0, "{figures:?}");
    assert_eq!(figures["connection.lost_ratio"], 0.0, "{figures:?}");
    // The kernel of the server counted them, too: passive opens.
    let table = topology.server.read("/proc/net/snmp".as_ref()).unwrap();
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("Tcp:"))
        .collect();
    let place = rows[0]
        .split(' ')
        .position(|name| name == "PassiveOpens")
        .unwrap();
    let opened: f64 = rows[1].split(' ').nth(place).unwrap().parse().unwrap();
    assert!(
        opened >= figures["connection.answers_count"],
        "{opened} {figures:?}"
    );
}
