//! Figures and factors of records, and what varies in a part: the figure that is its result, and the factors
//! that take several levels.

use std::collections::BTreeSet;

use crate::record::{Outcome, Record};

/// The factor that names the part of a study.
pub(super) const PART: &str = "part";

/// A factor and its levels: by size where all are numbers, in order of appearance otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The factor's dotted name.
    pub name: String,
    /// The levels.
    pub levels: Vec<String>,
}

/// A figure of a record; goodput also of records from before there were figures.
pub fn figure(record: &Record, name: &str) -> Option<f64> {
    let Outcome::Measured { carried, .. } = &record.outcome else {
        return None;
    };
    let found = record.figures.get(name).copied();
    found.or_else(|| {
        (name == "goodput_bps" && record.figures.is_empty()).then_some(carried.goodput_bps)
    })
}

/// A factor of a record.
pub fn factor<'a>(record: &'a Record, name: &str) -> Option<&'a str> {
    record.factors.get(name).map(String::as_str)
}

/// The figure that is the result: the first of this list that most trials have.
pub(super) fn leading(groups: &[Vec<&Record>]) -> Option<String> {
    const FIRST: [&str; 10] = [
        "ndr_pps",
        "pdr_pps",
        "transactions_per_s",
        "connections_per_s",
        "lost_per_rekey",
        "outage_s",
        "goodput_bps",
        "rate_pps",
        "rtt.p50_us",
        "latency.p50_us",
    ];
    let records: Vec<&&Record> = groups.iter().flatten().collect();
    let has = |name: &str| {
        let with = records
            .iter()
            .filter(|record| figure(record, name).is_some());
        2 * with.count() > records.len()
    };
    let known = FIRST
        .iter()
        .find(|name| has(name))
        .map(|name| (*name).to_owned());
    known.or_else(|| records.first()?.figures.keys().next().cloned())
}

/// A figure under a share of the processors is not comparable without it, so it is named also where it never varies.
pub(super) const SHARE: &str = "share";

/// Factors that take several levels for one and the same contender.
pub(super) fn settings(groups: &[Vec<&Record>]) -> Vec<Setting> {
    let firsts: Vec<&Record> = groups
        .iter()
        .filter_map(|trials| trials.first().copied())
        .collect();
    let names: BTreeSet<&String> = firsts
        .iter()
        .flat_map(|record| record.factors.keys())
        .collect();
    names
        .into_iter()
        .filter(|name| *name != PART && (*name == SHARE || varies(&firsts, name)))
        .map(|name| Setting {
            name: name.clone(),
            levels: levels(&firsts, name),
        })
        .collect()
}

fn varies(firsts: &[&Record], name: &str) -> bool {
    firsts.iter().any(|one| {
        firsts.iter().any(|other| {
            let (here, there) = (factor(one, name), factor(other, name));
            one.contender == other.contender && here.is_some() && there.is_some() && here != there
        })
    })
}

fn levels(firsts: &[&Record], name: &str) -> Vec<String> {
    let mut levels: Vec<String> = Vec::new();
    for level in firsts.iter().filter_map(|record| factor(record, name)) {
        if !levels.iter().any(|known| known == level) {
            levels.push(level.into());
        }
    }
    let size = |level: &String| level.parse::<f64>().ok();
    if levels.iter().all(|level| size(level).is_some()) {
        let sized = |level: &String| size(level).unwrap_or_default();
        levels.sort_by(|a, b| sized(a).total_cmp(&sized(b)));
    }
    levels
}

#[cfg(test)]
mod tests {
    use crate::report::findings::Findings;
    use crate::report::fixture;

    fn records(cells: &[(&str, Option<&str>, f64)]) -> Vec<crate::record::Record> {
        let cells = cells
            .iter()
            .enumerate()
            .flat_map(|(order, (name, share, mbit))| {
                let factors: Vec<(&str, &str)> =
                    share.iter().map(|level| ("share", *level)).collect();
                let rounds = [0.99, 1.0, 1.01].map(|scatter| scatter * mbit * 1e6);
                fixture::cell(name, order, &factors, &rounds)
            });
        cells.collect()
    }

    #[test]
    fn a_share_is_named_also_where_it_never_varies() {
        let records = records(&[("plain", None, 900.0), ("a", Some("0.25"), 100.0)]);
        let findings = Findings::of(&records).unwrap();
        let names: Vec<String> = findings.cells().map(|cell| cell.name()).collect();
        assert_eq!(names, ["plain", "a · share 0.25"]);
    }

    #[test]
    fn who_is_held_to_a_share_is_ranked_among_those_of_the_same_only_and_held_against_the_reference()
     {
        let records = records(&[
            ("plain", None, 900.0),
            ("a", Some("0.25"), 100.0),
            ("b", None, 500.0),
            ("b", Some("0.25"), 50.0),
        ]);
        let findings = Findings::of(&records).unwrap();
        let ranks: Vec<(usize, usize)> = findings.cells().map(|cell| cell.rank).collect();
        assert_eq!(ranks, [(1, 1), (1, 1), (2, 2), (2, 2)]);
        let ratios = findings.cells().filter_map(|cell| cell.ratio);
        let ratios: Vec<f64> = ratios.map(|ratio| (ratio.value * 900.0).round()).collect();
        assert_eq!(ratios, [100.0, 500.0, 50.0]);
    }
}
