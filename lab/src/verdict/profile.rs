//! What a sampled profile adds to a verdict: whose work filled the processors, and of which kind.

use super::finding::{Finding, SATURATED_RATIO};
use crate::meter::Readings;

/// The reading that every profile has.
pub(super) const SAMPLES: &str = "profile.samples_count";
/// Fewer samples are not significant.
const MIN_SAMPLES: f64 = 200.0;

/// Whose work a gateway's is, its part in the kernel included.
const GATEWAY_OWNERS: [&str; 3] = ["left", "right", "forwarding"];

fn share(readings: &Readings, who: &[&str], place: &str) -> f64 {
    let names = who.iter().map(|who| format!("profile.{who}.{place}_ratio"));
    names.filter_map(|name| readings.get(&name)).sum()
}

/// All kinds of work of one.
fn total(readings: &Readings, who: &str) -> f64 {
    let begins = format!("profile.{who}.");
    let shares = readings
        .iter()
        .filter(|(name, _)| name.starts_with(&begins));
    shares.map(|(_, share)| share).sum()
}

fn enough_samples(readings: &Readings) -> Option<f64> {
    readings
        .get(SAMPLES)
        .copied()
        .filter(|samples| *samples >= MIN_SAMPLES)
}

/// One processor that was busy nearly always, nearly always for the same.
pub(super) fn one_processor(readings: &Readings) -> Finding {
    enough_samples(readings)?;
    let of = |who: &str| {
        let name = format!("profile.busiest.{who}_ratio");
        readings.get(&name).copied().unwrap_or(0.0)
    };
    let in_the_kernel = of("forwarding") + of("kernel");
    let said = |share: f64, what: &str| {
        format!(
            "one processor spent {:.0} % of its time on {what}",
            100.0 * share
        )
    };
    if of("endpoints") >= SATURATED_RATIO {
        return Some((
            "generator",
            said(of("endpoints"), "the work of an endpoint"),
        ));
    }
    let path = "carrying packets in softirqs";
    (in_the_kernel >= SATURATED_RATIO).then(|| ("core", said(in_the_kernel, path)))
}

/// The share of the processor time that other programs used, where a profile was taken.
pub(super) fn others(readings: &Readings) -> Option<f64> {
    enough_samples(readings)?;
    Some(total(readings, "others"))
}

/// What most of the time went into, when no processor has any left.
pub(super) fn dominant(readings: &Readings) -> Finding {
    enough_samples(readings)?;
    let of = |place: &str| share(readings, &GATEWAY_OWNERS, place);
    let in_the_kernel = of("copies") + of("network") + of("scheduling") + of("kernel");
    let kinds = [
        ("cipher", of("cipher"), "the gateways' ciphers"),
        (
            "gateways",
            of("own") + of("checksum"),
            "the gateways' own code beside the ciphers",
        ),
        (
            "copies",
            in_the_kernel,
            "copies, system calls and the kernel's path at the gateways",
        ),
        ("generator", total(readings, "endpoints"), "the endpoints"),
    ];
    let (limit, share, what) = kinds
        .into_iter()
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some((
        limit,
        format!(
            "all processors are busy, mostly with {what}: {:.0} % of their time",
            100.0 * share
        ),
    ))
}

/// The whole picture in a sentence.
pub(super) fn shares(readings: &Readings) -> Option<String> {
    let samples = *readings.get(SAMPLES)?;
    let of = |place: &str| 100.0 * share(readings, &GATEWAY_OWNERS, place);
    let of_whom = |who: &str| 100.0 * total(readings, who);
    Some(format!(
        "by {samples:.0} samples the gateways spent {:.0} % of all processors' time in ciphers, {:.0} % in own code, {:.0} % in copies, {:.0} % in the \
         network stack and {:.0} % in calls and waiting; the kernel took {:.0} % (not attributed), endpoints {:.0} %, other programs {:.0} %",
        of("cipher"),
        of("own") + of("checksum"),
        of("copies"),
        of("network"),
        of("scheduling") + of("kernel"),
        of_whom("kernel"),
        of_whom("endpoints"),
        of_whom("others"),
    ))
}
