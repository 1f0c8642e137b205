//! The real testbed, on this machine: links that carry packets, a capture of what the kernel sends, programs that end
//! when they must. The capture is compared with the kernel: its segmentation must equal the lab's.
//!
//! It has a `main` of its own because the lab enters its namespaces before any thread exists, and the ordinary test
//! harness starts threads. Its last line has the harness's format, so that scripts that count tests count these.

#[path = "namespaces/filled.rs"]
mod filled;
#[path = "namespaces/meters.rs"]
mod meters;
#[path = "namespaces/share.rs"]
mod share;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::capture::{Frame, to_wire_frames};
use lab::check;
use lab::contender::{CapturePoint, Protection};
use lab::fault::Fault;
use lab::host::{Command, Host};
use lab::load::{Direction, Frames, Iperf3, Search};
use lab::stop::Stop;
use lab::testbed::{
    Families, Impairment, LAN, Layout, Namespaces, PathMtuChange, Quotas, Testbed, Topology,
    TopologySpec, WAN, isolate,
};

use filled::{agreement, carried, connections, impaired, lab, reverse, shaped};

type Test = (&'static str, fn(&mut Namespaces));

const TESTS: [Test; 22] = [
    (
        "a_fresh_topology_carries_packets_both_ways_and_shows_its_canary",
        plain_is_plain,
    ),
    ("our_segmentation_equals_that_of_the_kernel", segmentation),
    ("the_mtu_asked_for_is_that_of_every_link", mtu),
    ("a_program_that_takes_too_long_is_killed", too_long),
    ("a_program_ends_with_its_owner", owned),
    ("a_missing_program_is_named", missing),
    ("nothing_of_one_topology_is_in_the_next", fresh),
    ("a_shaped_rate_is_measured_back_within_a_percent", shaped),
    (
        "the_box_in_the_wire_loses_and_delays_what_was_asked",
        impaired,
    ),
    (
        "a_wire_that_reorders_or_loses_and_a_one_way_path_are_named",
        wrong,
    ),
    ("two_hosts_alone_reach_each_other_over_one_wire", pair),
    ("both_families_pass_inside_and_outside", families),
    (
        "a_path_narrows_when_the_load_runs_and_says_so_unless_it_is_silent",
        narrowing,
    ),
    ("our_frames_and_iperf3_agree_on_a_shaped_link", agreement),
    (
        "a_load_in_reverse_fills_the_other_way_and_sends_the_mix_it_was_told",
        reverse,
    ),
    (
        "connections_are_opened_one_after_another_and_none_is_lost",
        connections,
    ),
    ("the_kernels_counters_say_what_was_sent", meters::counters),
    ("a_profile_sees_who_keeps_a_processor_busy", meters::profile),
    (
        "a_busy_process_uses_no_more_than_its_share_of_a_processor",
        share::held,
    ),
    (
        "a_side_without_a_process_and_one_in_real_time_are_not_held_but_named",
        share::refused,
    ),
    (
        "a_soaker_loses_the_processor_that_another_program_keeps_busy",
        meters::soaker,
    ),
    (
        "a_soaker_gives_way_to_all_on_every_processor_and_ends_with_its_owner",
        meters::soaker_gives_way,
    ),
];

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let quotas = Quotas::open();
    if let Err(why) = isolate::enter() {
        println!("the testbed cannot be entered: {why}");
        std::process::exit(1);
    }
    let mut testbed = Namespaces::new(Path::new("/run/results"), Stop::never()).with_quotas(quotas);
    let failed = TESTS.iter().filter(|test| !passes(test, &mut testbed));
    let failed = failed.count();
    drop(testbed);
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let passed = TESTS.len() - failed;
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    std::process::exit(i32::from(failed > 0));
}

fn passes((name, test): &Test, testbed: &mut Namespaces) -> bool {
    let passed = catch_unwind(AssertUnwindSafe(|| test(testbed))).is_ok();
    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    passed
}

fn built(testbed: &mut Namespaces) -> Topology {
    on(testbed, &TopologySpec::default())
}

fn on(testbed: &mut Namespaces, spec: &TopologySpec) -> Topology {
    testbed
        .build(spec)
        .unwrap_or_else(|fault| panic!("{fault}"))
}

fn said(host: &dyn Host, line: &str) -> String {
    let command = Command::line(line);
    let said = host.must(&command, Duration::from_secs(5));
    said.unwrap_or_else(|fault| panic!("{fault}"))
}

fn plain_is_plain(testbed: &mut Namespaces) {
    let topology = built(testbed);
    let evidence = check::examine(&topology, "the token", CapturePoint::Left).unwrap();
    evidence.verdict(Protection::Clear).unwrap();
    assert!(
        evidence
            .verdict(Protection::Secret)
            .unwrap_err()
            .starts_with("plaintext on the wire")
    );
}

