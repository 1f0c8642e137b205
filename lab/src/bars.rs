//! Bars: thresholds that a study must reach, judged over interleaved pairs. Trials of one round form a pair, so that
//! slow drifts of the machine affect both. A bar is met when the unfavourable end of the 95 % interval reaches it, not
//! the mean; where there are too few pairs for an interval, there is no verdict.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::record::{Outcome, Record};
use crate::stats::{self, Interval};

/// The level of a bar's interval.
const CONFIDENCE_LEVEL: f64 = 0.95;

/// One thing to reach.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Its short name, such as a row's number.
    pub name: String,
    /// Its description.
    pub about: String,
    /// The figure, or the reading, that is judged.
    pub figure: String,
    /// The records that are judged.
    pub of: RecordFilter,
    /// What it is divided by; `None`: it is judged as it is.
    pub to: Option<RecordFilter>,
    /// What is subtracted from both first, such as plain IP's round trip.
    pub less: Option<RecordFilter>,
    /// The lower end of the interval must reach this.
    pub at_least: Option<f64>,
    /// The upper end of the interval must not pass this.
    pub at_most: Option<f64>,
    /// A more ambitious limit, which is reported when it is reached.
    pub moonshot: Option<f64>,
}

/// Records by their factors and `contender`: those that agree in every name given here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordFilter(pub BTreeMap<String, String>);

impl RecordFilter {
    /// Whether it names this record.
    pub(crate) fn includes(&self, record: &Record) -> bool {
        self.0.iter().all(|(name, value)| match name.as_str() {
            "contender" => record.contender == *value,
            _ => record.factors.get(name) == Some(value),
        })
    }
}

/// The result of a bar for one case.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BarResult {
    /// The case's label, with the factors that distinguish it from others of the same bar.
    pub case: String,
    /// The mean of the ratio or figure.
    pub mean: f64,
    /// Its 95 % interval; `None` with fewer than two pairs.
    pub interval: Option<Interval>,
    /// How many rounds had all that is compared.
    pub pairs: usize,
    /// Whether it is met; `None` without an interval.
    pub met: Option<bool>,
}

impl BarResult {
    /// The verdict in words.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "NOT met",
            None => "too few pairs to judge",
        }
    }
}

/// Judges a bar: one result for each case that it selects, none where no round has all of its records.
pub(crate) fn judge(bar: &Bar, records: &[Record]) -> Vec<BarResult> {
    let measured = |record: &&Record| matches!(record.outcome, Outcome::Measured { .. });
    let mut cases: BTreeMap<usize, Vec<&Record>> = BTreeMap::new();
    for record in records
        .iter()
        .filter(measured)
        .filter(|record| bar.of.includes(record))
    {
        cases.entry(record.order).or_default().push(record);
    }
    let judged = cases
        .values()
        .filter_map(|case| judge_case(bar, case, records));
    judged.collect()
}

fn judge_case(bar: &Bar, case: &[&Record], records: &[Record]) -> Option<BarResult> {
    let pairs: Vec<(f64, f64)> = case
        .iter()
        .filter_map(|record| pair(bar, record, records))
        .collect();
    let first = case.first()?;
    let mean = ratio(&pairs)?;
    let interval = interval(&pairs, first.seed);
    Some(BarResult {
        case: first.label.clone(),
        mean,
        interval,
        pairs: pairs.len(),
        met: interval.map(|interval| bar.holds(interval)),
    })
}

impl Bar {
    /// Whether all of an interval is on the right side.
    fn holds(&self, interval: Interval) -> bool {
        let reaches = self.at_least.is_none_or(|least| interval.low >= least);
        reaches && self.at_most.is_none_or(|most| interval.high <= most)
    }

    /// The limit in words.
    pub fn limit(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), _) => format!("at least {}", plain(least)),
            (None, Some(most)) => format!("at most {}", plain(most)),
            _ => "no limit".into(),
        }
    }

    /// A value as a share of the limit: 1 is the limit, and more is better.
    pub fn share(&self, value: f64) -> Option<f64> {
        match (self.at_least, self.at_most) {
            (Some(least), _) if least > 0.0 => Some(value / least),
            (None, Some(most)) if value > 0.0 => Some(most / value),
            _ => None,
        }
    }

    /// Whether the moonshot is reached beyond doubt.
    fn reached_moonshot(&self, one: &BarResult) -> Option<f64> {
        let (moonshot, interval) = (self.moonshot?, one.interval?);
        let reached = match self.at_least {
            Some(_) => interval.low >= moonshot,
            None => interval.high <= moonshot,
        };
        reached.then_some(moonshot)
    }
}

