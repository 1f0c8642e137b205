use super::*;
use crate::plane::{Plane, Recorder};
use ipsec::setkey::{Forwarding, NoNames, compile};

pub(super) const TUNNEL: &str = "
    add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
    spdadd 10.1.0.0/24 10.2.0.0/24[53] udp -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;";

pub(super) fn apply(plane: &mut Recorder, text: &str) -> Arc<Snapshot> {
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames).unwrap();
    plane.apply(&lowered.commands).unwrap();
    plane.snapshot()
}

/// The events of a change, each with the name of its object.
fn reported(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let name = |what| match what {
        What::SaAdded(sa) => format!("+ {sa}"),
        What::SaUpdated(sa) => format!("= {sa}"),
        What::SaDeleted(sa) => format!("- {sa}"),
        What::PolicyAdded(policy) => format!("+ {} {}", policy.direction, policy.selector),
        What::PolicyDeleted(policy) => format!("- {} {}", policy.direction, policy.selector),
        other => format!("{other:?}"),
    };
    changes(before, after).into_iter().map(name).collect()
}

#[test]
fn changes_name_what_came_what_went_and_what_is_new_again() {
    let mut plane = Recorder::default();
    let empty = plane.snapshot();
    let first = apply(&mut plane, TUNNEL);
    let added = reported(&empty, &first);
    let [sa, policy] = &added[..] else {
        panic!("{added:?}");
    };
    assert!(sa.starts_with("+ ") && sa.contains("0x00001001"), "{sa}");
    assert!(policy.starts_with("+ out ") && policy.contains("10.2.0.0/24"));
    assert_eq!(changes(&first, &first), []);
    // The same keys again are the same association; other keys make another one. Associations are reported before
    // policies, and deletions before additions.
    let gone = |line: &String| line.replacen('+', "-", 1);
    let same = sa.replacen('+', "=", 1);
    let again = apply(&mut plane, &format!("flush; spdflush; {TUNNEL}"));
    assert_eq!(
        reported(&first, &again),
        [same, gone(policy), policy.clone()]
    );
    let other = TUNNEL.replace("0x0001", "0x1001");
    assert_ne!(other, TUNNEL);
    let second = apply(&mut plane, &format!("flush; spdflush; {other}"));
    let expected = [gone(sa), sa.clone(), gone(policy), policy.clone()];
    assert_eq!(reported(&again, &second), expected);
    // The reverse change gives the same with additions and deletions exchanged.
    assert_eq!(reported(&first, &empty), [gone(sa), gone(policy)]);
}

#[test]
fn a_change_of_one_thing_names_nothing_else() {
    let mut plane = Recorder::default();
    let first = apply(&mut plane, TUNNEL);
    let second = TUNNEL.replace("0x1001", "0x1002");
    let more = second.split("spdadd").next().unwrap();
    let with_two = apply(&mut plane, more);
    let added = reported(&first, &with_two);
    assert!(matches!(&added[..], [one] if one.starts_with("+ ") && one.contains("0x00001002")));
    let updated = apply(
        &mut plane,
        &more.replace("add", "update").replace("-r 64", "-r 128"),
    );
    let changed = reported(&with_two, &updated);
    assert!(matches!(&changed[..], [one] if one.starts_with("= ") && one.contains("0x00001002")));
}

fn policies(plane: &mut Recorder) -> Vec<PolicyReport> {
    use ipsec::command::{Answer, Command};
    let answers = plane.apply(&[Command::DumpPolicies]).unwrap();
    let [Answer::Policies(policies)] = &answers[..] else {
        panic!("other answers");
    };
    policies.clone()
}

#[test]
fn status_shows_what_there_is_and_never_keys() {
    let mut plane = Recorder::default();
    let snapshot = apply(&mut plane, TUNNEL);
    let sa = snapshot.sas().next().unwrap();
    sa.state.reserve(&sa.config, 3, 1400, 1).unwrap();
    sa.state.count_drop(Dropped::BadIcv);
    let policies = policies(&mut plane);
    let shown = serde_json::to_value(association(sa, &Directions::new())).unwrap();
    let expected = [
        ("spi", "\"0x00001001\""),
        ("source", "\"192.0.2.1\""),
        ("destination", "\"192.0.2.2\""),
        ("mode", "\"tunnel\""),
        ("suite", "\"aes-gcm-16\""),
        ("encapsulation", "[4500,4500]"),
        ("replay_window", "64"),
        ("esn", "false"),
        ("phase", "\"mature\""),
        ("sequence", "3"),
        ("drops", "{\"bad-icv\":1}"),
    ];
    for (name, value) in expected {
        assert_eq!(shown[name].to_string(), value, "{name} of {shown}");
    }
    let shown = serde_json::to_value(policy(&policies[0])).unwrap();
    let expected = [
        ("direction", "\"out\""),
        ("selector", "\"10.1.0.0/24[any] 10.2.0.0/24[53] udp\""),
        ("action", "\"ipsec esp/tunnel/192.0.2.1-192.0.2.2/require\""),
        ("spread", "1"),
    ];
    for (name, value) in expected {
        assert_eq!(shown[name].to_string(), value, "{name} of {shown}");
    }
    // No byte of the key in any of the ways in which bytes are written: hexadecimal, and numbers in a list.
    let whole = serde_json::to_string(&(association(sa, &Directions::new()), policy(&policies[0])))
        .unwrap();
    for part in ["00010203", "10111213", "0,1,2,3", "16,17,18,19"] {
        assert!(!whole.contains(part), "{whole}");
    }
}

