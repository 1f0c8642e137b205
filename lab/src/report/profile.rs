//! Where the time went, by sampled profiles: the shares of a cell, put together for readers.

use super::findings::Cell;
use crate::meter::{OWNERS, WORK_KINDS};

/// Kinds of work in the order of a chart: whose it is, which of [`WORK_KINDS`], and the name for readers.
type Kind = (
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

const GATEWAYS: &[&str] = &["left", "right", "forwarding"];
const ALL: &[&str] = &[
    "cipher",
    "checksum",
    "own",
    "copies",
    "network",
    "scheduling",
    "kernel",
];

/// The kinds. What is left of the whole is idle.
pub const KINDS: [Kind; 8] = [
    (GATEWAYS, &["cipher"], "gateways: ciphers"),
    (GATEWAYS, &["own", "checksum"], "gateways: own code"),
    (GATEWAYS, &["copies"], "gateways: copies"),
    (GATEWAYS, &["network"], "gateways: network stack"),
    (
        GATEWAYS,
        &["scheduling", "kernel"],
        "gateways: calls, waiting",
    ),
    (&["kernel"], ALL, "kernel, for nobody in particular"),
    (&["endpoints"], ALL, "endpoints"),
    (&["others"], ALL, "other programs"),
];

/// The shares of [`KINDS`], where a profile of the cell was taken.
pub fn shares(cell: &Cell) -> Option<Vec<f64>> {
    samples(cell)?;
    let kinds = KINDS.iter();
    Some(
        kinds
            .map(|(who, places, _)| who.iter().map(|who| sum(cell, who, places)).sum())
            .collect(),
    )
}

fn sum(cell: &Cell, who: &str, places: &[&str]) -> f64 {
    let shares = places.iter().filter_map(|place| share(cell, who, place));
    shares.sum()
}

/// One of them alone: of whom, and of which place.
pub fn share(cell: &Cell, who: &str, place: &str) -> Option<f64> {
    cell.examined(&format!("profile.{who}.{place}_ratio"))
}

/// How many samples there are.
pub fn samples(cell: &Cell) -> Option<f64> {
    cell.examined("profile.samples_count")
        .filter(|count| *count > 0.0)
}

/// Those who did anything at all, with their names for readers and their share of each of [`WORK_KINDS`].
pub fn by_whom(cell: &Cell) -> Vec<(&'static str, Vec<f64>)> {
    let rows = OWNERS.iter().map(|(who, name)| {
        let places = WORK_KINDS.iter();
        let shares = places.map(|(place, _)| share(cell, who, place).unwrap_or(0.0));
        (*name, shares.collect::<Vec<f64>>())
    });
    rows.filter(|(_, shares)| shares.iter().any(|share| *share > 0.0))
        .collect()
}