/// 10 000 bytes in pieces of 1400 by UDP_SEGMENT (103 at level 17), first left to the virtual hardware, then cut by the
/// kernel. The first capture, segmented by the lab, must equal the second.
fn segmentation(testbed: &mut Namespaces) {
    let topology = built(testbed);
    said(&*topology.left, "ping -c 1 -W 2 -q 192.0.2.2");
    let ours = heard(&topology);
    assert_eq!(
        ours.len(),
        1,
        "the virtual link does not take super-packets"
    );
    let ours: Vec<Frame> = to_wire_frames(&ours[0]);
    said(
        &*topology.left,
        &format!("ethtool -K {WAN} tx off gso off tx-udp-segmentation off"),
    );
    let kernel = heard(&topology);
    assert_eq!(kernel.len(), 8);
    let udp = |frame: &Frame| frame.bytes[34..].to_vec();
    assert!(
        ours.iter().map(udp).eq(kernel.iter().map(udp)),
        "UDP headers, checksums or payloads differ"
    );
    let steps = |frames: &[Frame]| -> Vec<u16> {
        let number = |frame: &Frame| u16::from_be_bytes([frame.bytes[18], frame.bytes[19]]);
        frames
            .windows(2)
            .map(|pair| number(&pair[1]).wrapping_sub(number(&pair[0])))
            .collect()
    };
    assert_eq!(steps(&ours), steps(&kernel));
    for frame in ours.iter().chain(&kernel) {
        let words = frame.bytes[14..34]
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        assert_eq!(
            (sum & 0xffff) + (sum >> 16),
            0xffff,
            "an IP header's checksum is wrong"
        );
    }
}

fn heard(topology: &Topology) -> Vec<Frame> {
    const SEND: &str = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('192.0.2.1', 4500))
s.setsockopt(17, 103, 1400)
s.sendto(bytes(i * 7 % 251 for i in range(10000)), ('192.0.2.2', 4500))";
    let _there = topology
        .right
        .datagrams("192.0.2.2:4500".parse().unwrap())
        .unwrap();
    let mut point = topology.left.tap(WAN).unwrap();
    let send = Command::line("python3 -c").arg(SEND);
    topology.left.must(&send, Duration::from_secs(5)).unwrap();
    let frames = point.frames().unwrap();
    frames
        .into_iter()
        .filter(|frame| frame.bytes[23] == 17)
        .collect()
}

fn mtu(testbed: &mut Namespaces) {
    let topology = on(
        testbed,
        &TopologySpec {
            mtu: 9000,
            ..TopologySpec::default()
        },
    );
    for (host, link) in [
        (&topology.client, LAN),
        (&topology.left, WAN),
        (&topology.right, WAN),
        (&topology.server, LAN),
    ] {
        assert!(said(&**host, &format!("ip -o link show {link}")).contains(" mtu 9000 "));
    }
    said(
        &*topology.client,
        "ping -c 1 -W 2 -q -M do -s 8972 10.2.0.2",
    );
}

fn too_long(testbed: &mut Namespaces) {
    let topology = built(testbed);
    let started = Instant::now();
    let fault = topology
        .client
        .run(&Command::line("sleep 4242"), Duration::from_millis(200))
        .unwrap_err();
    assert!(matches!(fault, Fault::TimedOut { .. }), "{fault}");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(!lives("4242"));
}

fn owned(testbed: &mut Namespaces) {
    let topology = built(testbed);
    let sleeper = topology.client.start(&Command::line("sleep 4343")).unwrap();
    assert!(lives("4343"));
    drop(sleeper);
    assert!(!lives("4343"));
    let mut polite = topology.client.start(&Command::line("sleep 4444")).unwrap();
    polite.stop(Duration::from_secs(3)).unwrap();
    assert_eq!(polite.ended(), Some(128 + 15));
}

/// Whether a process has this word as its argument.
fn lives(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines =
        processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines
        .into_iter()
        .any(|line| line.split('\0').any(|argument| argument == word))
}

fn missing(testbed: &mut Namespaces) {
    let topology = built(testbed);
    let fault = topology
        .client
        .run(&Command::line("no-such-program"), Duration::from_secs(1))
        .unwrap_err();
    assert_eq!(
        fault.to_string(),
        "the program `no-such-program` is not installed"
    );
}

fn fresh(testbed: &mut Namespaces) {
    let topology = built(testbed);
    said(&*topology.left, "ip link add left-behind type veth");
    said(&*topology.left, "nft add table inet left_behind");
    let first: PathBuf = topology.left.scratch().unwrap();
    std::fs::write(first.join("control.sock"), "").unwrap();
    drop(topology);
    let topology = built(testbed);
    assert!(!said(&*topology.left, "ip -o link").contains("left-behind"));
    assert_eq!(said(&*topology.left, "nft list ruleset"), "");
    let second = topology.left.scratch().unwrap();
    assert!(std::fs::read_dir(second).unwrap().next().is_none());
}

