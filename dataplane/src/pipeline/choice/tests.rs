use super::*;

/// A machine in figures: what a packet costs there, how many come, who else is at work.
#[derive(Clone, Copy)]
struct World {
    serial_ns: f64,
    transform_ns: f64,
    /// Packets a second that come.
    offered: f64,
    /// Idle processors while the lane works inline.
    spare: f64,
    /// The share of the predicted throughput that workers reach.
    efficiency: f64,
}

const SECONDS: f64 = 0.1;

/// A slow cipher, more packets than one thread carries, an idle processor.
const DEAR: World = World {
    serial_ns: 500.0,
    transform_ns: 9500.0,
    offered: 1e6,
    spare: 1.0,
    efficiency: 0.95,
};

/// Throughput of one thread and `workers` workers.
fn carried(world: &World, workers: usize) -> f64 {
    let alone = 1e9 / (world.serial_ns + world.transform_ns);
    let by = 1.0 + world.spare.min(workers as f64);
    let together = (alone * by * world.efficiency).min(1e9 / world.serial_ns);
    world
        .offered
        .min(if workers == 0 { alone } else { together })
}

fn interval(world: &World, workers: usize) -> Interval {
    let packets = carried(world, workers) * SECONDS;
    let all = packets * (world.serial_ns + world.transform_ns) / 1e9;
    let busy = if workers == 0 { all } else { SECONDS.min(all) };
    let transform = packets * world.transform_ns / 1e9;
    let own = match workers {
        0 => transform,
        _ => (SECONDS - packets * world.serial_ns / 1e9).min(transform / 2.0),
    };
    Interval {
        seconds: SECONDS,
        packets,
        ran: busy,
        busy,
        transform,
        own_transform: own,
        calling: if workers == 0 { 0.0 } else { 50e-6 },
        calls: if workers == 0 { 0.0 } else { 10.0 },
        spare: Some(world.spare),
    }
}

/// Continues for `seconds`; returns each choice.
fn run(chooser: &mut Chooser, world: &World, workers: usize, seconds: f64) -> Vec<Choice> {
    let mut workers = workers;
    let mut choices = Vec::new();
    for _ in 0..(seconds / SECONDS).round() as usize {
        let choice = chooser.next(&interval(world, workers));
        workers = choice.workers;
        choices.push(choice);
    }
    choices
}

fn settled(world: World, most: usize) -> Choice {
    *run(&mut Chooser::new(most), &world, 0, 3.0).last().unwrap()
}

/// How often workers came or went.
fn changes(choices: &[Choice]) -> usize {
    let mode = |choice: &Choice| choice.workers > 0;
    choices
        .windows(2)
        .filter(|two| mode(&two[0]) != mode(&two[1]))
        .count()
}

#[test]
fn each_kind_of_load_settles_where_it_is_carried_best() {
    let calm = World {
        offered: 50_000.0,
        ..DEAR
    };
    let crowded = World {
        spare: 0.02,
        ..DEAR
    };
    let cheap = World {
        serial_ns: 1900.0,
        transform_ns: 100.0,
        ..DEAR
    };
    let disappointing = World {
        efficiency: 0.5,
        ..DEAR
    };
    let wide = World {
        serial_ns: 1000.0,
        transform_ns: 3500.0,
        spare: 14.0,
        ..DEAR
    };
    let silent = World {
        offered: 0.0,
        ..DEAR
    };
    for (name, world, most, workers, words) in [
        ("a dear cipher", DEAR, 1, 1, "workers reach 1.90 x"),
        ("a calm one", calm, 1, 0, "busy 50 % of the time"),
        ("silence", silent, 1, 0, "busy 0 % of the time"),
        (
            "no idle processor",
            crowded,
            1,
            0,
            "only 2 % of a processor is idle",
        ),
        ("one processor", DEAR, 0, 0, "no second processor"),
        ("a cheap cipher", cheap, 1, 0, "1.05 x at most"),
        (
            "workers in vain",
            disappointing,
            1,
            0,
            "workers reached 1.00 x",
        ),
        ("as many as can be kept busy", wide, 15, 4, "workers reach"),
    ] {
        let choice = settled(world, most);
        let why = choice.why.to_string();
        assert_eq!(choice.workers, workers, "{name}: {why}");
        assert!(why.contains(words), "{name}: {why}");
    }
}

#[test]
fn without_a_measure_of_other_load_the_trial_decides() {
    for (efficiency, workers) in [(0.95, 1), (0.5, 0)] {
        let world = World { efficiency, ..DEAR };
        let mut chooser = Chooser::new(1);
        let mut now = 0;
        for _ in 0..12 {
            let seen = Interval {
                spare: None,
                ..interval(&world, now)
            };
            now = chooser.next(&seen).workers;
        }
        assert_eq!(now, workers);
    }
}

#[test]
fn one_busy_interval_is_no_reason_yet() {
    let mut chooser = Chooser::new(1);
    let calm = World {
        offered: 30_000.0,
        ..DEAR
    };
    for world in [DEAR, calm, DEAR, calm, DEAR, calm] {
        assert_eq!(chooser.next(&interval(&world, 0)).workers, 0);
    }
}

