//! The rules as the kernel has them, listed by `nft`; each test has its own network namespaces.

use super::super::ring_bypass::{self, Rings};
use super::super::tables::Firewall;
use super::*;
use crate::routes::nftables::{Connection, Present};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

const INSIDE: &str = "GATEWAY_TEST_IS_INSIDE_ITS_NAMESPACE";

/// Runs a test's body where namespaces may be created: directly as root, otherwise in a child process that is root of
/// a new user namespace.
pub(crate) fn isolated(body: fn()) {
    if rustix::process::geteuid().is_root() || std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let (user, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1");
    let become_root = move || {
        // SAFETY: the child has one thread and nothing of it depends on the namespaces.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) }?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1"))
    };
    // SAFETY: what runs between fork and exec takes no lock that another thread of the parent could hold, but the
    // allocator's, which the C library makes safe for this.
    unsafe { test.pre_exec(become_root) };
    let output = test.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}"
    );
}

/// The result of a thread in a new network namespace.
pub(crate) fn in_a_namespace<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let inside = move || {
            // SAFETY: only the network namespace of this thread changes; no descriptor or memory is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            body()
        };
        scope.spawn(inside).join().unwrap()
    })
}

/// Standard output of a program that must succeed.
pub(crate) fn said(argv: &[&str], input: &str) -> String {
    let (status, output) = tried(argv, input);
    assert!(status, "{argv:?}: {output}");
    output
}

fn tried(argv: &[&str], input: &str) -> (bool, String) {
    let mut child = Command::new(argv[0])
        .args(&argv[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tests need iproute2 and nftables: tests/setup");
    let input = input.to_owned();
    let mut pipe = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.success(), text)
}

/// The ruleset that `nft` lists, without fields that differ between runs.
fn listed() -> Vec<Value> {
    let text = said(&["nft", "-j", "list", "ruleset"], "");
    let json: Value = serde_json::from_str(&text).unwrap();
    let mut list = json["nftables"].as_array().unwrap()[1..].to_vec();
    list.iter_mut().for_each(normalise);
    list
}

fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("handle");
            // Flags of the table: the text format does not support "persist".
            if !fields.contains_key("op") {
                fields.remove("flags");
            }
            if let Some(Value::Array(set)) = fields.get_mut("set") {
                set.sort_by_key(Value::to_string);
            }
            if let Some(Value::Array(terms)) = fields.get_mut("expr") {
                *terms = terms.drain(..).flat_map(ports_apart).collect();
            }
            fields.values_mut().for_each(normalise);
        }
        Value::Array(values) => values.iter_mut().for_each(normalise),
        _ => {}
    }
}

/// If a text has both ports, `nft` compares all four bytes at once; this splits them.
fn ports_apart(term: Value) -> Vec<Value> {
    let both = serde_json::json!({"base": "th", "offset": 0, "len": 32});
    if term["match"]["left"]["payload"] != both {
        return vec![term];
    }
    let Some(value) = term["match"]["right"].as_u64() else {
        return vec![term];
    };
    let ports = [("sport", value >> 16), ("dport", value & 0xffff)];
    let one = |(field, value)| {
        let left = serde_json::json!({"payload": {"protocol": "th", "field": field}});
        serde_json::json!({"match": {"op": "==", "left": left, "right": value}})
    };
    ports.map(one).to_vec()
}

pub(crate) fn firewall(site: &Site) -> Firewall {
    Firewall::new(TableFamily::Inet, site.firewall_table())
}

/// The words of the ruleset, sorted. `nft -j` 1.0.6 breaks off at a table whose only flag it does not know, which the
/// table of a gateway that has died has.
fn words_listed() -> Vec<String> {
    let text = said(&["nft", "list", "ruleset"], "");
    let lines = text.lines().filter(|line| {
        let line = line.trim_start();
        !line.starts_with("flags") && !line.starts_with("table")
    });
    let words = lines.flat_map(|line| line.split([' ', '\t', ',']));
    let mut words: Vec<_> = words.map(str::to_owned).collect();
    words.sort_unstable();
    words
}

