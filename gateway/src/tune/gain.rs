//! The measured gain of a setting, read from the records of `esplanade lab run tune`, never estimated.
//!
//! A part of that study differs from its part `as-it-is` in one factor or in several. Rounds in which both were
//! measured are pairs, and the gain is the median of their ratios.

use crate::failure::Failure;
use crate::speed::statistics::interval;
use dataplane::bench::median;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The study's part in which nothing is changed.
const BASE: &str = "as-it-is";
const FIGURE: &str = "goodput_bps";
/// The suffix that the lab adds to a contender's name in the study of offloads.
const WITHOUT_OFFLOADS: &str = "-no-offloads";

/// The records of one run.
pub(super) struct Gains {
    pub folder: PathBuf,
    /// Why they count as results of another machine or another kernel, if they do.
    pub elsewhere: Option<String>,
    lines: Vec<Line>,
}

/// The gain of a setting.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub(super) struct Gain {
    /// The value that was measured, as the study wrote it.
    pub level: String,
    /// Whether the study measured the recommended value's absence: the ratio is inverted, so that it is that of having
    /// it.
    pub of_having_it: bool,
    /// Factors that were changed with it.
    pub with: Vec<String>,
    pub contender: String,
    /// Median of the ratios of goodput, round by round.
    pub ratio: f64,
    /// The 95 % interval of the median; absent with fewer than six pairs.
    pub interval: Option<[f64; 2]>,
    pub pairs: usize,
}

/// The part of a record that matters here.
#[derive(Deserialize)]
struct Line {
    contender: String,
    round: usize,
    factors: BTreeMap<String, String>,
    #[serde(default)]
    figures: BTreeMap<String, f64>,
    provenance: PathShape,
}

#[derive(Deserialize)]
struct PathShape {
    cpu: String,
    kernel: String,
}

impl Line {
    fn part(&self) -> &str {
        self.factors.get("part").map_or("", String::as_str)
    }

    fn contender(&self) -> &str {
        let name = self.contender.as_str();
        name.strip_suffix(WITHOUT_OFFLOADS).unwrap_or(name)
    }

    /// Factors that are not as in `base`.
    fn changed<'a>(&'a self, base: &'a Self) -> BTreeSet<&'a str> {
        let names = self.factors.keys().chain(base.factors.keys());
        names
            .map(String::as_str)
            .filter(|name| *name != "part" && self.factors.get(*name) != base.factors.get(*name))
            .collect()
    }
}

impl Gains {
    /// The results in `asked`, or in a folder `tune-out` there; without `asked`, in the lab's default folder.
    /// `Ok(None)` if no folder was given and none is there.
    pub(super) fn find(asked: Option<&Path>, here: &Here) -> Result<Option<Self>, Failure> {
        let folder = asked.unwrap_or(Path::new("."));
        let candidates = match asked {
            Some(folder) => vec![folder.to_owned(), folder.join("tune-out")],
            None => vec![folder.join("tune-out")],
        };
        let found = candidates
            .into_iter()
            .find(|folder| folder.join("records.jsonl").is_file());
        match (found, asked) {
            (Some(folder), _) => Self::read(folder, here).map(Some),
            (None, None) => Ok(None),
            (None, Some(folder)) => Err(Failure::new(format!(
                "no records in {}: give the output folder of `esplanade lab run tune`",
                folder.display()
            ))),
        }
    }

