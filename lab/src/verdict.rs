//! What limited a trial: the link, the generator, one saturated processor and whose, the cipher, copies and system calls, or
//! drops; from the meters alone, with the observations that say so. Where they say nothing, the verdict is `unknown` and
//! the observations stand.

use std::collections::BTreeMap;

use crate::meter::Readings;
use crate::record::Verdict;

/// From this share of the ideal on the link is full: the rest is connecting and the last packets under way.
const FULL_LINK: f64 = 0.97;
/// A thread that had a processor for this share of the time had it nearly always.
const SATURATED: f64 = 0.85;
/// Below this share of idle time all processors are busy.
const NO_IDLE: f64 = 0.08;
/// Losses matter from this share of the packets on.
const MANY_DROPS: f64 = 0.001;
/// This share of a gateway's time in one place decides between cipher and copies.
const MOST: f64 = 0.6;

/// Judges a trial by its figures and readings. `None` where nothing was filled, as with single questions.
pub fn judge(load: &str, figures: &BTreeMap<String, f64>, readings: &Readings) -> Option<Verdict> {
    match load {
        "round-trip" | "loaded-round-trip" | "connections" => return None,
        "frames-steady" => return steady(figures),
        _ => {}
    }
    let found = [
        link(figures),
        generator(figures),
        drops(readings),
        core(readings),
        busy(readings),
    ];
    let found: Vec<(&str, String)> = found.into_iter().flatten().collect();
    let limit = found.first().map_or("unknown", |(limit, _)| limit);
    let mut evidence: Vec<String> = found.iter().map(|(_, sentence)| sentence.clone()).collect();
    evidence.extend(idle(readings));
    Some(Verdict {
        limit: limit.into(),
        evidence,
    })
}

/// A steady stream fills nothing, but it shows what a tunnel does to packets that it must not do.
fn steady(figures: &BTreeMap<String, f64>) -> Option<Verdict> {
    let count = |name: &str| figures.get(name).copied().filter(|count| *count > 0.0);
    let lost = count("lost_count").map(|lost| match figures.get("lost_per_rekey") {
        Some(each) => format!("{lost:.0} frames were lost, {each:.1} for each renewal of the keys"),
        None => format!("{lost:.0} frames were lost of a stream far below what the path carries"),
    });
    let reordered = count("reordered_count")
        .map(|count| format!("reordering: {count:.0} frames were overtaken by later ones"));
    let doubled = count("duplicates_count")
        .map(|count| format!("duplication: {count:.0} frames arrived again"));
    let evidence: Vec<String> = [lost, reordered, doubled].into_iter().flatten().collect();
    let limit = if count("lost_count").is_some() {
        "drops"
    } else {
        "disorder"
    };
    (!evidence.is_empty()).then(|| Verdict {
        limit: limit.into(),
        evidence,
    })
}

type Finding = Option<(&'static str, String)>;

fn link(figures: &BTreeMap<String, f64>) -> Finding {
    let share = *figures.get("ideal_ratio")?;
    let said = format!(
        "goodput is {:.1} % of what the link can carry",
        share * 100.0
    );
    (share >= FULL_LINK).then_some(("link", said))
}

fn generator(figures: &BTreeMap<String, f64>) -> Finding {
    let behind = figures
        .get("generator.behind")
        .is_some_and(|behind| *behind > 0.0);
    behind.then(|| {
        (
            "generator",
            "the generator could not offer the rates that were asked of it".into(),
        )
    })
}

fn drops(readings: &Readings) -> Finding {
    let sum = |wanted: fn(&str) -> bool| -> f64 {
        let found = readings.iter().filter(|(name, _)| wanted(name));
        found.map(|(_, count)| count.max(0.0)).sum()
    };
    let lost = sum(|name| {
        name.starts_with("drops.") || name.ends_with("_dropped") || name.ends_with("_buffer_errors")
    });
    let passed = sum(|name| name.ends_with(".if.wan.rx_packets"));
    let said = format!("{lost:.0} packets were dropped while {passed:.0} passed the wire");
    (lost > MANY_DROPS * passed && passed > 0.0).then_some(("drops", said))
}

fn window(readings: &Readings) -> Option<f64> {
    readings
        .get("window_s")
        .copied()
        .filter(|window| *window > 0.0)
}

/// The busiest thread of the gateways, if it had a processor nearly always.
fn core(readings: &Readings) -> Finding {
    let window = window(readings)?;
    let threads = readings
        .iter()
        .filter(|(name, _)| name.contains(".thread."));
    let (name, time) = threads.max_by(|one, other| one.1.total_cmp(other.1))?;
    let (side, thread) = name.strip_suffix(".cpu_s")?.split_once(".thread.")?;
    let share = time / window;
    let said = format!(
        "thread {thread} of the {side} gateway ran {:.0} % of the time",
        share * 100.0
    );
    (share >= SATURATED).then_some(("core", said))
}

fn idle_share(readings: &Readings) -> Option<f64> {
    let states = readings
        .iter()
        .filter(|(name, _)| name.starts_with("machine."));
    let all: f64 = states.map(|(_, seconds)| seconds).sum();
    let idle = readings.get("machine.idle_s")? + readings.get("machine.iowait_s").unwrap_or(&0.0);
    (all > 0.0).then(|| idle / all)
}

fn idle(readings: &Readings) -> Option<String> {
    idle_share(readings).map(|share| {
        format!(
            "the machine's processors were idle {:.0} % of the time",
            share * 100.0
        )
    })
}

/// All processors are busy: then where the gateways spend their time decides.
fn busy(readings: &Readings) -> Finding {
    if idle_share(readings)? > NO_IDLE {
        return None;
    }
    let sum = |word: &str| -> f64 {
        let sides = ["left", "right"].into_iter();
        sides
            .filter_map(|side| readings.get(&format!("{side}.cpu.{word}_s")))
            .sum()
    };
    let (user, system) = (sum("user"), sum("system"));
    let all = user + system;
    if all <= 0.0 {
        return Some((
            "core",
            "all processors are busy, and no process of the tunnel shows with what".into(),
        ));
    }
    let (limit, share, what) = match user > MOST * all {
        true => (
            "cipher",
            user,
            "their own code, which is cipher and headers",
        ),
        false => (
            "copies",
            system,
            "the kernel, which is copies, system calls and the path between",
        ),
    };
    let said = format!(
        "all processors are busy, and the gateways spend {:.0} % of their time in {what}",
        100.0 * share / all
    );
    Some((limit, said))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        judge("iperf3-tcp", &figures, &readings(pairs))
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
        let verdict = judge("iperf3-tcp", &BTreeMap::new(), &readings).unwrap();
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
    fn a_busy_machine_is_told_apart_by_where_the_gateways_spend_their_time() {
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
            ("cipher".into(), "copies".into())
        );
        assert_eq!(limit(&[], &[("machine.idle_s", 0.0)]), "core");
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
            judge("frames-steady", &figures.collect(), &Readings::new())
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
        assert_eq!(
            judge("round-trip", &BTreeMap::new(), &Readings::new()),
            None
        );
    }
}