/// Every kind of selector and verdict.
fn everything() -> Plan {
    let protocol = |number, source_port, destination_port| Upper::Protocol {
        number,
        source_port,
        destination_port,
    };
    let ports = |source_port, destination_port| Upper::Ports {
        source_port,
        destination_port,
    };
    let icmp = |number, kind, code| Upper::Icmp { number, kind, code };
    let uppers = [
        Upper::Any,
        protocol(6, None, None),
        protocol(6, None, Some(443)),
        protocol(17, Some(53), None),
        protocol(132, Some(5), Some(6)),
        ports(None, Some(53)),
        ports(Some(1), Some(65535)),
        icmp(1, Some(8), None),
        icmp(1, Some(3), Some(4)),
        icmp(58, Some(128), Some(0)),
        icmp(58, None, None),
    ];
    let pairs = [
        ("10.1.0.0/24", "10.2.0.0/20"),
        ("0.0.0.0/0", "192.0.2.7/32"),
        ("10.128.0.0/9", "0.0.0.0/0"),
        ("2001:db8:1::/61", "2001:db8:2::/48"),
        ("::/0", "2001:db8::7/128"),
        ("::/0", "::/0"),
    ];
    let verdicts = [
        Disposition::Protect,
        Disposition::Bypass,
        Disposition::Discard,
    ];
    let mut list = Vec::new();
    for (n, upper) in uppers.into_iter().enumerate() {
        for (m, (source, destination)) in pairs.into_iter().enumerate() {
            list.push(entry(source, destination, upper, verdicts[(n + m) % 3]));
        }
    }
    Plan {
        arriving: list.iter().rev().take(12).cloned().collect(),
        passing: list[..4].to_vec(),
        leaving: list,
        udp_ports: [4500, 4501].into(),
        outer: outer(),
        senders: Senders::Users([0, 1000].into()),
        ..Plan::default()
    }
}

/// So many policies that sources are checked too: ranges that are prefixes and ranges that are not, up to the last
/// address.
fn many() -> Plan {
    let v4 = (0..9).map(|n| {
        (
            format!("10.{}.0.0/16", n + n / 5),
            format!("10.64.{}.0/24", 3 * n / 2),
        )
    });
    let v6 = [
        ("fd00::/64", "2001:db8::/48"),
        ("fd00::/64", "ff00::/8"),
        ("fd00::/64", "2001:db8:7::1/128"),
    ];
    let v6 = v6.map(|(source, destination)| (source.to_owned(), destination.to_owned()));
    let protected = v4
        .chain(v6)
        .map(|(one, other)| entry(&one, &other, Upper::Any, Disposition::Protect));
    Plan {
        leaving: protected.collect(),
        ..Plan::default()
    }
}

/// `nft` loads the text in one namespace, the rules are installed by netlink in another, and `nft` lists the same in
/// both.
fn assert_equal(text: &str, ruleset: &Ruleset) {
    let devices = || said(&["ip", "link", "add", "ring1", "type", "veth"], "");
    let expected = in_a_namespace(|| {
        devices();
        said(&["nft", "-f", "-"], text);
        listed()
    });
    let found = in_a_namespace(|| {
        devices();
        let mut firewall = Firewall::new(ruleset.family, ruleset.table.clone());
        firewall.apply(ruleset).unwrap();
        assert_eq!(firewall.missing().unwrap(), Vec::<String>::new());
        listed()
    });
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected, found, "expected:\n{expected}\nfound:\n{found}\n");
    }
    assert_eq!(expected.len(), found.len());
    let rules: usize = ruleset.chains.iter().map(|chain| chain.rules.len()).sum();
    assert!(found.len() > rules);
}

#[test]
fn netlink_makes_the_rules_that_nft_makes_of_their_text() {
    isolated(|| {
        let one_port = plan();
        let no_port = Plan {
            udp_ports: [].into(),
            ..plan()
        };
        let forward = Site::forwarding("eth1", None, DEFAULT_MARK).unwrap();
        for (text, site, plan) in [
            (
                include_str!("../expected/everything.nft"),
                site(),
                everything(),
            ),
            (
                include_str!("../expected/forwarding.nft"),
                forward,
                everything(),
            ),
            (include_str!("../expected/one-port.nft"), site(), one_port),
            (include_str!("../expected/no-port.nft"), site(), no_port),
            (include_str!("../expected/many.nft"), site(), many()),
            (
                include_str!("../expected/by-kernel.nft"),
                site(),
                by_kernel::plan(),
            ),
            (
                include_str!("../expected/both-planes.nft"),
                site(),
                by_kernel::moving(),
            ),
            (
                include_str!("../expected/nothing.nft"),
                site(),
                Plan::default(),
            ),
        ] {
            assert_equal(text, &ruleset(&site, &plan));
        }
        let rings = Rings {
            devices: ["lo".to_owned(), "ring1".to_owned()].into(),
            addresses: ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()].into(),
        };
        let ruleset = ring_bypass::ruleset(&site(), &rings).unwrap();
        assert_equal(include_str!("../expected/rings.nft"), &ruleset);
    });
}

