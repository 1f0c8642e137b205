//! What a user asks for: a TOML file. It is read in two steps, so that every error has its place in the file: the shape
//! first, then the meaning, which yields a [`Spec`] whose every word is known.

mod complaint;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use crate::contender::{Contender, Esplanade, KernelLibipsec, Plain};
use crate::experiment::Case;
use crate::fault::Fault;
use crate::load::Iperf3;
use crate::suite::{self, SUITES, Suite};
use crate::testbed::Ground;

pub use complaint::Complaint;

/// An experiment as it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The study's name.
    pub study: String,
    /// The study's title.
    pub title: String,
    /// How many rounds; each holds every contender once.
    pub rounds: usize,
    /// Load per trial.
    pub duration: Duration,
    /// Seed of the order; `None`: draw one.
    pub seed: Option<u64>,
    /// The id of the contender that ratios are taken to.
    pub reference: String,
    /// MTU of every link.
    pub mtu: u32,
    /// Uncounted traffic before each load.
    pub warm_up_megabytes: u32,
    /// Who takes part.
    pub contenders: Vec<Entry>,
}

/// A contender as it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its id.
    pub id: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Plain {
        offloads: bool,
    },
    KernelLibipsec {
        suite: &'static Suite,
    },
    Esplanade {
        suite: &'static Suite,
        workers: Option<u32>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    study: String,
    title: Option<String>,
    rounds: Option<Spanned<u32>>,
    duration: Option<Spanned<u32>>,
    seed: Option<u64>,
    reference: Option<Spanned<String>>,
    testbed: Option<WrittenTestbed>,
    load: Option<WrittenLoad>,
    #[serde(default)]
    contender: Vec<Spanned<WrittenContender>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTestbed {
    mtu: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLoad {
    kind: Spanned<String>,
    warm_up_megabytes: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenContender {
    kind: Spanned<String>,
    suite: Option<Spanned<String>>,
    offloads: Option<Spanned<bool>>,
    workers: Option<Spanned<u32>>,
}

/// Something wrong at a place of the file.
struct Wrong {
    at: Range<usize>,
    what: String,
    advice: String,
}

impl Spec {
    /// Reads a spec. `name` is what the file is called in errors.
    pub fn read(text: &str, name: &str) -> Result<Spec, Complaint> {
        let written: Written =
            toml::from_str(text).map_err(|error| complaint::of_toml(&error, text, name))?;
        understood(written)
            .map_err(|wrong| Complaint::new(wrong.at, wrong.what, wrong.advice, text, name))
    }

    /// What is measured, ready to start. `esplanade` is where our program is.
    pub fn cases(&self, esplanade: Option<PathBuf>) -> Result<Vec<Case>, Fault> {
        let entries = self.contenders.iter().enumerate();
        entries
            .map(|(order, entry)| {
                Ok(Case {
                    contender: entry.kind.contender(&esplanade, order)?,
                    ground: Ground { mtu: self.mtu },
                    load: Box::new(Iperf3::new(self.warm_up_megabytes)),
                    duration: self.duration,
                    factors: BTreeMap::from([("mtu".into(), self.mtu.to_string())]),
                })
            })
            .collect()
    }
}

impl Kind {
    fn contender(
        self,
        esplanade: &Option<PathBuf>,
        order: usize,
    ) -> Result<Box<dyn Contender>, Fault> {
        Ok(match self {
            Kind::Plain { offloads } => Box::new(Plain::new(offloads)),
            Kind::KernelLibipsec { suite } => Box::new(
                KernelLibipsec::new(suite)
                    .ok_or_else(|| Fault::failed("a spec let an impossible suite through"))?,
            ),
            Kind::Esplanade { suite, workers } => {
                Box::new(Esplanade::new(esplanade.clone(), suite, workers, order)?)
            }
        })
    }
}

fn understood(written: Written) -> Result<Spec, Wrong> {
    let contenders: Vec<Entry> = written
        .contender
        .iter()
        .map(entry)
        .collect::<Result<_, _>>()?;
    let reference = reference(&written, &contenders)?;
    if let Some(load) = &written.load {
        known(&load.kind, &["iperf3"], "load")?;
    }
    Ok(Spec {
        title: written.title.unwrap_or_else(|| written.study.clone()),
        study: written.study,
        rounds: number(written.rounds, 3, 1..=10_000, "rounds")? as usize,
        duration: Duration::from_secs(number(written.duration, 5, 1..=86_400, "duration")?.into()),
        seed: written.seed,
        reference,
        mtu: number(
            written.testbed.and_then(|testbed| testbed.mtu),
            1500,
            1280..=65_535,
            "mtu",
        )?,
        warm_up_megabytes: written
            .load
            .and_then(|load| load.warm_up_megabytes)
            .unwrap_or(8),
        contenders,
    })
}

fn number(
    written: Option<Spanned<u32>>,
    usual: u32,
    range: std::ops::RangeInclusive<u32>,
    name: &str,
) -> Result<u32, Wrong> {
    match written {
        None => Ok(usual),
        Some(value) if range.contains(value.get_ref()) => Ok(value.into_inner()),
        Some(value) => Err(Wrong {
            what: format!("`{name}` cannot be {}", value.get_ref()),
            advice: format!("a number from {} to {}", range.start(), range.end()),
            at: value.span(),
        }),
    }
}

fn entry(written: &Spanned<WrittenContender>) -> Result<Entry, Wrong> {
    const KINDS: [&str; 3] = ["plain", "kernel-libipsec", "esplanade"];
    let contender = written.get_ref();
    known(&contender.kind, &KINDS, "contender")?;
    match contender.kind.get_ref().as_str() {
        "plain" => plain(contender),
        "kernel-libipsec" => libipsec(contender, written.span()),
        _ => esplanade(contender, written.span()),
    }
}

fn plain(written: &WrittenContender) -> Result<Entry, Wrong> {
    refuse(&written.suite, "suite", "plain")?;
    refuse(&written.workers, "workers", "plain")?;
    let offloads = written
        .offloads
        .as_ref()
        .is_none_or(|value| *value.get_ref());
    Ok(named(Kind::Plain { offloads }))
}

fn libipsec(written: &WrittenContender, at: Range<usize>) -> Result<Entry, Wrong> {
    refuse(&written.offloads, "offloads", "kernel-libipsec")?;
    refuse(&written.workers, "workers", "kernel-libipsec")?;
    let suite = suite_of(written, at.clone())?;
    if suite.strongswan.is_none() {
        let able = SUITES.iter().filter(|suite| suite.strongswan.is_some());
        return Err(Wrong {
            at: written.suite.as_ref().map_or(at, Spanned::span),
            what: format!("strongSwan's kernel-libipsec cannot do `{}`", suite.name),
            advice: format!("it can do {}", list(able.map(|suite| suite.name))),
        });
    }
    Ok(named(Kind::KernelLibipsec { suite }))
}

fn esplanade(written: &WrittenContender, at: Range<usize>) -> Result<Entry, Wrong> {
    refuse(&written.offloads, "offloads", "esplanade")?;
    let suite = suite_of(written, at)?;
    let workers = written.workers.as_ref().map(|value| *value.get_ref());
    Ok(named(Kind::Esplanade { suite, workers }))
}

/// The contender itself knows its id.
fn named(kind: Kind) -> Entry {
    let id = match kind {
        Kind::Plain { offloads: true } => "plain".into(),
        Kind::Plain { offloads: false } => "plain-no-offloads".into(),
        Kind::KernelLibipsec { suite } => format!("kernel-libipsec-{}", suite.name),
        Kind::Esplanade {
            suite,
            workers: None,
        } => format!("esplanade-{}", suite.name),
        Kind::Esplanade {
            suite,
            workers: Some(count),
        } => format!("esplanade-{}-workers-{count}", suite.name),
    };
    Entry { id, kind }
}

fn suite_of(written: &WrittenContender, at: Range<usize>) -> Result<&'static Suite, Wrong> {
    let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
    let Some(word) = &written.suite else {
        return Err(Wrong {
            at,
            what: format!(
                "this contender (`{}`) needs a suite",
                written.kind.get_ref()
            ),
            advice: format!(
                "add `suite = \"aes-128-gcm\"`, or another of {}",
                list(names)
            ),
        });
    };
    known(word, &names, "suite")?;
    suite::find(word.get_ref()).ok_or_else(|| Wrong {
        at: word.span(),
        what: "this suite is unknown".into(),
        advice: String::new(),
    })
}

fn reference(written: &Written, contenders: &[Entry]) -> Result<String, Wrong> {
    let ids: Vec<&str> = contenders.iter().map(|entry| entry.id.as_str()).collect();
    let first = ids.first().ok_or_else(|| Wrong {
        at: 0..0,
        what: "this spec names no contender".into(),
        advice: "add at least one: [[contender]] with `kind = \"plain\"`".into(),
    })?;
    if let Some((later, entry)) = ids
        .iter()
        .enumerate()
        .find(|(place, id)| ids[..*place].contains(id))
    {
        return Err(Wrong {
            at: written.contender[later].span(),
            what: format!("`{entry}` is named twice"),
            advice: "each contender is measured once in every round: raise `rounds` to measure more often".into(),
        });
    }
    match &written.reference {
        None => Ok((*first).into()),
        Some(word) => known(word, &ids, "reference").map(|()| word.get_ref().clone()),
    }
}

fn refuse<T>(written: &Option<Spanned<T>>, option: &str, kind: &str) -> Result<(), Wrong> {
    match written {
        None => Ok(()),
        Some(value) => Err(Wrong {
            at: value.span(),
            what: format!("`{option}` means nothing to the contender `{kind}`"),
            advice: format!("remove `{option}`"),
        }),
    }
}

fn known(word: &Spanned<String>, words: &[&str], what: &str) -> Result<(), Wrong> {
    if words.contains(&word.get_ref().as_str()) {
        return Ok(());
    }
    Err(Wrong {
        at: word.span(),
        what: format!("unknown {what} `{}`", word.get_ref()),
        advice: complaint::did_you_mean(word.get_ref(), words),
    })
}

fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
