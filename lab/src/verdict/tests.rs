//! Tables of readings and their verdicts.

use std::path::Path;

use super::*;
use crate::load::{
    Direction, Iperf3, Load, LoadedRoundTrip, Netperf, RequestTransport, RoundTrip, Test,
};

fn readings(pairs: &[(&str, f64)]) -> Readings {
    let mut all = Readings::from([
        ("window_s".into(), 2.0),
        ("machine.idle_s".into(), 2.0),
        ("machine.user_s".into(), 2.0),
        ("left.if.wan.rx_packets".into(), 1e5),
    ]);
    all.extend(
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value)),
    );
    all
}

fn limit(figures: &[(&str, f64)], pairs: &[(&str, f64)]) -> String {
    let figures = figures
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    judge(Demand::Saturating, &figures, &readings(pairs))
        .unwrap()
        .limit
}

#[test]
fn a_full_link_is_the_limit_whatever_else_is_busy() {
    assert_eq!(
        limit(
            &[("ideal_ratio", 0.985)],
            &[("left.thread.tx-0.cpu_s", 1.99)]
        ),
        "link"
    );
    assert_eq!(limit(&[("ideal_ratio", 0.9)], &[]), "unknown");
}

#[test]
fn one_saturated_thread_is_named_with_its_gateway() {
    let readings = readings(&[
        ("left.thread.tx-0.cpu_s", 1.2),
        ("right.thread.rx-1.cpu_s", 1.9),
    ]);
    let verdict = judge(Demand::Saturating, &BTreeMap::new(), &readings).unwrap();
    assert_eq!(verdict.limit, "core");
    assert_eq!(
        verdict.evidence[0],
        "thread rx-1 of the right gateway ran 95 % of the time"
    );
    assert_eq!(
        verdict.evidence[1],
        "the machine's processors were idle 50 % of the time"
    );
}

#[test]
fn the_limit_of_a_busy_machine_is_named_by_where_the_gateways_spend_their_time() {
    let busy = |user, system| {
        limit(
            &[],
            &[
                ("machine.idle_s", 0.0),
                ("left.cpu.user_s", user),
                ("left.cpu.system_s", system),
            ],
        )
    };
    assert_eq!(
        (busy(1.5, 0.3), busy(0.3, 1.0)),
        ("gateways".into(), "copies".into())
    );
    assert_eq!(limit(&[], &[("machine.idle_s", 0.0)]), "core");
}

#[test]
fn losses_of_a_search_are_a_limit_where_nothing_else_is() {
    let lost = ("right.udp.receive_buffer_errors", 500.0);
    let judged = |demand: Demand, pairs: &[(&str, f64)]| {
        judge(demand, &BTreeMap::new(), &readings(pairs)).unwrap()
    };
    let busy = [lost, ("right.thread.rx-1.cpu_s", 1.9)];
    assert_eq!(judged(Demand::RateSearch, &busy).limit, "core");
    assert_eq!(judged(Demand::RateSearch, &busy).evidence.len(), 3);
    assert_eq!(judged(Demand::RateSearch, &[lost]).limit, "drops");
    assert_eq!(judged(Demand::Saturating, &busy).limit, "drops");
}

#[test]
fn drops_and_a_slow_generator_are_found() {
    assert_eq!(
        limit(&[], &[("right.udp.receive_buffer_errors", 500.0)]),
        "drops"
    );
    assert_eq!(
        limit(&[], &[("right.udp.receive_buffer_errors", 5.0)]),
        "unknown"
    );
    assert_eq!(limit(&[("generator.behind", 1.0)], &[]), "generator");
}

#[test]
fn a_tunnel_that_loses_at_a_renewal_or_reorders_is_named() {
    let judged = |pairs: &[(&str, f64)]| {
        let figures = pairs.iter().map(|(name, value)| ((*name).into(), *value));
        judge(Demand::Steady, &figures.collect(), &Readings::new())
    };
    assert_eq!(
        judged(&[("lost_count", 0.0), ("lost_per_rekey", 0.0)]),
        None
    );
    let lossy = judged(&[("lost_count", 12.0), ("lost_per_rekey", 4.0)]).unwrap();
    assert_eq!(lossy.limit, "drops");
    assert_eq!(
        lossy.evidence,
        ["12 frames were lost, 4.0 for each renewal of the keys"]
    );
    let disorderly = judged(&[("lost_count", 0.0), ("reordered_count", 3.0)]).unwrap();
    assert_eq!(disorderly.limit, "disorder");
}

