//! The records for other programs: one row for each trial, with a column for every factor, figure and reading that any
//! trial has. CSV by RFC 4180; JSON as one array of flat objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::record::{Outcome, Record};

/// Rows of named values, with the columns in their order.
struct Flat {
    columns: Vec<String>,
    rows: Vec<BTreeMap<String, Value>>,
}

/// As CSV, with a line of column names.
pub fn csv(records: &[Record]) -> String {
    let flat = flat(records);
    let mut out = line(flat.columns.iter().map(|name| quoted(name)));
    for row in &flat.rows {
        out += &line(
            flat.columns
                .iter()
                .map(|name| row.get(name).map_or_else(String::new, cell)),
        );
    }
    out
}

/// As one JSON array.
pub fn json(records: &[Record]) -> String {
    let flat = flat(records);
    let object = |row: &BTreeMap<String, Value>| {
        let pairs = flat
            .columns
            .iter()
            .filter_map(|name| Some((name.clone(), row.get(name)?.clone())));
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    let rows: Vec<Value> = flat.rows.iter().map(object).collect();
    format!("{:#}\n", Value::Array(rows))
}

fn flat(records: &[Record]) -> Flat {
    let rows: Vec<BTreeMap<String, Value>> = records.iter().map(row).collect();
    let found: BTreeSet<&String> = rows.iter().flat_map(BTreeMap::keys).collect();
    let first = FIRST.iter().map(|name| (*name).to_owned());
    let rest = found
        .into_iter()
        .filter(|name| !FIRST.contains(&name.as_str()))
        .cloned();
    Flat {
        columns: first.chain(rest).collect(),
        rows,
    }
}

/// The columns every export begins with.
const FIRST: [&str; 13] = [
    "study",
    "trial",
    "round",
    "seed",
    "contender",
    "label",
    "status",
    "why",
    "load",
    "duration_s",
    "started_unix",
    "took_s",
    "emulated",
];

fn row(record: &Record) -> BTreeMap<String, Value> {
    let (status, why) = match &record.outcome {
        Outcome::Measured { .. } => ("measured", String::new()),
        Outcome::Examined { by, .. } => ("examined", by.label().into()),
        Outcome::Absent { why, .. } => ("absent", why.clone()),
        Outcome::Failed { stage, why, .. } => ("failed", format!("{stage}: {why}")),
        Outcome::Interrupted { stage } => ("interrupted", stage.to_string()),
    };
    let fixed = [
        json!(record.study),
        json!(record.trial),
        json!(record.round),
        json!(record.seed),
        json!(record.contender),
        json!(record.label),
        json!(status),
        json!(why),
        json!(record.load),
        json!(record.duration_s),
        json!(record.started_unix),
        json!(record.took_s),
        json!(record.provenance.emulated),
    ];
    let mut row: BTreeMap<String, Value> = FIRST
        .iter()
        .map(|name| (*name).to_owned())
        .zip(fixed)
        .collect();
    row.extend(
        record
            .factors
            .iter()
            .map(|(name, level)| (format!("factor.{name}"), json!(level))),
    );
    row.extend(
        record
            .figures
            .iter()
            .map(|(name, value)| (format!("figure.{name}"), json!(value))),
    );
    if let Outcome::Measured {
        carried, readings, ..
    }
    | Outcome::Examined {
        carried, readings, ..
    } = &record.outcome
    {
        let goodput = json!(carried.goodput_bps);
        row.entry("figure.goodput_bps".into()).or_insert(goodput);
        row.extend(
            readings
                .iter()
                .map(|(name, value)| (format!("reading.{name}"), json!(value))),
        );
    }
    if let Some(verdict) = &record.verdict {
        row.insert("limit".into(), json!(verdict.limit));
    }
    row
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(",") + "\r\n"
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// RFC 4180 2.5 to 2.7: quotes around what holds a quote, a comma or a line break; quotes inside are doubled.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn every_trial_is_a_row_with_its_factors_figures_and_readings() {
        let mut records = fixture::cell("plain", 0, &[("mtu", "1500")], &[1e9, 1.5e9]);
        records[1].label = "plain, \"the\" IP".into();
        let text = csv(&records);
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!((lines.len(), lines[3]), (4, ""));
        assert!(
            lines[0].starts_with("study,trial,round,seed,contender,label,status"),
            "{}",
            lines[0]
        );
        assert!(
            lines[0].contains(",factor.mtu,figure.goodput_bps,reading.left.cpu.system_s,"),
            "{}",
            lines[0]
        );
        assert!(
            lines[2].starts_with("made,2,2,1,plain,\"plain, \"\"the\"\" IP\",measured,"),
            "{}",
            lines[2]
        );
        assert!(lines[2].contains(",1500,1500000000.0,"), "{}", lines[2]);
    }

    #[test]
    fn json_holds_numbers_as_numbers() {
        let records = fixture::cell("plain", 0, &[], &[1e9]);
        let read: Value = serde_json::from_str(&json(&records)).unwrap();
        assert_eq!(read[0]["figure.goodput_bps"], 1e9);
        assert_eq!(read[0]["contender"], "plain");
        assert_eq!(read[0]["emulated"], false);
    }
}