    fn read(folder: PathBuf, here: &Here) -> Result<Self, Failure> {
        let path = folder.join("records.jsonl");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line: Line = serde_json::from_str(line).map_err(|error| {
                Failure::new(format!(
                    "{}:{}: not a valid record: {error}",
                    path.display(),
                    number + 1
                ))
            })?;
            lines.push(line);
        }
        if !lines.iter().any(|line| line.part() == BASE) {
            return Err(Failure::new(format!(
                "{} has no part `{BASE}`: these are not records of `esplanade lab run tune`",
                path.display()
            )));
        }
        let elsewhere = lines
            .first()
            .and_then(|line| here.differs(&line.provenance));
        Ok(Self {
            folder,
            elsewhere,
            lines,
        })
    }

    /// The gain of the setting `name`, preferably at the value `wanted`, and measured alone rather than with others. A
    /// tunnel's gain is preferred to plain IP's.
    pub(super) fn of(&self, name: &str, wanted: Option<&str>) -> Option<Gain> {
        let wanted = wanted.map(level);
        let mut found = self.cells(name);
        found.sort_by_key(|gain| {
            let is_wanted = gain.of_having_it || wanted.as_ref() == Some(&gain.level);
            let is_tunnel = gain.contender.starts_with("esplanade");
            (gain.with.len(), !is_wanted, !is_tunnel)
        });
        found.into_iter().next()
    }

    /// One gain for each contender and each group of changes that this one is part of.
    fn cells(&self, name: &str) -> Vec<Gain> {
        let mut cells: BTreeMap<(&str, BTreeMap<&str, &str>), Vec<&Line>> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.part() != BASE) {
            let base = self.base(line.contender()).next();
            let Some(changed) = base.map(|base| line.changed(base)) else {
                continue;
            };
            if changed.contains(name) {
                let value = |name| (name, line.factors.get(name).map_or("", String::as_str));
                let levels = changed.into_iter().map(value).collect();
                let cell = cells.entry((line.contender(), levels)).or_default();
                cell.push(line);
            }
        }
        let gain = |((contender, levels), lines)| self.gain(name, contender, &levels, lines);
        cells.into_iter().filter_map(gain).collect()
    }

    fn gain(
        &self,
        name: &str,
        contender: &str,
        levels: &BTreeMap<&str, &str>,
        lines: Vec<&Line>,
    ) -> Option<Gain> {
        let level = (*levels.get(name)?).to_owned();
        // No recommendation disables a feature, except these two, which the study enables.
        let of_having_it = level == "false" && name != "ip_early_demux" && name != "rx_gro_list";
        let base: BTreeMap<usize, f64> = self.base(contender).filter_map(measured).collect();
        let ratios: Vec<f64> = lines
            .into_iter()
            .filter_map(measured)
            .filter_map(|(round, value)| Some((value, *base.get(&round)?)))
            .map(|(value, base)| {
                if of_having_it {
                    base / value
                } else {
                    value / base
                }
            })
            .collect();
        let others = levels.keys().filter(|other| **other != name);
        (!ratios.is_empty()).then(|| Gain {
            level,
            of_having_it,
            with: others.map(|other| (*other).to_owned()).collect(),
            contender: contender.to_owned(),
            ratio: median(&ratios),
            interval: (ratios.len() >= 6).then(|| interval(&ratios)),
            pairs: ratios.len(),
        })
    }

    fn base<'a>(&'a self, contender: &'a str) -> impl Iterator<Item = &'a Line> {
        let is_base = move |line: &&Line| line.part() == BASE && line.contender() == contender;
        self.lines.iter().filter(is_base)
    }
}

/// The round and the goodput, of a record that has a result.
fn measured(line: &Line) -> Option<(usize, f64)> {
    let value = *line.figures.get(FIGURE)?;
    (value > 0.0).then_some((line.round, value))
}

/// A value as a spec would write it.
fn level(value: &str) -> String {
    match value {
        "on" | "1" => "true",
        "off" | "0" => "false",
        numbers => numbers.rsplit(' ').next().unwrap_or(numbers),
    }
    .to_owned()
}

/// The machine that this program runs on.
pub(super) struct Here {
    pub processor: String,
    pub kernel: String,
}

impl Here {
    fn differs(&self, place: &PathShape) -> Option<String> {
        let pairs = [(&place.cpu, &self.processor), (&place.kernel, &self.kernel)];
        let other = pairs.iter().find(|(there, here)| there != here);
        other.map(|(there, here)| format!("{there}, and this is {here}"))
    }
}

impl Gain {
    /// The gain as text, where `wanted` is recommended.
    pub(super) fn words(&self, wanted: Option<&str>) -> String {
        let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        let mut text = percent(self.ratio);
        match self.interval {
            Some([low, high]) => {
                text += &format!(
                    " ({} to {}, {} pairs)",
                    percent(low),
                    percent(high),
                    self.pairs
                );
                if low <= 1.0 && high >= 1.0 {
                    text += ", not significant";
                }
            }
            None => text += &format!(" ({} pairs, too few for a confidence interval)", self.pairs),
        }
        text += &format!(", {}", self.contender);
        if !self.of_having_it && wanted.map(level).as_ref() != Some(&self.level) {
            text += &format!(", at {}", self.level);
        }
        if !self.with.is_empty() {
            text += &format!(", combined with {}", self.with.join(", "));
        }
        text
    }
}
