//! Every expected number here was printed by SciPy 1.17.1 (`scipy.stats.t`, `norm`, `t.interval`, `bootstrap(method =
//! 'BCa', n_resamples = 200000)`) or, for netperf's rule, by its formula over `scipy.stats.t.ppf`.

mod compared;

use super::distribution::{normal, normal_quantile, student, student_quantile};
use super::*;
use crate::seed::SplitMix64;

const STEADY: [f64; 8] = [9.81, 9.93, 9.75, 9.88, 9.90, 9.62, 9.97, 9.84];
const SKEWED: [f64; 12] = [
    0.22, 0.25, 0.21, 0.31, 0.24, 0.9, 0.23, 0.26, 0.28, 0.22, 0.27, 0.35,
];

fn close(ours: f64, theirs: f64, tolerance: f64) {
    let error = (ours - theirs).abs() / theirs.abs().max(1e-300);
    assert!(
        error <= tolerance || (ours - theirs).abs() < 1e-15,
        "{ours} is not {theirs}"
    );
}

#[test]
fn student_quantiles_are_those_of_scipy() {
    let table = [
        (0.975, 1.0, 12.706204736174694),
        (0.975, 2.0, 4.302652729749462),
        (0.975, 4.0, 2.7764451051977934),
        (0.975, 11.0, 2.200985160091639),
        (0.995, 3.0, 5.840909309733355),
        (0.95, 29.0, 1.6991270265334972),
        (0.6, 7.0, 0.2631668613520229),
        (0.975, 200.0, 1.9718962236339088),
    ];
    for (p, freedom, expected) in table {
        close(student_quantile(p, freedom), expected, 1e-11);
        close(student_quantile(1.0 - p, freedom), -expected, 1e-11);
        close(student(expected, freedom), p, 1e-12);
    }
}

#[test]
fn the_normal_distribution_is_that_of_scipy() {
    let cumulative = [
        (-8.0, 6.22096057427174e-16),
        (-3.0, 0.0013498980316300933),
        (-1.5, 0.06680720126885807),
        (0.0, 0.5),
        (0.3, 0.6179114221889526),
        (1.0, 0.8413447460685429),
        (2.5758, 0.9949995762622214),
        (6.0, 0.9999999990134123),
    ];
    for (x, expected) in cumulative {
        close(normal(x), expected, 1e-12);
    }
    let quantiles = [
        (1e-06, -4.753424308822899),
        (0.001, -3.090232306167813),
        (0.025, -1.9599639845400545),
        (0.3, -0.5244005127080409),
        (0.975, 1.959963984540054),
        (0.9999, 3.719016485455709),
    ];
    for (p, expected) in quantiles {
        close(normal_quantile(p), expected, 1e-11);
    }
}

#[test]
fn means_variances_and_medians_are_those_of_numpy() {
    close(mean(&STEADY).unwrap(), 9.8375, 1e-15);
    close(variance(&STEADY).unwrap(), 0.012507142857142934, 1e-12);
    close(median(&STEADY).unwrap(), 9.86, 1e-14);
    close(median(&SKEWED).unwrap(), 0.255, 1e-14);
}

#[test]
fn nothing_comes_of_nothing() {
    assert_eq!(
        (mean(&[]), median(&[]), variance(&[1.0])),
        (None, None, None)
    );
    assert_eq!(mean_interval(&[1.0], 0.95), None);
    assert_eq!(width(&[1.0], 0.95), None);
    assert_eq!(bca(&[1.0], |sample: &[f64]| sample[0], 0.95, 100, 1), None);
    assert_eq!(
        bca(
            &[2.0; 5],
            |sample: &[f64]| mean(sample).unwrap(),
            0.95,
            100,
            1
        ),
        None
    );
}

#[test]
fn the_interval_of_a_mean_is_that_of_scipy() {
    let interval = mean_interval(&STEADY, 0.95).unwrap();
    close(interval.low, 9.744003317536475, 1e-12);
    close(interval.high, 9.930996682463526, 1e-12);
}

#[test]
fn the_bootstrap_of_a_mean_agrees_with_scipy() {
    let interval =
        |values: &[f64]| bca(values, |sample| mean(sample).unwrap(), 0.95, 100_000, 1).unwrap();
    let steady = interval(&STEADY);
    assert!((steady.low - 9.7475).abs() < 0.003, "{steady:?}");
    assert!((steady.high - 9.8975).abs() < 0.003, "{steady:?}");
    let skewed = interval(&SKEWED);
    assert!((skewed.low - 0.2500).abs() < 0.002, "{skewed:?}");
    assert!((skewed.high - 0.5233).abs() < 0.008, "{skewed:?}");
}

#[test]
fn the_bootstrap_of_a_median_agrees_with_scipy() {
    let interval =
        |values: &[f64]| bca(values, |sample| median(sample).unwrap(), 0.95, 50_000, 3).unwrap();
    let steady = interval(&STEADY);
    close(steady.low, 9.75, 1e-9);
    close(steady.high, 9.93, 1e-9);
    let skewed = interval(&SKEWED);
    close(skewed.low, 0.225, 1e-9);
    close(skewed.high, 0.295, 1e-9);
}

#[test]
fn the_width_is_the_one_netperf_computes() {
    close(
        width(&STEADY[..3], 0.95).unwrap(),
        0.04632247853831722,
        1e-9,
    );
    close(
        width(&STEADY[..4], 0.95).unwrap(),
        0.025510874092586698,
        1e-9,
    );
    close(width(&STEADY, 0.95).unwrap(), 0.0190082200688196, 1e-9);
    close(width(&STEADY, 0.99).unwrap(), 0.028130874746120957, 1e-9);
    close(width(&SKEWED, 0.95).unwrap(), 0.7733736925669417, 1e-12);
}

#[test]
fn measuring_stops_when_netperf_would_stop() {
    let rounds = |values: &[f64]| {
        (1..=values.len()).find(|&count| enough(&values[..count], 0.95, 0.03, 3, 10))
    };
    assert_eq!(rounds(&STEADY), Some(4));
    assert_eq!(rounds(&SKEWED), Some(10));
    assert_eq!(rounds(&[1.0, 1.0, 1.0, 1.0]), Some(3));
}

#[test]
fn the_interval_of_a_mean_covers_it_as_often_as_its_level() {
    let mut seeded = SplitMix64::new(20_261_121);
    let mut uniform = || (seeded.bits() >> 11) as f64 / (1u64 << 53) as f64;
    let covered = (0..4000).filter(|_| {
        // Sums of twelve uniforms are normal enough: mean 6, variance 1.
        let sample: Vec<f64> = (0..5).map(|_| (0..12).map(|_| uniform()).sum()).collect();
        let interval = mean_interval(&sample, 0.95).unwrap();
        interval.low < 6.0 && 6.0 < interval.high
    });
    let share = covered.count() as f64 / 4000.0;
    assert!((0.94..0.96).contains(&share), "{share}");
}