#[test]
fn drops_are_added_up_by_reason_and_what_rules_refused_counts_with_them() {
    let mut plane = Recorder::default();
    let snapshot = apply(&mut plane, TUNNEL);
    snapshot
        .sas()
        .next()
        .unwrap()
        .state
        .count_drop(Dropped::BadIcv);
    let mut tallies = [PacketCounts::default(), PacketCounts::default()];
    tallies[0].drop(Dropped::NoSa, 2);
    tallies[1].drop(Dropped::NoSa, 3);
    tallies[1].drop(Dropped::BadIcv, 1);
    let counters = [
        (REFUSED[0], 7, 700),
        (REFUSED[1], 0, 0),
        ("clear_in", 5, 500),
        ("clear_out", 0, 0),
    ];
    let shown = drops(&tallies, snapshot.sas(), &counters);
    let pairs = |map: &BTreeMap<String, u64>| -> Vec<(String, u64)> {
        map.iter()
            .map(|(name, count)| (name.clone(), *count))
            .collect()
    };
    let named = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
        pairs
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    };
    let expected = [("bad-icv", 1), ("no-sa", 5), ("policy-in", 7)];
    assert_eq!(pairs(&shown.reasons), named(&expected));
    assert_eq!(shown.total, 13);
    // Blocked unencrypted packets are counted apart from IPsec drops, and are reported even if there are none.
    assert_eq!(
        pairs(&shown.clear),
        named(&[("clear_in", 5), ("clear_out", 0)])
    );
    assert_eq!(shown.associations.len(), 1);
    assert_eq!(
        pairs(&shown.associations[0].reasons),
        named(&[("bad-icv", 1)])
    );
    assert!(drops(&[], std::iter::empty(), &[]).reasons.is_empty());
}

#[test]
fn each_direction_is_printed_with_its_own_figures() {
    use dataplane::pipeline::governor::{Workers, report_cell};
    let report = |workers, serial_ns| {
        let mut report = *report_cell(Workers::Forced(workers)).lock().unwrap();
        report.busy = 0.5;
        report.costs.serial_ns = serial_ns;
        report.costs.transform_ns = serial_ns + 1.0;
        report.costs.call_ns = serial_ns + 2.0;
        report
    };
    let shown = lanes([report(0, 10.0), report(3, 20.0)]);
    let lines: Vec<_> = shown
        .iter()
        .map(|lane| {
            let costs = [lane.serial_ns, lane.transform_ns, lane.call_ns].map(|ns| ns as u32);
            (&*lane.direction, &*lane.mode, lane.workers, costs)
        })
        .collect();
    assert_eq!(
        lines,
        [
            ("outbound", "inline", 0, [10, 11, 12]),
            ("inbound", "workers", 3, [20, 21, 22])
        ]
    );
    let tally = PacketCounts {
        packets: 1,
        bytes: 2,
        batches: 3,
        calls: 4,
        ..PacketCounts::default()
    };
    let shown = traffic(&tally, (5, 6));
    let figures = [
        shown.packets,
        shown.bytes,
        shown.batches,
        shown.calls,
        shown.packets_per_second,
        shown.bits_per_second,
    ];
    assert_eq!((figures, shown.dropped), ([1, 2, 3, 4, 5, 6], 0));
}

#[test]
fn each_offload_of_the_device_is_printed_for_its_own_direction() {
    let takes = |tcp_v4, tcp_v6, udp| TrainKinds {
        tcp_v4,
        tcp_v6,
        udp,
    };
    let abilities = TunOffloads {
        checksum: true,
        read: takes(true, false, true),
        write: takes(false, true, false),
    };
    assert_eq!(
        offloads(abilities),
        [
            "TUN offloads: segmentation (GSO) from the kernel: TCP/IPv4, UDP; to the kernel: TCP/IPv6; partial checksums: yes"
        ]
    );
    assert_eq!(
        offloads(TunOffloads::default()),
        [
            "TUN offloads: segmentation (GSO) from the kernel: none; to the kernel: none; partial checksums: no"
        ]
    );
}

#[test]
fn memory_is_printed_in_bytes_as_the_kernel_counts_it() {
    // This program with its tables of tests is larger than a megabyte and smaller than a machine.
    let peak = peak_memory();
    assert!((1 << 20..1 << 40).contains(&peak), "{peak}");
    assert_eq!(peak % 1024, 0);
}

#[test]
fn a_new_competing_association_is_reported_once_with_the_one_that_carries() {
    let mut plane = Recorder::default();
    let first = apply(&mut plane, TUNNEL);
    assert_eq!(rivals(&first, &first), Vec::<String>::new());
    let native = "add 192.0.2.1 192.0.2.2 esp 0x2001 -m tunnel -r 64 -E aes-gcm-16 0x100102030405060708090a0b0c0d0e0f10111213;";
    let second = apply(&mut plane, native);
    let shown = rivals(&first, &second);
    assert_eq!(shown.len(), 1, "{shown:?}");
    let (carrier, idle) = shown[0].split_once(" carries all traffic that ").unwrap();
    assert!(
        carrier.contains("0x00002001") && carrier.contains("native"),
        "{carrier}"
    );
    assert!(
        idle.contains("0x00001001") && idle.contains("in UDP 4500-4500"),
        "{idle}"
    );
    assert_eq!(rivals(&second, &second), Vec::<String>::new());
}