#[test]
fn trials_of_what_does_not_pay_become_rare() {
    let world = World {
        efficiency: 0.5,
        ..DEAR
    };
    let choices = run(&mut Chooser::new(1), &world, 0, 600.0);
    // Pauses of 1, 2, 4 … 32 seconds, then a minute each: two changes a trial.
    let early = changes(&choices[..600]);
    let late = changes(&choices[3000..]);
    assert!((8..=14).contains(&early), "{early}");
    assert!((8..=12).contains(&late), "{late}");
    let with = choices.iter().filter(|choice| choice.workers > 0).count();
    assert!(with < choices.len() / 50, "{with} of {}", choices.len());
}

#[test]
fn where_a_few_workers_gain_nothing_many_are_tried_next() {
    let wide = World {
        serial_ns: 1000.0,
        transform_ns: 2500.0,
        spare: 13.4,
        ..DEAR
    };
    let vain = World {
        efficiency: 0.2,
        ..wide
    };
    let mut chooser = Chooser::new(15);
    let mut tried = Vec::new();
    let mut workers = 0;
    for _ in 0..300 {
        let world = if workers > 3 { wide } else { vain };
        workers = chooser.next(&interval(&world, workers)).workers;
        if workers > 0 && tried.last() != Some(&workers) {
            tried.push(workers);
        }
    }
    assert_eq!(
        tried,
        [3, 13],
        "13 processors are idle, and 13 workers gain"
    );
    assert_eq!(chooser.in_vain, None);
    // Where many gain nothing either, both are tried in turns.
    let counts: Vec<usize> = run(&mut Chooser::new(15), &vain, 0, 30.0)
        .iter()
        .map(|choice| choice.workers)
        .collect();
    assert!(counts.contains(&3) && counts.contains(&13), "{counts:?}");
}

#[test]
fn workers_that_pay_stay_but_are_doubted_now_and_then() {
    let choices = run(&mut Chooser::new(1), &DEAR, 0, 600.0);
    let without = choices.iter().filter(|choice| choice.workers == 0).count();
    assert!(without < choices.len() / 50, "{without}");
    assert!(changes(&choices[3000..]) >= 8);
}

#[test]
fn workers_go_when_one_thread_would_do_and_come_back_when_it_would_not() {
    let mut chooser = Chooser::new(1);
    assert_eq!(run(&mut chooser, &DEAR, 0, 1.0).last().unwrap().workers, 1);
    let calm = World {
        offered: 20_000.0,
        ..DEAR
    };
    let choices = run(&mut chooser, &calm, 1, 0.5);
    assert_eq!(choices.last().unwrap().workers, 0);
    assert!(matches!(choices.last().unwrap().why, Reason::KeepsUp(_)));
    let back = run(&mut chooser, &DEAR, 0, 0.5);
    assert_eq!(back.last().unwrap().workers, 1);
}

#[test]
fn a_load_between_both_thresholds_does_not_swing() {
    let mut chooser = Chooser::new(1);
    run(&mut chooser, &DEAR, 0, 1.0);
    // 80 % of one thread: too much to go back, too little to have come.
    let between = World {
        offered: 80_000.0,
        ..DEAR
    };
    let choices = run(&mut chooser, &between, 1, 0.4);
    assert!(choices.iter().all(|choice| choice.workers == 1));
    assert_eq!(settled(between, 1).workers, 0);
}

#[test]
fn another_cipher_is_tried_without_waiting() {
    let mut chooser = Chooser::new(1);
    let vain = World {
        efficiency: 0.5,
        serial_ns: 2000.0,
        transform_ns: 1000.0,
        ..DEAR
    };
    run(&mut chooser, &vain, 0, 60.0);
    assert_eq!(chooser.next(&interval(&vain, 0)).workers, 0);
    let choices = run(&mut chooser, &DEAR, 0, 1.5);
    assert_eq!(choices.last().unwrap().workers, 1);
}

#[test]
fn costs_are_learnt_without_the_time_that_others_took() {
    let mut chooser = Chooser::new(1);
    let undisturbed = interval(&DEAR, 0);
    // Half of the time another thread ran: half the packets, transforms twice as long by the clock.
    let disturbed = Interval {
        packets: undisturbed.packets / 2.0,
        ran: undisturbed.ran / 2.0,
        ..undisturbed
    };
    for _ in 0..3 {
        chooser.next(&disturbed);
    }
    let costs = chooser.costs();
    assert!((costs.transform_ns - 9500.0).abs() < 100.0, "{costs:?}");
    assert!((costs.serial_ns - 500.0).abs() < 100.0, "{costs:?}");
}

#[test]
fn an_interval_of_nothing_teaches_nothing() {
    let mut chooser = Chooser::new(1);
    for _ in 0..3 {
        chooser.next(&Interval {
            seconds: SECONDS,
            ..Interval::default()
        });
    }
    assert_eq!(chooser.costs(), Costs::default());
}

#[test]
fn the_machine_is_asked_about_others_only_when_it_matters() {
    let mut chooser = Chooser::new(1);
    assert!(chooser.asks_for_spare());
    run(&mut chooser, &DEAR, 0, 1.0);
    assert!(!chooser.asks_for_spare());
    assert!(!Chooser::new(0).asks_for_spare());
}