#[test]
fn single_questions_fill_nothing() {
    let lab = Path::new("lab");
    let netperf = Netperf {
        test: Test::Requests { bytes: 64 },
        nodelay: false,
        direction: Direction::Forward,
    };
    let loads: [Box<dyn Load>; 4] = [
        Box::new(RoundTrip::new(lab, 64, RequestTransport::Datagram)),
        Box::new(LoadedRoundTrip::new(lab, 64, Iperf3::default())),
        Box::new(RoundTrip::new(lab, 64, RequestTransport::Connection)),
        Box::new(netperf),
    ];
    for load in loads {
        assert_eq!(
            judge(load.demand(), &BTreeMap::new(), &Readings::new()),
            None
        );
    }
}

#[test]
fn losses_are_listed_by_place_and_by_the_tunnels_own_reasons() {
    let rows: [(&[(&str, f64)], &str); 5] = [
        (
            &[("drops.replayed", 700.0), ("drops.no-sa", 300.0)],
            "1000 by the tunnel itself (replayed, no-sa)",
        ),
        (
            &[("server.kernel.Udp.RcvbufErrors_count", 500.0)],
            "500 at full socket buffers",
        ),
        (&[("left.if.wan.tx_dropped", 400.0)], "400 at interfaces"),
        (
            &[("softnet.dropped_count", 300.0)],
            "300 in full backlogs (softnet)",
        ),
        (
            &[
                ("softnet.dropped_count", 300.0),
                ("left.if.wan.tx_dropped", 300.0),
            ],
            "300 packets were dropped while",
        ),
    ];
    for (losses, wanted) in rows {
        let verdict = judge(Demand::Saturating, &BTreeMap::new(), &readings(losses)).unwrap();
        assert_eq!(verdict.limit, "drops");
        assert!(verdict.evidence[0].contains(wanted), "{verdict:?}");
    }
    let gateway = [("left.kernel.Udp.RcvbufErrors_count", 500.0)];
    assert_eq!(limit(&[], &gateway), "unknown", "it is counted elsewhere");
}

/// Readings of a machine without idle time, under a profile.
fn profiled(shares: &[(&str, f64)]) -> Vec<(&'static str, f64)> {
    let mut all = vec![("machine.idle_s", 0.0), ("profile.samples_count", 4000.0)];
    for (name, share) in shares {
        all.push((format!("profile.{name}_ratio").leak(), *share));
    }
    all
}

#[test]
fn a_profile_names_what_a_busy_machine_was_busy_with() {
    let rows: [(&[(&str, f64)], &str); 7] = [
        (
            &[
                ("left.cipher", 0.3),
                ("right.cipher", 0.25),
                ("left.copies", 0.2),
                ("left.own", 0.2),
            ],
            "cipher",
        ),
        (
            &[
                ("left.cipher", 0.2),
                ("right.own", 0.3),
                ("right.checksum", 0.1),
                ("left.copies", 0.2),
            ],
            "gateways",
        ),
        (
            &[
                ("left.cipher", 0.3),
                ("right.copies", 0.2),
                ("right.network", 0.2),
            ],
            "copies",
        ),
        (
            &[("forwarding.cipher", 0.5), ("endpoints.copies", 0.3)],
            "cipher",
        ),
        (
            &[
                ("forwarding.network", 0.2),
                ("endpoints.copies", 0.3),
                ("endpoints.network", 0.3),
            ],
            "generator",
        ),
        (&[("left.cipher", 0.5), ("others.own", 0.3)], "others"),
        (
            &[
                ("left.cipher", 0.5),
                ("busiest.kernel", 0.5),
                ("busiest.forwarding", 0.4),
            ],
            "core",
        ),
    ];
    for (shares, wanted) in rows {
        assert_eq!(limit(&[], &profiled(shares)), wanted, "{shares:?}");
    }
}

#[test]
fn an_endpoint_that_fills_a_processor_is_the_limit_though_others_idle() {
    let shares = [
        ("profile.samples_count", 4000.0),
        ("profile.busiest.endpoints_ratio", 0.97),
    ];
    assert_eq!(limit(&[], &shares), "generator");
    let few = [("profile.samples_count", 50.0), shares[1]];
    assert_eq!(limit(&[], &few), "unknown", "fifty samples say little");
}

#[test]
fn without_a_profile_cipher_and_headers_are_one_limit_and_its_text_names_both() {
    let times = [
        ("machine.idle_s", 0.0),
        ("machine.irq_s", 0.0),
        ("left.cpu.user_s", 1.5),
    ];
    let verdict = judge(Demand::Saturating, &BTreeMap::new(), &readings(&times)).unwrap();
    assert_eq!(verdict.limit, "gateways");
    assert!(verdict.evidence[0].ends_with("which only a profile separates"));
    let hidden = verdict.evidence.last().unwrap();
    assert!(
        hidden.starts_with("this kernel does not account interrupt time"),
        "{hidden}"
    );
    let link = judge(
        Demand::Saturating,
        &BTreeMap::from([("ideal_ratio".into(), 0.99)]),
        &readings(&times),
    );
    let said = link.unwrap().evidence;
    assert!(
        !said.iter().any(|one| one.contains("interrupts")),
        "{said:?}"
    );
}

