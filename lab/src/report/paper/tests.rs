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
        .flat_map(|figure| [1, 2, 3, 4, 5, 6].map(|column| (*figure, column)));
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
        place: "figure 1".into(),
        ours: false,
        than: None,
        by: Comparison::Ratio,
        decides: Deciding::Every,
        machine: MachineClass::Any,
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
    let (in_part, said) = judged([0.45, 0.9]);
    assert_eq!(in_part, Judgement::DoesNotHold { contradicting: 1 });
    assert!(said.starts_with("Does not hold in 1 of 2"), "{said}");
    assert_eq!(
        judged([0.8, 0.9]),
        (
            Judgement::DoesNotHold { contradicting: 2 },
            "Does not hold in 2 of 2; our reading: it is faster now".into()
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
    let one = Judgement::DoesNotHold { contradicting: 1 };
    assert_eq!(answer(&[[0.9, 0.91, 0.89], unsure]).0, one);
    let (open, said) = answer(&[sure, unsure, unsure]);
    assert_eq!(open, Judgement::Undecided);
    assert!(said.contains("in 2 of 3 cells"), "{said}");
}

#[test]
fn up_to_is_judged_by_the_best_case_and_the_worst_case_by_the_worst() {
    let mut records = Vec::new();
    for (place, (size, mbit)) in [("64", 20.0), ("1024", 150.0)].into_iter().enumerate() {
        for (on, gained) in [("false", 0.0), ("true", mbit)] {
            let factors = [("message_bytes", size), ("tcp.sack", on)];
            let order = 2 * place + usize::from(on == "true");
            let figures = [1.0, 1.01, 0.99].map(|noise| 500e6 * noise + gained * 1e6);
            records.extend(fixture::cell("esplanade-x", order, &factors, &figures));
        }
    }
    let findings = Findings::of(&records).unwrap();
    let level = |on: &str| Levels::from([("tcp.sack".into(), on.into())]);
    let mut claim = Claim {
        of: level("true"),
        to: Some(level("false")),
        by: Comparison::Difference,
        at_least: Some(120e6),
        at_most: Some(180e6),
        ..claim()
    };
    let verdict = |claim: &Claim| ClaimCheck::of(claim, &findings).verdict();
    assert_eq!(verdict(&claim), "does not hold in 1 of 2");
    claim.decides = Deciding::Largest;
    assert_eq!(verdict(&claim), "holds");
    claim.decides = Deciding::Smallest;
    assert_eq!(verdict(&claim), "does not hold");
}

#[test]
fn a_tunnel_is_compared_with_itself_and_not_with_plain_ip() {
    let mut records = Vec::new();
    let cells = [
        ("plain", "1500", 5e8),
        ("esplanade-x", "1500", 9e8),
        ("esplanade-x", "9000", 9e8),
    ];
    for (order, (contender, mtu, bps)) in cells.into_iter().enumerate() {
        let factors = [("mtu", mtu), ("suite", "aes")];
        let named = if contender == "plain" { 1 } else { 2 };
        let figures = [1.0, 1.01, 0.99].map(|noise| bps * noise);
        records.extend(fixture::cell(contender, order, &factors[..named], &figures));
    }
    let level = |name: &str, level: &str| Levels::from([(name.into(), level.into())]);
    let claim = Claim {
        of: Levels::from([
            ("mtu".into(), "9000".into()),
            ("suite".into(), "aes".into()),
        ]),
        to: Some(level("mtu", "1500")),
        at_least: Some(0.98),
        at_most: Some(1.02),
        ..claim()
    };
    let answer = ClaimCheck::of(&claim, &Findings::of(&records).unwrap());
    assert_eq!(answer.verdict(), "holds", "{:?}", answer.middle());
    // Nor is plain IP compared with a tunnel.
    let of_plain = Claim {
        of: level("mtu", "1500"),
        to: Some(level("mtu", "9000")),
        ..claim
    };
    let answer = ClaimCheck::of(&of_plain, &Findings::of(&records).unwrap());
    assert_eq!(
        answer.shown().matches("cells").count(),
        0,
        "{}",
        answer.shown()
    );
}

#[test]
fn gains_are_compared_also_where_one_of_them_is_nothing_or_a_loss() {
    // Goodput with messages of 64, 512 and 8192 bytes: the gain to 512 is held against the gain from there on.
    let judged = |of_512: [f64; 3], of_8192: [f64; 3]| {
        let mut records = Vec::new();
        let cells = [
            ("64", [5e8, 5.01e8, 4.99e8]),
            ("512", of_512),
            ("8192", of_8192),
        ];
        for (order, (size, figures)) in cells.into_iter().enumerate() {
            let factors = [("message_bytes", size)];
            records.extend(fixture::cell("esplanade-x", order, &factors, &figures));
        }
        let level = |size: &str| Levels::from([("message_bytes".into(), size.into())]);
        let claim = Claim {
            of: level("512"),
            to: Some(level("64")),
            than: Some(Pair {
                of: level("8192"),
                to: level("512"),
            }),
            by: Comparison::Difference,
            at_least: Some(0.6),
            at_most: Some(0.9),
            ..claim()
        };
        let answer = ClaimCheck::of(&claim, &Findings::of(&records).unwrap());
        (answer.verdict(), answer.shown())
    };
    let noisy = |bps: f64| [1.0, 1.01, 0.99].map(|noise| bps * noise);
    let (holds, shown) = judged([5.75e8, 5.76e8, 5.74e8], [6.75e8, 6.76e8, 6.74e8]);
    assert_eq!(
        (holds.as_str(), shown.as_str()),
        ("holds", "× 0.750 [0.750, 0.750]")
    );
    // Nothing is gained after 512: a gain before is more than any multiple of that.
    let (more, shown) = judged(noisy(8e8), noisy(8e8));
    assert_eq!(more, "does not hold");
    assert_eq!(shown, "no ratio: the second difference may be 0");
    // Nothing is gained at all.
    assert_eq!(judged(noisy(5e8), noisy(5e8)).0, "not decided");
    // Both lose, in the ratio of the claim; that is no growth.
    let (loss, shown) = judged([4.25e8, 4.26e8, 4.24e8], [3.25e8, 3.26e8, 3.24e8]);
    assert_eq!(loss, "does not hold", "{shown}");
}

#[test]
fn who_gains_most_is_judged_by_comparing_gains() {
    let judged = |gains: [f64; 2]| {
        let mut records = Vec::new();
        for (place, (suite, gain)) in ["3des", "aes"].into_iter().zip(gains).enumerate() {
            for (workers, times) in [("0", 1.0), ("1", gain)] {
                let factors = [("suite", suite), ("workers", workers)];
                let order = 2 * place + usize::from(workers == "1");
                let figures = [1.0, 1.01, 0.99].map(|noise| 1e8 * noise * times);
                records.extend(fixture::cell("esplanade-x", order, &factors, &figures));
            }
        }
        let level = |pairs: &[(&str, &str)]| -> Levels {
            let owned = pairs.iter().map(|(a, b)| ((*a).into(), (*b).into()));
            owned.collect()
        };
        let claim = Claim {
            of: level(&[("suite", "3des"), ("workers", "1")]),
            to: Some(level(&[("workers", "0")])),
            than: Some(Pair {
                of: level(&[("suite", "aes")]),
                to: level(&[("suite", "aes"), ("workers", "0")]),
            }),
            at_least: Some(1.0),
            at_most: None,
            ..claim()
        };
        let answer = ClaimCheck::of(&claim, &Findings::of(&records).unwrap());
        (answer.verdict(), answer.middle().unwrap())
    };
    let (verdict, times) = judged([1.5, 1.2]);
    assert_eq!(verdict, "holds");
    assert!((times - 1.25).abs() < 1e-9, "{times}");
    // Both gain, and the dear one less.
    assert_eq!(judged([1.5, 1.6]).0, "does not hold");
}

#[test]
fn the_order_of_packets_is_judged_from_records_and_a_single_overtaken_one_is_too_many() {
    let paper = Paper::of("klassert-2010").unwrap();
    let judged = |overtaken: f64| {
        let factors = [("part", "sizes"), ("workers", "2")];
        let mut records = fixture::cell("esplanade-x", 0, &factors, &[1e9; 3]);
        for record in &mut records {
            record.figures.insert("reordered_count".into(), 0.0);
        }
        records[1]
            .figures
            .insert("reordered_count".into(), overtaken);
        let findings = Findings::of(&records).unwrap();
        let mut claims = paper.claim.iter();
        let order = claims.find(|claim| claim.finding.starts_with("R3"));
        ClaimCheck::of(order.unwrap(), &findings).verdict()
    };
    assert_eq!(judged(0.0), "holds");
    assert_eq!(judged(1.0), "does not hold");
}

#[test]
fn order_is_judged_in_every_part_of_klassert_s_study_and_at_every_rate() {
    let paper = Paper::of("klassert-2010").unwrap();
    let study = crate::study::find("klassert-2010").unwrap();
    let spec = crate::spec::Spec::read(study.text, study.name).unwrap();
    let judged = |part: &str, workers: &str, figure: &str, count: f64| {
        let factors = [("part", part), ("rps_cpus", "0"), ("workers", workers)];
        let mut records = fixture::cell("esplanade-x", 0, &factors, &[1e9; 3]);
        for record in &mut records {
            record.figures.insert("reordered_count".into(), 0.0);
        }
        records[2].figures.insert(figure.into(), count);
        let findings = Findings::of(&records).unwrap();
        let claims = paper.claim.iter();
        let mut order = claims.filter(|claim| claim.finding.starts_with("R3"));
        let of_part = order.find(|claim| claim.of["part"] == part);
        let claim = of_part.unwrap_or_else(|| panic!("no claim about order in {part}"));
        ClaimCheck::of(claim, &findings).verdict()
    };
    for part in spec.cells.iter().filter_map(|cell| cell.part.as_deref()) {
        let workers = if part == "processors" { "auto" } else { "2" };
        assert_eq!(judged(part, workers, "reordered_count", 0.0), "holds");
        let verdict = judged(part, workers, "reordered_count", 1.0);
        assert_eq!(verdict, "does not hold", "{part}");
    }
    let at_99 = judged("latency", "2", "reordered_at_99_count", 1.0);
    assert_eq!(at_99, "does not hold");
}

#[test]
fn a_claim_that_this_machine_cannot_answer_says_which_can() {
    let alone = fixture::cell("plain", 0, &[], &[1e9; 3]);
    let findings = Findings::of(&alone).unwrap();
    let claim = Claim {
        machine: MachineClass::KernelIpsec,
        ..claim()
    };
    let said = ClaimCheck::of(&claim, &findings).sentence(&claim);
    assert!(
        said.ends_with("run it there with --for kernel-ipsec"),
        "{said}"
    );
}

#[test]
fn a_machine_that_lacks_what_a_claim_takes_does_not_answer_it() {
    let verdict = |class: MachineClass, cpus: usize, testbed: &str| {
        let mut records = fixture::cell("plain", 0, &[], &[1e9; 3]);
        records.extend(fixture::cell("esplanade-x", 1, &[], &[0.5e9; 3]));
        for record in &mut records {
            record.provenance.cpus = cpus;
            record.provenance.testbed = testbed.into();
        }
        let claim = Claim {
            machine: class,
            ..claim()
        };
        ClaimCheck::of(&claim, &Findings::of(&records).unwrap()).verdict()
    };
    let (here, there) = ("in network namespaces", "real machines over SSH: left = a");
    assert_eq!(verdict(MachineClass::Any, 2, here), "holds");
    assert_eq!(verdict(MachineClass::KernelIpsec, 2, here), "holds");
    assert_eq!(
        verdict(MachineClass::ManyProcessors, 7, here),
        "not measured"
    );
    assert_eq!(verdict(MachineClass::ManyProcessors, 8, here), "holds");
    assert_eq!(verdict(MachineClass::TwoHosts, 8, here), "not measured");
    assert_eq!(verdict(MachineClass::TwoHosts, 2, there), "holds");
}

#[test]
fn softirq_is_compared_with_irq_only_where_the_kernel_counts_irq() {
    let shown = |irq: f64| {
        let mut records = fixture::cell("esplanade-x", 0, &[], &[1e9; 3]);
        for record in &mut records {
            if let crate::record::Outcome::Measured { readings, .. } = &mut record.outcome {
                readings.insert("machine.softirq_s".into(), 0.3);
                readings.insert("machine.irq_s".into(), irq);
            }
        }
        let claim = Claim {
            to: None,
            figure: Some("machine.softirq_ratio".into()),
            at_least: Some(0.5),
            at_most: None,
            ..claim()
        };
        ClaimCheck::of(&claim, &Findings::of(&records).unwrap()).verdict()
    };
    assert_eq!(shown(0.1), "holds");
    assert_eq!(shown(0.6), "does not hold");
    assert_eq!(shown(0.0), "not measured");
}

#[test]
fn a_question_of_ours_is_no_finding_of_the_paper() {
    let paper = Paper::of("klassert-2010").unwrap();
    let records = fixture::cell("plain", 0, &[], &[1e9; 3]);
    let page = section(&paper, &Findings::of(&records).unwrap())
        .body
        .html(&mut 0);
    let ours = paper.claim.iter().filter(|claim| claim.ours).count();
    let theirs = paper.claim.len() - ours;
    assert!(ours > 0 && page.contains(&format!("Of {theirs} findings of the paper 0 hold")));
}

/// Contender and factors of the cells of a study as its records will have them: of all, or of those that are run for a
/// claim where it takes another machine; on two real hosts where it takes these.
fn cells(study: &str, preset: crate::spec::Preset, claim: &Claim) -> Vec<(String, Levels)> {
    const HOSTS: &str = "[testbed.hosts.left]\nssh = \"ssh://a\"\nwan = \"eth1\"\n\
        [testbed.hosts.right]\nssh = \"ssh://b\"\nwan = \"eth1\"\n";
    let text = crate::study::find(study).unwrap().text;
    let spec = match claim.machine {
        MachineClass::TwoHosts => {
            let joined = crate::spec::joined(text, HOSTS, "hosts.toml").unwrap();
            crate::spec::Spec::read_for_hosts(&joined, study, Some(preset))
        }
        _ => crate::spec::Spec::read_as(text, study, Some(preset)),
    };
    let mut cases = spec
        .unwrap()
        .cases(&crate::spec::Programs::default())
        .unwrap();
    cases.retain(|case| claim.machine == MachineClass::Any || claim.needs(&case.id, &case.factors));
    let cases = cases.into_iter().map(|case| {
        let mut factors = case.contender.factors();
        factors.extend(case.factors);
        (case.id, factors)
    });
    cases.collect()
}

#[test]
fn every_claim_has_its_cells_in_its_study_and_under_standard() {
    use crate::spec::Preset;
    let has = |(id, factors): &(String, Levels), levels: &Levels| {
        levels.iter().all(|(name, level)| match name.as_str() {
            "contender" => is_one_of(id, level),
            name => is_one_of(factors.get(name).map_or("", String::as_str), level),
        })
    };
    let beside = |here: &Levels, there: &Levels, levels: &Levels| {
        let named = |name: &String| levels.contains_key(name);
        let mut here = here.iter().filter(|(name, _)| !named(name));
        here.all(|(name, level)| there.get(name).is_none_or(|other| other == level))
    };
    for (study, _) in PAPERS {
        for claim in Paper::of(study).unwrap().claim {
            for preset in [Preset::Standard, Preset::Faithful] {
                let cells = cells(study, preset, &claim);
                let than = claim.than.iter().flat_map(|than| [&than.of, &than.to]);
                let others: Vec<&Levels> = claim.to.iter().chain(than).collect();
                let answered = |cell: &&(String, Levels)| {
                    has(cell, &claim.of)
                        && others.iter().all(|levels| {
                            let mut cells = cells.iter();
                            cells.any(|other| {
                                has(other, levels) && beside(&cell.1, &other.1, levels)
                            })
                        })
                };
                let found: Vec<_> = cells.iter().filter(answered).collect();
                let parts = claim.of.get("part").map_or("", String::as_str);
                for part in parts.split('|') {
                    let mut found = found.iter();
                    assert!(
                        found.any(|(_, factors)| part.is_empty() || factors["part"] == part),
                        "{study}, {}: no cell of `{part}` answers `{}`",
                        preset.name(),
                        claim.finding
                    );
                }
            }
        }
    }
}

#[test]
fn the_arithmetic_of_a_shaper_in_front_of_the_tunnel_explains_the_printed_rates() {
    // AES-128-CBC with HMAC-MD5 in tunnel mode takes packets of 1438 bytes at MTU 1500: 1386 of them are user data.
    let (data, ethernet, framing) = (1386.0, 14.0, 4.0 + 8.0 + 12.0);
    let (inner, outer) = (1438.0 + ethernet, 1496.0 + ethernet);
    let tenths = |mbit: f64| (mbit * 10.0).round() / 10.0;
    assert_eq!(tenths(34.0 * data / inner), 32.5);
    assert_eq!(tenths(100.0 * data / (inner + framing)), 93.9);
    // Behind the tunnel neither is possible.
    assert_eq!(tenths(34.0 * data / outer), 31.2);
    assert_eq!(tenths(100.0 * data / (outer + framing)), 90.4);
}

#[test]
fn a_claim_may_name_cells_that_lack_a_factor() {
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
        let suite = ("suite", "aes-128-cbc-md5");
        let factors = [("link.rate_mbit", rate), ("part", "tcp"), suite];
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
fn a_claim_may_name_what_an_intrusive_meter_read_and_a_figure_that_is_compared_to_nothing() {
    let paper = Paper::of("ronan-2004").unwrap();
    let answer = |finding: &str, loads: [f64; 2]| {
        let claims = paper.claim.iter();
        let mut claims = claims.filter(|claim| claim.finding.starts_with(finding));
        let records = soaked(loads);
        let answer = ClaimCheck::of(claims.next().unwrap(), &Findings::of(&records).unwrap());
        (answer.judgement(), answer.shown())
    };
    let no = Judgement::DoesNotHold { contradicting: 1 };
    let falls = "At 4 Mbit/s hardly any load";
    assert_eq!(
        answer(falls, [0.02, 0.4]),
        (Judgement::Holds, "× 0.0500".into())
    );
    assert_eq!(answer(falls, [0.02, 0.03]).0, no);
    let takes = "At 100 Mbit/s the tunnel takes";
    assert_eq!(
        answer(takes, [0.02, 0.4]),
        (Judgement::Holds, "40.0 %".into())
    );
    assert_eq!(answer(takes, [0.02, 0.035]), (no, "3.50 %".into()));
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
