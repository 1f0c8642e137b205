//! `lab list`: which studies there are and how long each takes, or what one of them compares.

use std::fmt::Write;
use std::process::ExitCode;

use super::output::print_text;
use crate::progress::length;
use crate::spec::{Preset, Spec};
use crate::study::{self, STUDIES, Study};

const PRESETS: [Preset; 4] = [
    Preset::Smoke,
    Preset::Quick,
    Preset::Standard,
    Preset::Faithful,
];

/// Prints all studies, or one with its contenders.
pub(super) fn list(study: Option<&str>) -> Result<ExitCode, String> {
    let text = match study {
        None => all()?,
        Some(name) => one(name)?,
    };
    print_text(&text)
}

fn all() -> Result<String, String> {
    let mut out = String::new();
    for study in &STUDIES {
        let spec = read(study.text, study.name, None)?;
        let count = spec.contenders().len();
        let _ = writeln!(out, "{}: {}", spec.study, spec.title);
        let _ = writeln!(out, "    {count} contenders; {}", times(study)?);
    }
    Ok(out)
}

fn one(name: &str) -> Result<String, String> {
    let study = study::find(name).ok_or_else(|| {
        let names: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
        format!("there is no study `{name}`; there are {}", names.join(", "))
    })?;
    let spec = read(study.text, study.name, None)?;
    let mut out = format!("{}: {}\n    {}\n", spec.study, spec.title, times(study)?);
    for id in spec.contenders() {
        let _ = writeln!(out, "    {id}");
    }
    Ok(out)
}

/// How long each preset takes; once, where a study has but one way to run.
fn times(study: &Study) -> Result<String, String> {
    let mut times = Vec::new();
    for preset in PRESETS {
        let spec = read(study.text, study.name, Some(preset))?;
        times.push((preset.name(), length(spec.estimate())));
    }
    let (_, first) = &times[0];
    if times.iter().all(|(_, time)| time == first) {
        return Ok(format!("about {first}"));
    }
    let words = times.iter().map(|(name, time)| format!("--{name} {time}"));
    Ok(words.collect::<Vec<_>>().join(", "))
}

fn read(text: &str, name: &str, preset: Option<Preset>) -> Result<Spec, String> {
    Spec::read_as(text, name, preset).map_err(|error| error.to_string())
}