/// A gateway under a share: seconds given and used, and the periods with those at whose end it was stopped.
fn shared(
    side: &str,
    given: f64,
    used: f64,
    periods: f64,
    stopped: f64,
) -> [(&'static str, f64); 4] {
    let named = |name: &str| -> &'static str { format!("{side}.{name}").leak() };
    [
        (named("share.given_s"), given),
        (named("thread.tx-0.cpu_s"), used),
        (named("share.periods_count"), periods),
        (named("share.throttled_count"), stopped),
    ]
}

#[test]
fn a_share_is_the_limit_where_it_was_used_up() {
    let rows = [
        // Stopped in nearly every period.
        (shared("left", 0.5, 0.49, 200.0, 190.0), "share"),
        // Stopped less often, but all was used: one long piece of work in each period.
        (shared("right", 0.5, 0.48, 200.0, 60.0), "share"),
        // Pauses in the traffic that are none of the share's.
        (shared("left", 0.5, 0.2, 200.0, 60.0), "unknown"),
        // As much as one thread can do, and never stopped: the processor is the limit.
        (shared("left", 2.0, 1.96, 200.0, 0.0), "core"),
        // Nothing ran at all.
        (shared("left", 0.5, 0.0, 0.0, 0.0), "unknown"),
    ];
    for (given, wanted) in rows {
        assert_eq!(limit(&[], &given), wanted, "{given:?}");
    }
    let full = shared("left", 0.5, 0.49, 200.0, 190.0);
    assert_eq!(limit(&[("ideal_ratio", 0.99)], &full), "link");
}

#[test]
fn of_two_gateways_under_a_share_the_one_that_was_stopped_more_is_named() {
    let mut pairs = shared("left", 0.5, 0.3, 200.0, 110.0).to_vec();
    pairs.extend(shared("right", 0.5, 0.5, 200.0, 180.0));
    // It loses packets because it is stopped, and not the other way round.
    pairs.push(("right.udp.receive_buffer_errors", 500.0));
    let verdict = judge(Demand::Saturating, &BTreeMap::new(), &readings(&pairs)).unwrap();
    assert_eq!(verdict.limit, "share");
    assert_eq!(
        verdict.evidence[0],
        "the right gateway was stopped in 90 % of its periods, and used 0.50 s of the 0.50 s of processor time that its share gave it"
    );
    let said = verdict.evidence.join("; ");
    assert!(
        said.contains("500 packets were dropped") && said.contains("softirqs"),
        "{said}"
    );
}

#[test]
fn time_in_ticks_stands_in_for_threads_that_could_not_be_read() {
    let mut pairs = shared("left", 0.5, 0.0, 200.0, 20.0).to_vec();
    pairs.extend([("left.cpu.user_s", 0.2), ("left.cpu.system_s", 0.29)]);
    assert_eq!(limit(&[], &pairs), "share");
}

#[test]
fn processors_that_others_use_veto_every_limit_by_processor_time() {
    let busy_thread = ("left.thread.tx-0.cpu_s", 1.9);
    assert_eq!(limit(&[], &[busy_thread]), "core");
    // Two seconds idle, two busy and two stolen.
    let stolen = [busy_thread, ("machine.steal_s", 2.0)];
    let verdict = judge(Demand::Saturating, &BTreeMap::new(), &readings(&stolen)).unwrap();
    assert_eq!(verdict.limit, "others");
    assert_eq!(
        verdict.evidence[..2],
        [
            "the host took 33 % of the processor time",
            "thread tx-0 of the left gateway ran 95 % of the time"
        ]
    );
    let others = [
        busy_thread,
        ("profile.samples_count", 900.0),
        ("profile.others.own_ratio", 0.3),
    ];
    assert_eq!(limit(&[], &others), "others");
    assert_eq!(limit(&[("ideal_ratio", 0.99)], &others), "link");
    let few = [busy_thread, ("machine.steal_s", 0.2)];
    assert_eq!(limit(&[], &few), "core");
}

#[test]
fn a_thread_runs_at_most_all_of_the_time() {
    let readings = readings(&[("left.thread.tx-0.cpu_s", 2.3)]);
    let verdict = judge(Demand::Saturating, &BTreeMap::new(), &readings).unwrap();
    assert_eq!(
        verdict.evidence[0],
        "thread tx-0 of the left gateway ran 100 % of the time"
    );
}