#[test]
fn a_replacement_leaves_nothing_of_what_stood_there_but_its_counts() {
    isolated(|| {
        let found = in_a_namespace(|| {
            let old = "add table inet esplanade\n\
                       add counter inet esplanade clear_leaving { packets 7 bytes 700 }\n\
                       add chain inet esplanade stranger\n\
                       add rule inet esplanade stranger accept\n\
                       add chain inet esplanade leaving { type filter hook postrouting priority 5; }\n";
            said(&["nft", "-f", "-"], old);
            firewall(&site())
                .apply(&ruleset(&site(), &everything()))
                .unwrap();
            let mut again = firewall(&site());
            again.apply(&ruleset(&site(), &plan())).unwrap();
            assert_eq!(counters(&site())[0], ("clear_leaving", 7, 700));
            listed()
        });
        let mut fresh = in_a_namespace(|| {
            let mut one = firewall(&site());
            one.apply(&ruleset(&site(), &plan())).unwrap();
            listed()
        });
        fresh[1]["counter"]["packets"] = 7.into();
        fresh[1]["counter"]["bytes"] = 700.into();
        assert_eq!(found, fresh);
    });
}

#[test]
fn while_its_owner_runs_no_other_program_removes_the_table_and_then_it_stays_until_the_next_owner()
{
    isolated(|| {
        in_a_namespace(|| {
            let rules = ruleset(&site(), &plan());
            let mut first = firewall(&site());
            first.apply(&rules).unwrap();
            let before = listed();
            said(&["nft", "add", "table", "inet", "control"], "");
            said(&["nft", "flush", "ruleset"], "");
            assert_eq!(
                listed(),
                before,
                "a flush took something, or left the control"
            );
            for refused in [
                &["nft", "delete", "table", "inet", "esplanade"][..],
                &["nft", "flush", "chain", "inet", "esplanade", "leaving"],
                &[
                    "nft",
                    "insert",
                    "rule",
                    "inet",
                    "esplanade",
                    "leaving",
                    "accept",
                ],
            ] {
                assert!(!tried(refused, "").0, "{refused:?}");
            }
            let mut second = firewall(&site());
            let refused = second.apply(&rules).unwrap_err().to_string();
            assert!(refused.contains("another running process"), "{refused}");
            assert!(second.remove().is_err());
            assert_eq!(first.missing().unwrap(), Vec::<String>::new());

            let words = words_listed();
            drop(first);
            assert_eq!(words_listed(), words, "the table went with its owner");
            second.apply(&rules).unwrap();
            said(&["nft", "flush", "ruleset"], "");
            assert_eq!(listed(), before, "the next one does not own it");
            second.remove().unwrap();
            assert_eq!(listed(), Vec::<Value>::new());
        });
    });
}

