//! The reported figures are checked against the arithmetic they come from, and claims against records made for them.

use super::*;
use crate::report::findings::Findings;
use crate::report::fixture;

#[test]
fn every_paper_is_read_and_bears_its_study_s_name() {
    for (name, text) in PAPERS {
        let paper: Paper = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(paper.study, name);
        assert!(!paper.claim.is_empty(), "{name} claims nothing");
        for table in &paper.table {
            assert!(
                table.rows.iter().all(|row| row.len() == table.head.len()),
                "{}",
                table.title
            );
        }
        for claim in &paper.claim {
            assert!(
                claim.at_least.is_some() || claim.at_most.is_some(),
                "`{}` cannot fail",
                claim.finding
            );
            assert!(
                claim.to.is_some() || claim.figure.is_some(),
                "`{}` speaks of no figure",
                claim.finding
            );
        }
    }
    assert_eq!(Paper::of("demo"), None);
}

#[test]
fn the_curves_of_ronan_are_the_columns_of_his_table() {
    let paper = Paper::of("ronan-2004").unwrap();
    let figures = [("goodput_bps", 0, 1e6), ("soaker.load_ratio", 1, 0.01)];
    let columns = figures
        .iter()
        .flat_map(|figure| [1, 2, 6].map(|column| (*figure, column)));
    assert_eq!(paper.series.len(), columns.clone().count());
    for (series, ((figure, half, unit), column)) in paper.series.iter().zip(columns) {
        assert_eq!(series.figure, figure);
        for (link, value) in &series.points {
            let row = paper.table[0]
                .rows
                .iter()
                .find(|row| row[0].parse() == Ok(*link))
                .unwrap();
            let printed = row[column].split(',').nth(half).unwrap();
            let printed: f64 = printed.trim().trim_end_matches(" %").parse().unwrap();
            assert!(
                (printed * unit / value - 1.0).abs() < 1e-9,
                "{figure} of {} at {link}",
                series.name
            );
        }
    }
}

#[test]
fn the_printed_limits_of_klassert_follow_his_formula_but_for_the_last() {
    let paper = Paper::of("klassert-2010").unwrap();
    let sizes = paper.table[0]
        .rows
        .iter()
        .map(|row| row[1].parse::<f64>().unwrap());
    let printed = paper.table[0].rows.iter().map(|row| {
        let number = row[2].split(' ').next().unwrap();
        number.parse::<f64>().unwrap()
    });
    let rows = sizes.zip(printed).zip(&paper.series[0].points);
    for (place, ((size, printed), (_, bps))) in rows.enumerate() {
        let formula = size / (size + 96.0) * 1000.0;
        assert!(
            place == 6 || (formula - printed).abs() < 1.0,
            "{size}: {formula} and {printed}"
        );
        // The paper counts whole packets, the lab their payload.
        let carried = printed * 1e6 * (size - 28.0) / size;
        assert!((carried / bps - 1.0).abs() < 1e-4, "{size}: {carried}");
    }
}

fn claim() -> Claim {
    let words = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(name, level)| ((*name).into(), (*level).into()))
            .collect()
    };
    Claim {
        finding: "a tunnel halves it".into(),
        reported: "× 0.5".into(),
        of: words(&[("contender", "esplanade*")]),
        to: Some(words(&[("contender", "plain")])),
        figure: None,
        at_least: Some(0.4),
        at_most: Some(0.6),
        if_it_holds: "as ever".into(),
        if_not: "it is faster now".into(),
    }
}

#[test]
fn a_claim_is_judged_cell_by_cell_under_the_same_settings() {
    let judged = |share: [f64; 2]| {
        let mut records = Vec::new();
        for (place, (size, share)) in ["64", "1024"].into_iter().zip(share).enumerate() {
            let factors = [("message_bytes", size)];
            records.extend(fixture::cell(
                "plain",
                2 * place,
                &factors,
                &[1e9 * (1 + place) as f64; 3],
            ));
            records.extend(fixture::cell(
                "esplanade-x",
                2 * place + 1,
                &factors,
                &[share * 1e9 * (1 + place) as f64; 3],
            ));
        }
        let answer = ClaimCheck::of(&claim(), &Findings::of(&records).unwrap());
        (answer.judgement(), answer.sentence(&claim()))
    };
    assert_eq!(
        judged([0.45, 0.55]),
        (Judgement::Holds, "Holds; our reading: as ever".into())
    );
    assert_eq!(judged([0.45, 0.9]).0, Judgement::InPart);
    assert_eq!(
        judged([0.8, 0.9]),
        (
            Judgement::Refuted,
            "No longer holds here; our reading: it is faster now".into()
        )
    );
    let alone = fixture::cell("plain", 0, &[], &[1e9; 3]);
    let open = ClaimCheck::of(&claim(), &Findings::of(&alone).unwrap());
    assert_eq!(
        (open.judgement(), open.shown()),
        (Judgement::NotMeasured, "not measured".into())
    );
}

