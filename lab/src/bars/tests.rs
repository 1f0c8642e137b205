use super::*;
use crate::report::fixture;

fn record(contender: &str, round: usize, goodput: f64) -> Record {
    let order = usize::from(contender == "ours");
    let mut record = fixture::cell(contender, order, &[("part", "stream")], &[goodput]).remove(0);
    record.round = round;
    if let Outcome::Measured { readings, .. } = &mut record.outcome {
        readings.insert("left.rss.peak_bytes".into(), 1e7);
        readings.insert("right.rss.peak_bytes".into(), 2e7);
    }
    record
}

fn which(contender: &str) -> RecordFilter {
    let names = [("contender", contender), ("part", "stream")];
    RecordFilter(
        names
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
    )
}

fn bar(to: Option<&str>, at_least: f64) -> Bar {
    Bar {
        name: "1".into(),
        about: "twice the other".into(),
        figure: "goodput_bps".into(),
        of: which("ours"),
        to: to.map(which),
        less: None,
        at_least: Some(at_least),
        at_most: None,
        moonshot: Some(100.0),
    }
}

/// Nine rounds in which the machine drifts by half; the contender reaches 2.1 to 2.3 times the other one.
fn rounds() -> Vec<Record> {
    let mut records = Vec::new();
    for round in 1..=9 {
        let drift = 1e9 * (1.0 + round as f64 / 18.0);
        let noise = 2.2 + 0.05 * ((round % 3) as f64 - 1.0);
        records.push(record("theirs", round, drift));
        records.push(record("ours", round, noise * drift));
    }
    records
}

#[test]
fn drift_does_not_widen_what_was_measured_in_pairs() {
    let judged = judge(&bar(Some("theirs"), 2.0), &rounds());
    assert_eq!((judged.len(), judged[0].pairs), (1, 9));
    let interval = judged[0].interval.unwrap();
    assert!(interval.low > 2.15 && interval.high < 2.25, "{interval:?}");
    assert_eq!(judged[0].met, Some(true));
}

#[test]
fn the_lower_end_decides_and_not_the_mean() {
    let judged = judge(&bar(Some("theirs"), 2.19), &rounds());
    assert!(judged[0].mean > 2.19, "{judged:?}");
    assert_eq!(judged[0].met, Some(false));
}

#[test]
fn one_pair_is_too_few_for_met_or_missed() {
    let mut records = rounds();
    records.retain(|record| record.round == 1);
    for at_least in [2.0, 3.0] {
        let judged = judge(&bar(Some("theirs"), at_least), &records);
        assert_eq!((judged[0].pairs, judged[0].interval), (1, None));
        assert_eq!(judged[0].met, None);
    }
    let said = text(&[bar(Some("theirs"), 2.0)], &records);
    assert!(
        said.ends_with("1 pair; at least 2: too few pairs to judge\n"),
        "{said}"
    );
}

#[test]
fn two_pairs_that_scatter_prove_little() {
    let mut records = rounds();
    records.retain(|record| record.round < 3);
    let judged = judge(&bar(Some("theirs"), 2.0), &records);
    let interval = judged[0].interval.unwrap();
    assert!(interval.low < 2.0 && interval.high > 2.4, "{interval:?}");
    assert_eq!(judged[0].met, Some(false));
}

#[test]
fn how_much_of_the_bar_is_reached_reads_the_same_for_both_kinds() {
    let least = bar(Some("theirs"), 2.0);
    assert_eq!(least.share(3.0), Some(1.5));
    let most = Bar {
        at_least: None,
        at_most: Some(10.0),
        ..bar(None, 0.0)
    };
    assert_eq!((most.share(5.0), most.share(20.0)), (Some(2.0), Some(0.5)));
}

#[test]
fn a_round_that_lacks_one_of_them_is_no_pair() {
    let mut records = rounds();
    records.retain(|record| record.contender == "ours" || record.round != 4);
    assert_eq!(judge(&bar(Some("theirs"), 2.0), &records)[0].pairs, 8);
    records.retain(|record| record.contender == "ours");
    assert!(judge(&bar(Some("theirs"), 2.0), &records).is_empty());
    assert!(text(&[bar(Some("theirs"), 2.0)], &records).contains("not measured here"));
}

#[test]
fn what_is_added_is_compared_without_what_was_there_before() {
    let mut records = rounds();
    records.extend((1..=9).map(|round| record("plain", round, 5e8)));
    let mut bar = bar(Some("theirs"), 0.0);
    bar.less = Some(which("plain"));
    let expected: f64 = (1..=9)
        .map(|round| {
            1e9 * (1.0 + round as f64 / 18.0) * (2.2 + 0.05 * ((round % 3) as f64 - 1.0)) - 5e8
        })
        .sum::<f64>()
        / (1..=9)
            .map(|round| 1e9 * (1.0 + round as f64 / 18.0) - 5e8)
            .sum::<f64>();
    assert!((judge(&bar, &records)[0].mean - expected).abs() < 1e-9);
}

#[test]
fn a_reading_of_both_gateways_counts_by_the_larger_and_its_upper_end() {
    let mut bar = bar(None, 0.0);
    bar.figure = "*.rss.peak_bytes".into();
    (bar.at_least, bar.at_most) = (None, Some(64e6));
    let judged = judge(&bar, &rounds());
    assert_eq!((judged[0].mean, judged[0].met), (2e7, Some(true)));
    bar.at_most = Some(1.9e7);
    assert_eq!(judge(&bar, &rounds())[0].met, Some(false));
}

#[test]
fn the_table_reads_as_a_sentence() {
    let text = text(&[bar(Some("theirs"), 2.0)], &rounds());
    assert!(
        text.starts_with("1  twice the other\n      ours: 2.199 [2."),
        "{text}"
    );
    assert!(text.ends_with("9 pairs; at least 2: met\n"), "{text}");
}