/// The canary's check over real wires that are wrong on purpose.
fn wrong(testbed: &mut Namespaces) {
    let mut said_of = |loss: f64, reorder: f64| {
        let box_in_the_wire = Impairment {
            program: lab(),
            delay_ms: 0.0,
            loss,
            duplicate: 0.0,
            reorder,
            seed: 3,
        };
        let spec = TopologySpec {
            impairment: Some(box_in_the_wire),
            ..TopologySpec::default()
        };
        let topology = on(testbed, &spec);
        let evidence = check::examine(&topology, "wrong", CapturePoint::Left)
            .unwrap_or_else(|fault| panic!("{fault}"));
        evidence.verdict(Protection::Clear)
    };
    assert_eq!(said_of(0.0, 0.0), Ok(()));
    let disorder = said_of(0.0, 0.3).unwrap_err();
    assert!(disorder.starts_with("reordering: "), "{disorder}");
    let topology = built(testbed);
    said(&*topology.left, "nft add table ip deaf");
    said(
        &*topology.left,
        "nft add chain ip deaf way { type filter hook forward priority 0 ; }",
    );
    said(
        &*topology.left,
        "nft add rule ip deaf way ip saddr 10.2.0.2 icmp type echo-request drop",
    );
    let deaf = check::examine(&topology, "deaf", CapturePoint::Left).unwrap();
    let why = deaf.verdict(Protection::Clear).unwrap_err();
    assert!(
        why.starts_with("one-way: the client reaches the server"),
        "{why}"
    );
    said(&*topology.left, "nft flush table ip deaf");
    said(
        &*topology.left,
        "nft add rule ip deaf way udp dport 54321 numgen inc mod 5 == 4 drop",
    );
    let lossy = check::examine(&topology, "lossy", CapturePoint::Left).unwrap();
    let why = lossy.verdict(Protection::Clear).unwrap_err();
    assert!(why.starts_with("loss: "), "{why}");
}

fn pair(testbed: &mut Namespaces) {
    let topology = on(
        testbed,
        &TopologySpec {
            layout: Layout::Pair,
            ..TopologySpec::default()
        },
    );
    assert_eq!(
        said(&*topology.client, "ip -o link"),
        said(&*topology.left, "ip -o link")
    );
    let evidence = check::examine(&topology, "alone", CapturePoint::Left).unwrap();
    assert_eq!(evidence.verdict(Protection::Clear), Ok(()), "{evidence:?}");
    assert!(
        evidence
            .verdict(Protection::Secret)
            .unwrap_err()
            .starts_with("plaintext on the wire")
    );
    assert!(carried(&topology, &Iperf3::default(), 1).goodput_bps > 1e7);
}

/// The inner family also passes without a tunnel: a topology of two families is then like any other.
fn families(testbed: &mut Namespaces) {
    let of = |layout, word| TopologySpec {
        layout,
        families: Families::read(word).unwrap(),
        ..TopologySpec::default()
    };
    for word in ["6in4", "4in6", "6in6"] {
        let topology = on(testbed, &of(Layout::Gateways, word));
        assert_eq!(topology.addresses.families(), Families::read(word).unwrap());
        let evidence = check::examine(&topology, word, CapturePoint::Left).unwrap();
        assert_eq!(evidence.verdict(Protection::Clear), Ok(()), "{evidence:?}");
        let wire = format!("ping -n -q -c 1 -W 5 {}", topology.addresses.right);
        said(&*topology.left, &wire);
    }
    let topology = on(testbed, &of(Layout::Pair, "6in6"));
    let evidence = check::examine(&topology, "pair", CapturePoint::Left).unwrap();
    assert_eq!(evidence.verdict(Protection::Clear), Ok(()), "{evidence:?}");
    assert!(carried(&topology, &Iperf3::default(), 1).goodput_bps > 1e7);
    let frames = Frames {
        program: lab(),
        frame_bytes: vec![1518],
        direction: Direction::Forward,
        search: Search::Steady(200.0),
        latency_at_percent: Vec::new(),
    };
    let steady = carried(&topology, &frames, 1);
    assert_eq!(steady.figures["lost_count"], 0.0, "{steady:?}");
    // What IPv6 and UDP and the check sequence leave of a frame.
    let each = steady.bytes as f64 / (steady.figures["rate_pps"] * steady.seconds);
    assert!((each / 1452.0 - 1.0).abs() < 0.02, "{steady:?}");
}

/// The kernel routes in the middle; ping prints its ICMP errors.
fn narrowing(testbed: &mut Namespaces) {
    for answers in [true, false] {
        let path = PathMtuChange {
            mtu: 1300,
            after_s: 0.0,
            answers,
        };
        let spec = TopologySpec {
            path: Some(path),
            ..TopologySpec::default()
        };
        let topology = on(testbed, &spec);
        let large = Command::line("ping -n -c 2 -i 0.3 -W 1 -M do -s 1400 10.2.0.2");
        let ping = || {
            let finished = topology
                .client
                .run(&large, Duration::from_secs(10))
                .unwrap();
            (finished.code == 0, finished.stdout + &finished.stderr)
        };
        let (before, said) = ping();
        assert!(before, "{said}");
        let change = topology.change().unwrap();
        let started = Instant::now();
        while ping().0 && started.elapsed() < Duration::from_secs(5) {}
        let (after, said) = ping();
        assert!(!after, "{said}");
        assert_eq!(said.contains("1300"), answers, "{said}");
        drop(change);
    }
}