#[test]
fn what_others_take_away_or_add_is_named_and_put_back() {
    isolated(|| {
        in_a_namespace(|| {
            let rules = ruleset(&site(), &plan());
            for (what, named) in [
                ("delete table inet esplanade", "table deleted"),
                (
                    "flush table inet esplanade",
                    "chain leaving: 11 rules missing",
                ),
                (
                    "flush chain inet esplanade passing",
                    "chain passing: 6 rules missing",
                ),
                (
                    "insert rule inet esplanade leaving accept",
                    "chain leaving: 1 rule added",
                ),
                ("add chain inet esplanade stranger", "chain stranger added"),
                (
                    "delete chain inet esplanade rerouting",
                    "chain rerouting deleted",
                ),
                (
                    "delete table inet esplanade; add table inet esplanade",
                    "table replaced by another",
                ),
                (
                    "add chain inet esplanade passing { policy drop; }",
                    "chain passing: its policy changed",
                ),
                (
                    "delete element inet esplanade outer_v4 { 192.0.2.1 . 192.0.2.2 }",
                    "set outer_v4: 1 value missing",
                ),
                (
                    "add element inet esplanade outer_v6 { ::1 . ::2, ::1 . ::3 }",
                    "set outer_v6: 2 values added",
                ),
                (
                    "add table inet esplanade { flags dormant; }",
                    "table flags are",
                ),
            ] {
                // As on a kernel without table owners.
                let mut one = firewall(&site());
                one.apply_unowned(&rules).unwrap();
                assert_eq!(one.missing().unwrap(), Vec::<String>::new());
                let before = listed();
                said(&["nft", "-f", "-"], &what.replace("; a", "\na"));
                let words = one.missing().unwrap();
                assert!(
                    words.iter().any(|word| word.contains(named)),
                    "{what}: {words:?}"
                );
                assert_eq!(one.missing().unwrap(), words, "said once and forgotten");
                one.apply_unowned(&rules).unwrap();
                assert_eq!(one.missing().unwrap(), Vec::<String>::new());
                assert_eq!(listed(), before, "{what}");
                // Another program's table is ignored.
                said(&["nft", "add", "table", "inet", "other"], "");
                assert_eq!(one.missing().unwrap(), Vec::<String>::new());
                said(&["nft", "delete", "table", "inet", "other"], "");
                one.remove().unwrap();
            }
        });
    });
}

/// `plan()` with so many more peers, each with an outer address of its own.
fn with_peers(count: u32) -> Plan {
    let mut plan = plan();
    let here: IpAddr = "192.0.2.1".parse().unwrap();
    for number in 0..count {
        let peer = IpAddr::from((0xc633_6400 + number).to_be_bytes());
        plan.outer.extend([(here, peer), (peer, here)]);
    }
    plan
}

#[test]
fn peers_come_and_go_as_values_of_a_set_while_all_rules_stay() {
    isolated(|| {
        in_a_namespace(|| {
            let rules = |count| ruleset(&site(), &with_peers(count));
            let handles = || {
                let text = said(&["nft", "-a", "list", "table", "inet", "esplanade"], "");
                let lines = text.lines().filter(|line| line.contains("# handle"));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            let mut firewall = firewall(&site());
            firewall.apply(&rules(0)).unwrap();
            let before = handles();
            // More than one message of values, then all but one away, then others.
            for count in [3000, 1, 20] {
                firewall.apply(&rules(count)).unwrap();
                assert_eq!(handles(), before, "{count}");
                assert_eq!(firewall.missing().unwrap(), Vec::<String>::new());
                let table = Present::read(
                    &mut Connection::open().unwrap(),
                    TableFamily::Inet,
                    "esplanade",
                    &rules(count).set_names(),
                );
                assert!(
                    table.unwrap().unwrap().has_shape_of(&rules(count)),
                    "{count}"
                );
            }
            // Another program's table counts up the generation, too.
            said(&["nft", "add", "table", "inet", "other"], "");
            firewall.change_values(rules(21).sets).unwrap();
            assert_eq!(firewall.missing().unwrap(), Vec::<String>::new());
            assert_eq!(handles(), before);
        });
    });
}

#[test]
fn where_values_cannot_be_changed_because_the_table_is_gone_it_is_made_again() {
    isolated(|| {
        in_a_namespace(|| {
            let rules = |count| ruleset(&site(), &with_peers(count));
            for taken in [
                "delete table inet esplanade",
                "delete element inet esplanade outer_v4 { 192.0.2.1 . 192.0.2.2 }",
            ] {
                let mut firewall = firewall(&site());
                firewall.apply_unowned(&rules(1)).unwrap();
                said(&["nft", "-f", "-"], taken);
                // Removes what was taken, too.
                let mut fewer = rules(1);
                for set in &mut fewer.sets {
                    set.values.clear();
                }
                firewall.apply(&fewer).unwrap();
                assert_eq!(firewall.missing().unwrap(), Vec::<String>::new());
                assert_eq!(firewall.applied(), Some(&fewer));
                firewall.remove().unwrap();
            }
        });
    });
}
