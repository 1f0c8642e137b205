//! Records for tests, made and not measured.

use std::collections::BTreeMap;

use crate::check::Evidence;
use crate::contender::Protection;
use crate::load::Carried;
use crate::meter::IntrusiveMeter;
use crate::record::{Outcome, Provenance, Record, SCHEMA};

/// One measured record for each goodput, in rounds from 1.
pub fn cell(
    contender: &str,
    order: usize,
    factors: &[(&str, &str)],
    goodput_bps: &[f64],
) -> Vec<Record> {
    let rounds = goodput_bps.iter().enumerate();
    rounds
        .map(|(round, bps)| record(contender, order, factors, round + 1, *bps))
        .collect()
}

/// A trial under an intrusive meter, behind three rounds, that carried 1 Gbit/s and read this.
pub fn examined(
    contender: &str,
    order: usize,
    factors: &[(&str, &str)],
    by: IntrusiveMeter,
    readings: &[(&str, f64)],
) -> Record {
    let mut record = record(contender, order, factors, by.round(3), 1e9);
    if let Outcome::Measured { check, carried, .. } = record.outcome {
        let named = readings
            .iter()
            .map(|(name, value)| ((*name).into(), *value));
        record.outcome = Outcome::Examined {
            by,
            check,
            carried,
            readings: named.collect(),
        };
    }
    record
}

fn record(
    contender: &str,
    order: usize,
    factors: &[(&str, &str)],
    round: usize,
    bps: f64,
) -> Record {
    let readings = [
        ("window_s", 1.0),
        ("machine.user_s", 0.5),
        ("left.cpu.user_s", 0.2),
        ("left.cpu.system_s", 0.1),
    ];
    Record {
        schema: SCHEMA,
        study: "made".into(),
        title: "Made for a test".into(),
        trial: round,
        trials: 1,
        round,
        rounds: 3,
        seed: 1,
        order,
        contender: contender.into(),
        label: contender.into(),
        factors: factors
            .iter()
            .map(|(name, level)| ((*name).into(), (*level).into()))
            .collect(),
        protection: if contender == "plain" {
            Protection::Clear
        } else {
            Protection::Secret
        },
        reference: "plain".into(),
        load: "made".into(),
        duration_s: 1.0,
        started_unix: 1_795_308_071.0,
        took_s: 1.5,
        outcome: Outcome::Measured {
            check: Evidence {
                client_reaches: Vec::new(),
                server_reaches: Vec::new(),
                canaries: Vec::new(),
                wire_frames: 1,
                row: None,
            },
            carried: Carried {
                tool: "made".into(),
                seconds: 1.0,
                bytes: (bps / 8.0) as u64,
                goodput_bps: bps,
                retransmits: None,
                intervals_bps: vec![bps; 3],
                figures: BTreeMap::new(),
            },
            readings: readings
                .iter()
                .map(|(name, value)| ((*name).into(), *value))
                .collect(),
        },
        figures: BTreeMap::from([("goodput_bps".into(), bps)]),
        verdict: None,
        notes: Vec::new(),
        provenance: Provenance::default(),
    }
}
