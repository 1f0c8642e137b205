//! What limited a trial: the link, the generator, the CPU quota of a gateway, one saturated processor and its host, the
//! cipher, copies and system calls, or drops and where; from the meters alone, with the evidence. Without evidence the
//! verdict is `unknown`. Trials under an intrusive meter show more: only a profile separates cipher from headers.

mod finding;
mod losses;
mod others;
mod profile;
mod share;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::load::Demand;
use crate::meter::Readings;
use crate::record::Verdict;
use finding::{Finding, SATURATED_RATIO};

/// From this share of the ideal on the link is full: the rest is connecting and the last packets under way.
const FULL_LINK_RATIO: f64 = 0.97;
/// Below this share of idle time all processors are busy.
const MAX_BUSY_IDLE_RATIO: f64 = 0.08;
/// This share of a gateway's time in one place decides between cipher and copies.
const DOMINANT_RATIO: f64 = 0.6;

/// Judges a trial by its figures and readings. `None` where nothing was filled, as with single requests.
pub(crate) fn judge(
    demand: Demand,
    figures: &BTreeMap<String, f64>,
    readings: &Readings,
) -> Option<Verdict> {
    match demand {
        Demand::RequestResponse => return None,
        Demand::Steady => return steady(figures),
        Demand::Saturating | Demand::RateSearch => {}
    }
    let full = [link(figures), generator(figures), share::used_up(readings)];
    let busy = [
        others::used(readings),
        core(readings),
        profile::one_processor(readings),
        busy(readings),
    ];
    let lost = [losses::many(readings)];
    // A search for the highest rate offers more than is carried, on purpose: its losses are a limit only where nothing
    // else is.
    let rest = if demand == Demand::RateSearch {
        [&busy[..], &lost].concat()
    } else {
        [&lost[..], &busy].concat()
    };
    let found: Vec<(&str, String)> = full.into_iter().chain(rest).flatten().collect();
    let limit = found.first().map_or("unknown", |(limit, _)| limit);
    let mut evidence: Vec<String> = found.iter().map(|(_, sentence)| sentence.clone()).collect();
    evidence.extend(idle(readings));
    evidence.extend(profile::shares(readings));
    evidence.extend((limit == "share").then(|| share::SOFTIRQ_NOTE.to_owned()));
    evidence.extend(hidden(limit, readings));
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
        None => format!("{lost:.0} frames were lost at a rate far below the capacity of the path"),
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

fn link(figures: &BTreeMap<String, f64>) -> Finding {
    let share = *figures.get("ideal_ratio")?;
    let said = format!(
        "goodput is {:.1} % of what the link can carry",
        share * 100.0
    );
    (share >= FULL_LINK_RATIO).then_some(("link", said))
}

fn generator(figures: &BTreeMap<String, f64>) -> Finding {
    let behind = figures
        .get("generator.behind")
        .is_some_and(|behind| *behind > 0.0);
    behind.then(|| {
        (
            "generator",
            "the generator could not reach the requested rates".into(),
        )
    })
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
    // The meter's window is a little longer than the load's.
    let share = (time / window).min(1.0);
    let said = format!(
        "thread {thread} of the {side} gateway ran {:.0} % of the time",
        share * 100.0
    );
    (share >= SATURATED_RATIO).then_some(("core", said))
}

fn idle_share(readings: &Readings) -> Option<f64> {
    let states = readings
        .iter()
        .filter(|(name, _)| name.starts_with("machine.") && name.ends_with("_s"));
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

/// A note on what the kernel's accounting leaves out, where the verdict depends on it.
fn hidden(limit: &str, readings: &Readings) -> Option<String> {
    let by_time = matches!(limit, "core" | "gateways" | "copies" | "unknown");
    let interrupts = *readings.get("machine.irq_s")?;
    let blind = by_time && interrupts == 0.0 && !readings.contains_key(profile::SAMPLES);
    blind.then(|| {
        "this kernel does not account interrupt time: work in softirqs is charged to the interrupted process"
            .into()
    })
}

/// All processors are busy: then the largest share of time decides, if the meters show it.
fn busy(readings: &Readings) -> Finding {
    if idle_share(readings)? > MAX_BUSY_IDLE_RATIO {
        return None;
    }
    if let Some(found) = profile::dominant(readings) {
        return Some(found);
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
            "all processors are busy, and the tunnel has no processes that show why".into(),
        ));
    }
    let (limit, share, what) = if user > DOMINANT_RATIO * all {
        (
            "gateways",
            user,
            "their own code: cipher and headers, which only a profile separates",
        )
    } else {
        (
            "copies",
            system,
            "the kernel: copies, system calls and the network stack",
        )
    };
    let said = format!(
        "all processors are busy, and the gateways spend {:.0} % of their time in {what}",
        100.0 * share / all
    );
    Some((limit, said))
}
