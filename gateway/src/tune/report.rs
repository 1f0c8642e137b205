//! The output of `esplanade tune show`: a table, or JSON for programs.

use super::gain::{Gain, Gains};
use super::host::{Host, Reading};
use super::recommendation::Among;
use super::state::State;
use super::table::{self, Location, SETTINGS, Setting};
use serde::Serialize;
use std::fmt::Write;

/// The assessment of a setting.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Assessment {
    /// Should be changed, and `apply` does it.
    Proposed,
    /// Has a drawback: `apply` changes it only by name.
    OnRequest,
    /// Is as it should be.
    Good,
    /// No value is recommended.
    #[serde(rename = "told")]
    Informational,
    /// This kernel or these devices do not have it.
    Absent,
    /// May be there.
    Unreadable,
}

/// One setting on this host.
#[derive(Serialize, Debug)]
pub(super) struct Row {
    pub name: &'static str,
    pub verdict: Assessment,
    pub spots: Vec<Spot>,
    pub reason: &'static str,
    pub price: Option<&'static str>,
    pub gain: Option<Gain>,
    /// The gain as text, or why there is none.
    pub measured: String,
}

/// One target of a setting.
#[derive(Serialize, Debug)]
pub(super) struct Spot {
    pub target: String,
    pub current: Option<String>,
    pub proposal: Option<String>,
    /// Why it cannot be read or changed.
    pub problem: Option<String>,
    /// The value before `tune apply`.
    pub before: Option<String>,
}

/// Everything.
#[derive(Serialize)]
pub(super) struct Report {
    pub devices: Vec<String>,
    pub gains_from: Option<String>,
    pub gains_elsewhere: Option<String>,
    pub settings: Vec<Row>,
}

/// What rows are read for.
pub(super) struct Scope<'a> {
    pub host: &'a dyn Host,
    pub devices: &'a [String],
    pub tun: &'a str,
}

impl Scope<'_> {
    /// All rows of the table.
    pub(super) fn rows(&self, state: &mut State, gains: Option<&Gains>) -> Vec<Row> {
        let rows = SETTINGS.iter();
        rows.map(|setting| self.row(setting, state, gains))
            .collect()
    }

    fn row(&self, setting: &'static Setting, state: &mut State, gains: Option<&Gains>) -> Row {
        let spots = self.spots(setting, state);
        let wanted = spots
            .iter()
            .find_map(|spot| spot.proposal.as_deref())
            .or_else(|| spots.first()?.current.as_deref());
        let gain = gains.and_then(|gains| gains.of(setting.name, wanted));
        let measured = match &gain {
            Some(gain) => gain.words(wanted),
            None if setting.in_lab => "not measured here: esplanade lab run tune".to_owned(),
            None => "not measured here: the lab does not vary it".to_owned(),
        };
        Row {
            name: setting.name,
            verdict: verdict(setting, &spots),
            spots,
            reason: setting.reason,
            price: setting.price,
            gain,
            measured,
        }
    }

    fn spots(&self, setting: &Setting, state: &mut State) -> Vec<Spot> {
        if let Location::Informational(value_on) = setting.location {
            let shown = value_on(self.host).map(|value| Spot {
                target: setting.name.to_owned(),
                current: Some(value),
                proposal: None,
                problem: None,
                before: None,
            });
            return shown.into_iter().collect();
        }
        let targets = table::targets(&setting.location, self.host, self.devices, self.tun);
        let processors = table::count_processors(self.host);
        let network = self.host.network();
        let spot = |(target, queue)| {
            let among = Among { processors, queue };
            let (current, problem) = match self.host.read(&target) {
                Reading::Value(value) => (Some(value), None),
                Reading::Fixed(value) => (Some(value), Some("fixed by the driver".to_owned())),
                Reading::Absent => return None,
                Reading::Unreadable(why) => (None, Some(why)),
            };
            let proposal = match (&current, &problem) {
                (Some(current), None) => setting.wish.proposal(current, among),
                _ => None,
            };
            let target = target.to_string();
            let before = state.find(&target, &network).map(|one| one.before.clone());
            Some(Spot {
                target,
                current,
                proposal,
                problem,
                before,
            })
        };
        targets.into_iter().filter_map(spot).collect()
    }
}