#[test]
fn what_the_noise_leaves_open_is_no_finding() {
    let answer = |rounds: &[[f64; 3]]| {
        let mut records = Vec::new();
        for (place, shares) in rounds.iter().enumerate() {
            let size = (64 * (place + 1)).to_string();
            let factors = [("message_bytes", size.as_str())];
            records.extend(fixture::cell("plain", 2 * place, &factors, &[1e9; 3]));
            let measured = shares.map(|share| 1e9 * share);
            let tunnel = fixture::cell("esplanade-x", 2 * place + 1, &factors, &measured);
            records.extend(tunnel);
        }
        let answer = ClaimCheck::of(&claim(), &Findings::of(&records).unwrap());
        (answer.judgement(), answer.sentence(&claim()))
    };
    let (sure, unsure) = ([0.5, 0.501, 0.499], [0.3, 0.5, 0.7]);
    assert_eq!(answer(&[unsure]).0, Judgement::Undecided);
    assert_eq!(
        answer(&[sure, unsure]),
        (
            Judgement::Holds,
            "Holds (not significant in 1 of 2 cells); our reading: as ever".into()
        )
    );
    assert_eq!(answer(&[[0.9, 0.91, 0.89], unsure]).0, Judgement::Refuted);
}

#[test]
fn a_claim_may_speak_of_cells_that_lack_a_factor() {
    let mut records = fixture::cell("plain", 0, &[], &[1e9; 3]);
    records.extend(fixture::cell("esplanade-x", 1, &[], &[0.9e9; 3]));
    let held = [("share", "0.1")];
    records.extend(fixture::cell("esplanade-x", 2, &held, &[0.1e9; 3]));
    let findings = Findings::of(&records).unwrap();
    let mut claim = claim();
    let of_both = ClaimCheck::of(&claim, &findings).shown();
    claim.of.insert("share".into(), String::new());
    let of_one = ClaimCheck::of(&claim, &findings).shown();
    assert_eq!(
        (of_both.as_str(), of_one.as_str()),
        ("× 0.100 to 0.900 (2 cells)", "× 0.900 [0.900, 0.900]")
    );
}

/// Records of a tunnel at two rates, with what a soaker read at each.
fn soaked(loads: [f64; 2]) -> Vec<crate::record::Record> {
    let mut records = Vec::new();
    for (place, (rate, load)) in ["4", "100"].into_iter().zip(loads).enumerate() {
        let factors = [("link.rate_mbit", rate)];
        records.extend(fixture::cell("esplanade-x", place, &factors, &[1e6; 2]));
        let readings = [("soaker.load_ratio", load)];
        let by = crate::meter::IntrusiveMeter::Soaker;
        records.push(fixture::examined(
            "esplanade-x",
            place,
            &factors,
            by,
            &readings,
        ));
    }
    records
}

#[test]
fn a_claim_may_speak_of_what_an_intrusive_meter_read_and_of_a_figure_that_is_compared_to_nothing() {
    let paper = Paper::of("ronan-2004").unwrap();
    let answer = |finding: &str, loads: [f64; 2]| {
        let claims = paper.claim.iter();
        let mut claims = claims.filter(|claim| claim.finding.starts_with(finding));
        let records = soaked(loads);
        let answer = ClaimCheck::of(claims.next().unwrap(), &Findings::of(&records).unwrap());
        (answer.judgement(), answer.shown())
    };
    let falls = "At 4 Mbit/s hardly any load";
    assert_eq!(
        answer(falls, [0.02, 0.4]),
        (Judgement::Holds, "× 0.0500".into())
    );
    assert_eq!(answer(falls, [0.02, 0.03]).0, Judgement::Refuted);
    let takes = "At 100 Mbit/s the tunnel takes";
    assert_eq!(
        answer(takes, [0.02, 0.4]),
        (Judgement::Holds, "40.0 %".into())
    );
    assert_eq!(
        answer(takes, [0.02, 0.035]),
        (Judgement::Refuted, "3.50 %".into())
    );
    let open = answer("The load falls with", [0.02, 0.4]);
    assert_eq!(open, (Judgement::NotMeasured, "not measured".into()));
}

#[test]
fn loads_of_processors_are_drawn_beside_the_paper_s_where_a_soaker_ran() {
    let paper = Paper::of("ronan-2004").unwrap();
    let section = |records: &[crate::record::Record]| {
        let findings = Findings::of(records).unwrap();
        section(&paper, &findings).body.html(&mut 0)
    };
    let title = "Load of all processors, by a soaker over link.rate_mbit, paper and this run";
    let with = section(&soaked([0.02, 0.4]));
    assert!(
        with.contains(title) && with.contains("data-value=\"0.3013\""),
        "{with}"
    );
    let mut without = soaked([0.02, 0.4]);
    without.retain(|record| record.round <= 3);
    assert!(!section(&without).contains(title));
}
