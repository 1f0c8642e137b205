use super::change::{What, apply, revert};
use super::gain::{Gains, Here};
use super::host::{Host, Machine, Reading, Target, feature, one_form, outer_devices};
use super::recommendation::{Among, Recommendation};
use super::report::{Assessment, Row, Scope};
use super::state::State;
use super::table::{self, SETTINGS};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that looks like a host with two processors and the devices `eth0` and `esp0`.
struct Tree(PathBuf);

/// The files of such a host.
const FILES: &[(&str, &str)] = &[
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/wmem_max", "8388608\n"),
    ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
    ("proc/sys/net/core/busy_poll", "0\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
    ("proc/sys/net/ipv4/tcp_sack", "0\n"),
    ("proc/sys/kernel/random/boot_id", "one\n"),
    ("proc/7/comm", "irqbalance\n"),
    ("sys/class/net/eth0/tx_queue_len", "1000\n"),
    (
        "sys/class/net/eth0/queues/rx-0/rps_cpus",
        "00000000,00000000\n",
    ),
    ("sys/class/net/eth0/queues/rx-1/rps_cpus", "3\n"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "0\n"),
    ("sys/class/net/eth0/queues/tx-1/xps_cpus", "2\n"),
    ("sys/class/net/esp0/tx_queue_len", "500\n"),
    (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "powersave\n",
    ),
    (
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "performance\n",
    ),
    ("sys/devices/system/cpu/cpufreq/policy0/unrelated", "x\n"),
];

impl Tree {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("esplanade-tune-{}-{number}", std::process::id());
        let tree = Self(std::env::temp_dir().join(name));
        for (path, text) in FILES {
            tree.put(path, text);
        }
        tree
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn get(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }

    fn machine(&self) -> Machine {
        Machine {
            root: self.0.clone(),
            ethtool: self.0.join("no-ethtool-here"),
        }
    }

    fn state(&self) -> PathBuf {
        self.0.join("state/tune.json")
    }

    fn rows(&self, state: &mut State) -> Vec<Row> {
        let devices = ["eth0".to_owned()];
        let host = self.machine();
        let scope = Scope {
            host: &host,
            devices: &devices,
            tun: "esp0",
        };
        scope.rows(state, None)
    }

    /// Applies the recommended values of these settings; returns the outcome for each target.
    fn apply(&self, names: &[&str]) -> Vec<What> {
        let _lock = super::state::lock(&self.state()).unwrap();
        let mut state = self.load();
        let mut rows = self.rows(&mut state);
        rows.retain(|row| names.contains(&row.name));
        let outcomes = apply(&self.machine(), &self.state(), &mut state, &rows).unwrap();
        outcomes.into_iter().map(|one| one.what).collect()
    }

    fn revert(&self, names: &[&str], force: bool) -> Vec<What> {
        let mut state = self.load();
        let outcomes = revert(&self.machine(), &mut state, names, force);
        state.save(&self.state()).unwrap();
        outcomes.into_iter().map(|one| one.what).collect()
    }

    fn load(&self) -> State {
        State::load(&self.state(), "one").unwrap()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn changed(from: &str, to: &str) -> What {
    What::Changed {
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

#[test]
fn names_are_unique_and_each_row_has_its_reason() {
    for (place, setting) in SETTINGS.iter().enumerate() {
        assert!(!setting.reason.is_empty());
        let same = SETTINGS[..place]
            .iter()
            .any(|other| other.name == setting.name);
        assert!(!same, "{}", setting.name);
    }
}

/// Settings must have the study's names, or its records would find no row.
#[test]
fn what_the_lab_can_vary_is_called_as_its_study_calls_it() {
    let study = include_str!("../../../lab/studies/tune.toml");
    let words: Vec<&str> = study
        .split(|c: char| c.is_whitespace() || c == '=')
        .filter_map(|word| {
            word.strip_prefix("testbed.")
                .or(word.strip_prefix("factors."))
        })
        .collect();
    for setting in SETTINGS.iter().filter(|setting| setting.in_lab) {
        assert!(
            words.contains(&setting.name),
            "the study does not vary {}",
            setting.name
        );
    }
    for word in words {
        let known = table::find(word).is_some_and(|setting| setting.in_lab);
        assert!(known, "the study varies {word}, which has no row");
    }
}

#[test]
fn a_proposal_is_made_only_where_something_is_missing() {
    let among = |processors, queue| Among { processors, queue };
    let alone = among(4, (0, 1));
    let cases = [
        (Recommendation::AtLeast(10), "9", Some("10")),
        (Recommendation::AtLeast(10), "10", None),
        (Recommendation::AtLeast(10), "11", None),
        (Recommendation::AtLeast(10), "max", None),
        (Recommendation::LastAtLeast(10), "1 2 3", Some("1 2 10")),
        (Recommendation::LastAtLeast(10), "1 2 30", None),
        (Recommendation::LastAtLeast(10), "1", None),
        (Recommendation::Exactly("on"), "off", Some("on")),
        (Recommendation::Exactly("on"), "on", None),
        (Recommendation::EveryProcessor, "0", Some("f")),
        (Recommendation::EveryProcessor, "f", None),
        (Recommendation::Nothing, "x", None),
    ];
    for (wish, current, proposal) in cases {
        assert_eq!(
            wish.proposal(current, alone).as_deref(),
            proposal,
            "{current}"
        );
    }
    let many = among(40, (0, 1));
    let mask = |wish: Recommendation, among| wish.proposal("0", among).unwrap();
    assert_eq!(mask(Recommendation::EveryProcessor, many), "ff,ffffffff");
    assert_eq!(mask(Recommendation::ItsShare, among(8, (1, 4))), "22");
    assert_eq!(mask(Recommendation::ItsShare, among(2, (0, 2))), "1");
}

#[test]
fn values_have_one_form() {
    assert_eq!(one_form("4096\t16384\t4194304\n"), "4096 16384 4194304");
    assert_eq!(one_form("00000000,0000000f\n"), "f");
    assert_eq!(one_form("000000ff,00000000\n"), "ff,00000000");
    assert_eq!(one_form("00\n"), "0");
    assert_eq!(one_form("0\n"), "0");
    assert_eq!(one_form("powersave\n"), "powersave");
}

#[test]
fn features_are_read_as_ethtool_prints_them() {
    let text = "Features for wan:\nrx-checksumming: on\ntx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n\
                rx-gro-list: off\nrx-udp-gro-forwarding: on [requested off]\n";
    let value = |name: &str| feature(text, name);
    assert_eq!(value("rx-checksumming"), Reading::Value("on".to_owned()));
    assert_eq!(value("tx-checksum-ipv4"), Reading::Fixed("off".to_owned()));
    assert_eq!(value("rx-gro-list"), Reading::Value("off".to_owned()));
    assert_eq!(
        value("rx-udp-gro-forwarding"),
        Reading::Value("on".to_owned())
    );
    assert_eq!(value("rx-gro"), Reading::Absent);
}

#[test]
fn targets_read_back_as_they_were_written() {
    let feature = Target::Feature {
        device: "wan".to_owned(),
        name: "rx-gro-list".to_owned(),
    };
    for target in [
        Target::file("/proc/sys/net/core/rmem_max".to_owned()),
        feature,
    ] {
        assert_eq!(Target::parse(&target.to_string()), Some(target));
    }
    assert_eq!(Target::parse("../etc/passwd"), None);
}

#[test]
fn the_devices_are_those_of_the_default_routes() {
    let tree = Tree::new();
    assert_eq!(outer_devices(&tree.machine()), [""; 0]);
    let header =
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
    let line = |device: &str, to: &str, mask: &str| {
        format!("{device}\t{to}\t0100000A\t0003\t0\t0\t0\t{mask}\t0\t0\t0\n")
    };
    let text = header.to_owned()
        + &line("eth1", "0000000A", "00FFFFFF")
        + &line("eth0", "00000000", "00000000");
    tree.put("proc/net/route", &text);
    let zeros = "0".repeat(32);
    let v6 = |to: &str, len: &str, device: &str| {
        format!("{to} {len} {zeros} 00 {zeros} 00000400 00000001 00000000 00000003 {device}\n")
    };
    let text = v6(&zeros, "00", "eth2")
        + &v6(&zeros, "00", "lo")
        + &v6(&"f".repeat(32), "08", "eth3")
        + &v6(&zeros, "00", "eth0");
    tree.put("proc/net/ipv6_route", &text);
    assert_eq!(outer_devices(&tree.machine()), ["eth0", "eth2"]);
}

#[test]
fn each_setting_is_judged_by_what_is_there() {
    let tree = Tree::new();
    let rows = tree.rows(&mut State::default());
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    let verdicts = [
        ("rmem_max", Assessment::Proposed),
        ("wmem_max", Assessment::Good),
        ("netdev_budget", Assessment::Absent),
        ("tcp.buffer_bytes", Assessment::Proposed),
        ("tcp.timestamps", Assessment::Absent),
        ("tcp.sack", Assessment::Proposed),
        ("offloads", Assessment::Unreadable),
        ("busy_poll", Assessment::OnRequest),
        ("rps_cpus", Assessment::OnRequest),
        ("tun_txqueuelen", Assessment::OnRequest),
        ("txqueuelen", Assessment::Good),
        ("governor", Assessment::OnRequest),
        ("irqbalance", Assessment::Informational),
        ("conntrack", Assessment::Absent),
    ];
    for (name, verdict) in verdicts {
        assert_eq!(row(name).verdict, verdict, "{name}");
    }
    let proposals = |name: &str| -> Vec<Option<&str>> {
        let spots = row(name).spots.iter();
        spots.map(|spot| spot.proposal.as_deref()).collect()
    };
    assert_eq!(
        proposals("tcp.buffer_bytes"),
        [Some("4096 131072 16777216"), Some("4096 16384 16777216")]
    );
    assert_eq!(proposals("rps_cpus"), [Some("3"), None]);
    assert_eq!(proposals("xps_cpus"), [Some("1"), None]);
    assert_eq!(proposals("governor"), [Some("performance"), None]);
    assert_eq!(row("irqbalance").spots[0].current.as_deref(), Some("runs"));
    assert!(
        row("offloads").spots[0]
            .problem
            .as_deref()
            .unwrap()
            .contains("apt-get install ethtool")
    );
}

#[test]
fn what_was_applied_is_put_back_exactly_and_nothing_of_it_stays() {
    let tree = Tree::new();
    let names = ["rmem_max", "tcp.buffer_bytes", "rps_cpus"];
    let outcomes = tree.apply(&names);
    assert_eq!(outcomes[0], changed("212992", "4194304"));
    assert_eq!(
        tree.get("proc/sys/net/ipv4/tcp_wmem"),
        "4096 16384 16777216"
    );
    assert_eq!(tree.get("sys/class/net/eth0/queues/rx-0/rps_cpus"), "3");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&tree.state()), 0o600);
    assert_eq!(mode(tree.state().parent().unwrap()), 0o700);
    // Applying it twice has the same effect as once.
    assert_eq!(
        tree.apply(&["rmem_max"]),
        [What::Good {
            value: "4194304".to_owned()
        }]
    );
    let outcomes = tree.revert(&[], false);
    assert_eq!(outcomes.len(), 4);
    assert!(
        outcomes
            .iter()
            .all(|what| matches!(what, What::Changed { .. })),
        "{outcomes:?}"
    );
    for path in [
        "proc/sys/net/core/rmem_max",
        "proc/sys/net/ipv4/tcp_rmem",
        "proc/sys/net/ipv4/tcp_wmem",
    ] {
        let before = FILES.iter().find(|(file, _)| *file == path).unwrap().1;
        assert_eq!(tree.get(path), one_form(before), "{path}");
    }
    assert!(!tree.state().exists());
    assert_eq!(tree.revert(&[], false), []);
}

#[test]
fn the_first_old_value_wins() {
    let tree = Tree::new();
    tree.apply(&["rmem_max"]);
    tree.put("proc/sys/net/core/rmem_max", "1000\n");
    assert_eq!(tree.apply(&["rmem_max"]), [changed("1000", "4194304")]);
    assert_eq!(
        tree.revert(&["rmem_max"], false),
        [changed("4194304", "212992")]
    );
}

#[test]
fn what_another_program_has_set_since_is_left_alone_unless_forced() {
    let tree = Tree::new();
    tree.apply(&["rmem_max", "tcp.sack"]);
    tree.put("proc/sys/net/core/rmem_max", "9999999\n");
    let outcomes = tree.revert(&[], false);
    // The latest change comes first; the others are restored as well.
    assert_eq!(outcomes[0], changed("1", "0"));
    assert!(matches!(&outcomes[1], What::NotOurs { value, .. } if value == "9999999"));
    assert_eq!(tree.get("proc/sys/net/core/rmem_max"), "9999999\n");
    assert_eq!(tree.load().changed.len(), 1);
    assert_eq!(tree.revert(&[], true), [changed("9999999", "212992")]);
    assert!(!tree.state().exists());
}

/// Killed between the write of the state file and that of the setting: the state file holds a value that was never
/// applied.
#[test]
fn a_run_that_was_killed_half_way_is_put_back_too() {
    let tree = Tree::new();
    let host = tree.machine();
    drop(super::state::lock(&tree.state()).unwrap());
    let mut state = tree.load();
    let network = host.network();
    let target = "/proc/sys/net/core/rmem_max";
    state.note("rmem_max", target, &network, "212992", "4194304");
    state.save(&tree.state()).unwrap();
    assert_eq!(
        tree.revert(&[], false),
        [What::Good {
            value: "212992".to_owned()
        }]
    );
    // The same where a value of an earlier `apply` was in force.
    tree.apply(&["rmem_max"]);
    let mut state = tree.load();
    state.note("rmem_max", target, &network, "4194304", "5000000");
    state.save(&tree.state()).unwrap();
    assert_eq!(tree.revert(&[], false), [changed("4194304", "212992")]);
}

#[test]
fn what_the_kernel_refuses_is_reported_and_not_recorded() {
    let tree = Tree::new();
    let path = tree.0.join("proc/sys/net/core/rmem_max");
    let rows = {
        let mut rows = tree.rows(&mut State::default());
        rows.retain(|row| row.name == "rmem_max");
        rows
    };
    // It is removed between the read and the write, and is not created again.
    fs::remove_file(&path).unwrap();
    let _lock = super::state::lock(&tree.state()).unwrap();
    let mut state = tree.load();
    let outcomes = apply(&tree.machine(), &tree.state(), &mut state, &rows).unwrap();
    assert!(outcomes[0].failed(), "{outcomes:?}");
    assert!(!path.exists() && !tree.state().exists());
}

#[test]
fn a_device_that_has_gone_takes_its_old_value_along() {
    let tree = Tree::new();
    tree.apply(&["tun_txqueuelen"]);
    fs::remove_dir_all(tree.0.join("sys/class/net/esp0")).unwrap();
    assert_eq!(tree.revert(&[], false), [What::Gone]);
    assert!(!tree.state().exists());
}

#[test]
fn another_start_of_the_machine_and_another_network_are_kept_apart() {
    let tree = Tree::new();
    tree.apply(&["rmem_max"]);
    assert_eq!(State::load(&tree.state(), "two").unwrap().changed, []);
    let mut state = tree.load();
    state.changed[0].network = "net:[1]".to_owned();
    state.save(&tree.state()).unwrap();
    assert!(
        matches!(&tree.revert(&[], true)[0], What::Elsewhere { network } if network == "net:[1]")
    );
    assert_eq!(tree.load().changed.len(), 1);
}

#[test]
fn a_damaged_file_is_an_error_with_its_remedy() {
    let tree = Tree::new();
    tree.put("state/tune.json", "{\"boot\":");
    let error = State::load(&tree.state(), "one").unwrap_err().to_string();
    assert!(
        error.contains("damaged") && error.contains("by hand"),
        "{error}"
    );
}

/// A record of the lab as far as it matters.
fn record(contender: &str, round: usize, factors: &[(&str, &str)], goodput: f64) -> String {
    let factors: std::collections::BTreeMap<_, _> = factors.iter().copied().collect();
    serde_json::json!({
        "study": "tune", "contender": contender, "round": round, "factors": factors,
        "figures": { "goodput_bps": goodput },
        "outcome": { "status": "measured" },
        "provenance": { "cpu": "A", "kernel": "6" },
    })
    .to_string()
}

fn here() -> Here {
    Here {
        processor: "A".to_owned(),
        kernel: "6".to_owned(),
    }
}

fn gains(tree: &Tree, lines: &[String]) -> Gains {
    tree.put("tune-out/records.jsonl", &(lines.join("\n") + "\n"));
    Gains::find(Some(&tree.0), &here()).unwrap().unwrap()
}

#[test]
fn a_gain_is_the_median_of_ratios_of_rounds_that_both_were_measured_in() {
    let tree = Tree::new();
    let mut lines = Vec::new();
    for round in 1..=7 {
        // The speed of the machine doubles from round to round and cancels in the ratios.
        let mood = f64::from(1 << round);
        let base = [("part", "as-it-is"), ("mtu", "1500")];
        lines.push(record("plain", round, &base, 100.0 * mood));
        lines.push(record("esplanade-x", round, &base, 10.0 * mood));
        let buffers = [
            ("part", "buffers"),
            ("mtu", "1500"),
            ("tcp.buffer_bytes", "16777216"),
        ];
        lines.push(record("plain", round, &buffers, 90.0 * mood));
        lines.push(record(
            "esplanade-x",
            round,
            &buffers,
            (10.0 + round as f64) * mood,
        ));
        let without = [("part", "no-sack"), ("mtu", "1500"), ("tcp.sack", "false")];
        lines.push(record("esplanade-x", round, &without, 5.0 * mood));
        let two = [
            ("part", "deferred"),
            ("mtu", "1500"),
            ("gro_flush_timeout_ns", "50000"),
            ("napi_defer_hard_irqs", "2"),
        ];
        lines.push(record("esplanade-x", round, &two, 11.0 * mood));
        let bare = [("part", "bare"), ("mtu", "1500"), ("offloads", "false")];
        lines.push(record("esplanade-x-no-offloads", round, &bare, 2.5 * mood));
    }
    let unpaired = [
        ("part", "buffers"),
        ("mtu", "1500"),
        ("tcp.buffer_bytes", "16777216"),
    ];
    lines.push(record("esplanade-x", 8, &unpaired, 1e9));
    let gains = gains(&tree, &lines);
    assert_eq!(gains.elsewhere, None);

    let wanted = Some("4096 131072 16777216");
    let gain = gains.of("tcp.buffer_bytes", wanted).unwrap();
    assert_eq!((gain.contender.as_str(), gain.pairs), ("esplanade-x", 7));
    assert!((gain.ratio - 1.4).abs() < 1e-9, "{gain:?}");
    assert_eq!(
        gain.words(wanted),
        "+40.0 % (+10.0 % to +70.0 %, 7 pairs), esplanade-x"
    );

    let sack = gains.of("tcp.sack", Some("1")).unwrap();
    assert!(
        sack.of_having_it && (sack.ratio - 2.0).abs() < 1e-9,
        "{sack:?}"
    );
    let offloads = gains.of("offloads", Some("on")).unwrap();
    assert!((offloads.ratio - 4.0).abs() < 1e-9, "{offloads:?}");
    let together = gains.of("gro_flush_timeout_ns", Some("50000")).unwrap();
    assert!(
        together
            .words(Some("50000"))
            .ends_with("combined with napi_defer_hard_irqs")
    );
    assert_eq!(gains.of("rmem_max", Some("4194304")), None);
}

#[test]
fn few_pairs_and_another_machine_are_named_in_the_report() {
    let tree = Tree::new();
    let base = [("part", "as-it-is")];
    let level = [("part", "coalescing"), ("gro_flush_timeout_ns", "20000")];
    let lines = [
        record("esplanade-x", 1, &base, 10.0),
        record("esplanade-x", 1, &level, 9.0),
    ];
    let gain = gains(&tree, &lines)
        .of("gro_flush_timeout_ns", Some("50000"))
        .unwrap();
    assert_eq!(
        gain.words(Some("50000")),
        "-10.0 % (1 pairs, too few for a confidence interval), esplanade-x, at 20000"
    );
    let other = Here {
        kernel: "7".to_owned(),
        ..here()
    };
    let gains = Gains::find(Some(&tree.0), &other).unwrap().unwrap();
    assert_eq!(gains.elsewhere.as_deref(), Some("6, and this is 7"));
}

#[test]
fn folders_without_such_records_are_errors_and_never_gains() {
    let tree = Tree::new();
    let error = |folder: &Path| {
        Gains::find(Some(folder), &here())
            .err()
            .unwrap()
            .to_string()
    };
    assert!(error(&tree.0).contains("no records"));
    tree.put("tune-out/records.jsonl", "{}\n");
    assert!(error(&tree.0).contains("records.jsonl:1"));
    let other = record("plain", 1, &[("part", "else")], 1.0);
    tree.put("tune-out/records.jsonl", &(other + "\n"));
    assert!(error(&tree.0).contains("as-it-is"));
}