/// What is judged and what it is divided by, in one round.
fn pair(bar: &Bar, record: &Record, records: &[Record]) -> Option<(f64, f64)> {
    let in_round = |which: &RecordFilter| {
        let partner = records
            .iter()
            .find(|other| other.round == record.round && which.includes(other));
        partner.and_then(|partner| value(partner, &bar.figure))
    };
    let less = match &bar.less {
        Some(which) => in_round(which)?,
        None => 0.0,
    };
    let below = match &bar.to {
        Some(which) => in_round(which)? - less,
        None => 1.0,
    };
    Some((value(record, &bar.figure)? - less, below))
}

/// A figure by its name; a reading by its name, where `*` matches both gateways and the larger value counts.
fn value(record: &Record, name: &str) -> Option<f64> {
    if let Some(figure) = record.figures.get(name) {
        return Some(*figure);
    }
    let Outcome::Measured { readings, .. } = &record.outcome else {
        return None;
    };
    let side = |side: &str| readings.get(&name.replacen('*', side, 1)).copied();
    side("left")
        .into_iter()
        .chain(side("right"))
        .reduce(f64::max)
}

/// The ratio of the means, which one outlier moves less than a mean of ratios.
fn ratio(pairs: &[(f64, f64)]) -> Option<f64> {
    let above: f64 = pairs.iter().map(|pair| pair.0).sum();
    let below: f64 = pairs.iter().map(|pair| pair.1).sum();
    (!pairs.is_empty() && below > 0.0).then(|| above / below)
}

/// Resamples rounds, so that what was measured together stays together. Equal values in all rounds have no width.
fn interval(pairs: &[(f64, f64)], seed: u64) -> Option<Interval> {
    const RESAMPLES: usize = 10_000;
    if pairs.len() < 2 {
        return None;
    }
    if pairs.windows(2).all(|two| two[0] == two[1]) {
        let value = ratio(pairs)?;
        return Some(Interval {
            low: value,
            high: value,
        });
    }
    match stats::paired(pairs, CONFIDENCE_LEVEL, seed) {
        Some(estimate) => estimate.interval,
        // What is left after a subtraction may be negative, and has no logarithm.
        None => {
            let of_pairs = |drawn: &[(f64, f64)]| ratio(drawn).unwrap_or(f64::NAN);
            let level = stats::expanded(CONFIDENCE_LEVEL, pairs.len());
            stats::bca(pairs, of_pairs, level, RESAMPLES, seed)
        }
    }
}

/// The table of all bars.
pub(crate) fn text(bars: &[Bar], records: &[Record]) -> String {
    let mut out = String::new();
    for bar in bars {
        let _ = writeln!(out, "{}  {}", bar.name, bar.about);
        let judged = judge(bar, records);
        if judged.is_empty() {
            let _ = writeln!(
                out,
                "      not measured here: see what is absent or failed above"
            );
        }
        for one in &judged {
            let _ = writeln!(out, "      {}", line(bar, one));
        }
    }
    out
}

fn line(bar: &Bar, one: &BarResult) -> String {
    let moon = bar
        .reached_moonshot(one)
        .map_or_else(String::new, |moonshot| {
            format!(", and so is {}", plain(moonshot))
        });
    format!(
        "{}: {}, {} pair{}; {}: {}{moon}",
        one.case,
        with_interval(one),
        one.pairs,
        if one.pairs == 1 { "" } else { "s" },
        bar.limit(),
        one.verdict(),
    )
}

/// The mean with its interval, where there is one.
pub(crate) fn with_interval(one: &BarResult) -> String {
    let interval = one.interval.map_or_else(String::new, |interval| {
        format!(" [{}, {}]", short(interval.low), short(interval.high))
    });
    format!("{}{interval}", short(one.mean))
}

/// A limit as it was written; bytes in millions.
fn plain(value: f64) -> String {
    if value.abs() >= 1e6 {
        short(value)
    } else {
        value.to_string()
    }
}

/// Four digits that count; ratios and bytes alike.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{:.2}e6", value / 1e6),
        large if large >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests;