fn verdict(setting: &Setting, spots: &[Spot]) -> Assessment {
    let has_proposal = spots.iter().any(|spot| spot.proposal.is_some());
    match (&setting.location, setting.price) {
        _ if spots.is_empty() => Assessment::Absent,
        (Location::Informational(_), _) => Assessment::Informational,
        (_, None) if has_proposal => Assessment::Proposed,
        (_, Some(_)) if has_proposal => Assessment::OnRequest,
        _ if spots.iter().all(|spot| spot.current.is_none()) => Assessment::Unreadable,
        _ => Assessment::Good,
    }
}

impl Report {
    pub(super) fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    pub(super) fn text(&self) -> String {
        let mut out = self.head();
        let sections = [
            (Assessment::Proposed, "Recommended (esplanade tune apply)"),
            (
                Assessment::OnRequest,
                "With drawbacks, applied only by name (esplanade tune apply NAME)",
            ),
            (Assessment::Good, "Already as recommended"),
            (Assessment::Informational, "Shown only, never changed"),
            (Assessment::Unreadable, "Not readable"),
        ];
        for (verdict, title) in sections {
            let mut rows = self.of(verdict).peekable();
            if rows.peek().is_some() {
                let _ = writeln!(out, "\n{title}");
            }
            for row in rows {
                out += &row.text();
            }
        }
        let absent: Vec<&str> = self.of(Assessment::Absent).map(|row| row.name).collect();
        if !absent.is_empty() {
            let _ = writeln!(
                out,
                "\nNot present on this kernel or these devices\n  {}",
                absent.join(", ")
            );
        }
        out
    }

    fn head(&self) -> String {
        let devices = if self.devices.is_empty() {
            "none: no default route; choose devices with --device".to_owned()
        } else {
            self.devices.join(", ")
        };
        let gains = match (&self.gains_from, &self.gains_elsewhere) {
            (None, _) => "none: `esplanade lab run tune` measures them here".to_owned(),
            (Some(folder), None) => folder.clone(),
            (Some(folder), Some(why)) => format!("{folder}, FROM ANOTHER MACHINE: {why}"),
        };
        format!("Devices  {devices}\nGains    {gains}\n")
    }

    fn of(&self, verdict: Assessment) -> impl Iterator<Item = &Row> {
        self.settings
            .iter()
            .filter(move |row| row.verdict == verdict)
    }
}

impl Row {
    fn text(&self) -> String {
        let values = self.values();
        // Rows that are advice alone have no measurement to report.
        let measured = match (self.verdict, &self.gain) {
            (Assessment::Informational, None) => "",
            _ => &self.measured,
        };
        let line = format!("  {:<22} {values:<32} {measured}", self.name);
        let mut out = line.trim_end().to_owned() + "\n";
        let _ = writeln!(out, "      {}", self.reason);
        if let (Assessment::OnRequest, Some(price)) = (self.verdict, self.price) {
            let _ = writeln!(out, "      drawback: {price}");
        }
        for spot in &self.spots {
            if let Some(before) = &spot.before {
                let _ = writeln!(out, "      set by `tune apply`, before: {before}");
            }
            if let (Some(problem), Assessment::Unreadable) = (&spot.problem, self.verdict) {
                let _ = writeln!(out, "      {}: {problem}", spot.target);
            }
        }
        out
    }

    /// What would change, target by target if not all would; otherwise what is there, each distinct value once.
    fn values(&self) -> String {
        let changing = self.spots.iter().filter(|spot| spot.proposal.is_some());
        let some_stay = changing.clone().count() < self.spots.len();
        let mut all: Vec<String> = changing.map(|spot| spot.change(some_stay)).collect();
        if all.is_empty() {
            let current = |spot: &Spot| spot.current.clone().unwrap_or_else(|| "?".to_owned());
            all.extend(self.spots.iter().map(current));
        }
        let mut shown = std::collections::BTreeSet::new();
        all.retain(|text| shown.insert(text.clone()));
        all.join(" / ")
    }
}

impl Spot {
    /// `now -> proposed`, with the target's name where that is needed.
    fn change(&self, by_name: bool) -> String {
        let (_, name) = self.target.rsplit_once('/').unwrap_or(("", &self.target));
        let current = self.current.as_deref().unwrap_or("?");
        let proposal = self.proposal.as_deref().unwrap_or(current);
        if by_name {
            format!("{name}: {current} -> {proposal}")
        } else {
            format!("{current} -> {proposal}")
        }
    }
}
