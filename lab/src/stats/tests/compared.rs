//! Comparing, judged by SciPy 1.17.1 (`ttest_ind(equal_var = False).confidence_interval`, `bootstrap(paired = True,
//! method = 'BCa', n_resamples = 300000)`, `t.interval` of logarithms) on fixed numbers, and by how often the
//! intervals hold the truth when the truth is known.

use super::super::*;
use super::{SKEWED, STEADY, close};
use crate::seed::SplitMix64;

const FAST: [f64; 9] = [5.9, 6.1, 5.7, 6.4, 5.2, 6.0, 5.8, 6.3, 5.5];
const SLOW: [f64; 9] = [0.58, 0.61, 0.55, 0.63, 0.50, 0.57, 0.60, 0.59, 0.56];

fn pairs() -> Vec<(f64, f64)> {
    FAST.into_iter().zip(SLOW).collect()
}

#[test]
fn the_difference_of_two_samples_is_that_of_scipy() {
    let interval = welch_interval(&STEADY, &SKEWED, 0.95).unwrap();
    close(interval.low, 9.383846217141288, 1e-12);
    close(interval.high, 9.667820449525378, 1e-12);
}

#[test]
fn the_ratio_of_separate_samples_is_that_of_scipy() {
    let ratio = separate(&STEADY[..5], &SKEWED, 0.95).unwrap();
    close(ratio.value, 31.61711229946524, 1e-12);
    close(ratio.interval.unwrap().low, 27.07088743698213, 1e-12);
    close(ratio.interval.unwrap().high, 44.63597122718886, 1e-12);
    let robust = robust(&STEADY[..5], &SKEWED).unwrap();
    close(robust, 38.594040990805816, 1e-12);
}

#[test]
fn the_ratio_of_a_few_pairs_is_that_of_scipy() {
    let ratio = paired(&pairs()[..3], 0.95, 1).unwrap();
    close(ratio.value, 10.172413793103448, 1e-12);
    close(ratio.interval.unwrap().low, 9.735815408264305, 1e-11);
    close(ratio.interval.unwrap().high, 10.63943237383628, 1e-11);
}

#[test]
fn the_bootstrapped_ratio_of_many_pairs_agrees_with_scipy() {
    close(expanded(0.95, 9), 0.985550361633692, 1e-9);
    let ratio = paired(&pairs(), 0.95, 1).unwrap();
    close(ratio.value, 10.192678227360307, 1e-12);
    let interval = ratio.interval.unwrap();
    assert!((interval.low - 9.925).abs() < 0.02, "{interval:?}");
    assert!((interval.high - 10.436).abs() < 0.02, "{interval:?}");
}

#[test]
fn no_ratio_is_taken_to_nothing() {
    assert_eq!(paired(&[], 0.95, 1), None);
    assert_eq!(paired(&[(1.0, 0.0)], 0.95, 1), None);
    assert_eq!(separate(&[1.0], &[], 0.95), None);
    assert_eq!(paired(&[(3.0, 2.0)], 0.95, 1).unwrap().interval, None);
}

/// Normal enough: twelve uniforms. The logarithm of each measurement scatters, and a drift meets both of a pair.
fn measured(seeded: &mut SplitMix64, truth: f64) -> (f64, f64) {
    let mut scatter = || -> f64 {
        let uniform = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
        (0..12).map(|_| uniform(seeded.bits())).sum::<f64>() - 6.0
    };
    let drift = (0.3 * scatter()).exp();
    let (a, b) = ((0.06 * scatter()).exp(), (0.06 * scatter()).exp());
    (truth * drift * a, drift * b)
}

fn coverage(count: usize, samples: usize) -> f64 {
    let mut seeded = SplitMix64::new(20_261_122);
    let covered = (0..samples).filter(|sample| {
        let pairs: Vec<_> = (0..count).map(|_| measured(&mut seeded, 1.7)).collect();
        let ratio = paired(&pairs, 0.95, *sample as u64).unwrap();
        ratio.interval.unwrap().holds(1.7)
    });
    covered.count() as f64 / samples as f64
}

#[test]
fn the_interval_of_a_ratio_covers_the_truth_as_often_as_its_level() {
    for (count, samples) in [(3, 4000), (5, 4000), (9, 600), (15, 400)] {
        let share = coverage(count, samples);
        let chance = 3.0 * (0.95 * 0.05 / samples as f64).sqrt();
        assert!(share > 0.95 - chance, "{share} of {count} pairs");
        assert!(share < 0.99, "{share} of {count} pairs is wasteful");
    }
}

#[test]
fn the_noise_floor_is_the_formula_over_quantiles_of_scipy() {
    let one = |values: &[f64]| floor(&[values.to_vec()], 0.95).unwrap();
    close(one(&STEADY), 0.014107255279239022, 1e-11);
    close(one(&SKEWED), 0.5638577934662916, 1e-11);
    let all = [STEADY.to_vec(), SKEWED.to_vec(), FAST.to_vec()];
    close(floor(&all, 0.95).unwrap(), 0.06535914880083472, 1e-11);
    assert_eq!(floor(&[vec![1.0]], 0.95), None);
}

#[test]
fn the_same_thing_measured_twice_rarely_rises_above_its_floor() {
    let mut seeded = SplitMix64::new(7);
    // The drift falls out of the quotient; the scatter of both stays.
    let mut once = || -> f64 {
        let (a, b) = measured(&mut seeded, 1.0);
        a / b
    };
    let mut group = || -> Vec<f64> { (0..5).map(|_| once()).collect() };
    let above = (0..3000).filter(|_| {
        let (a, b) = (group(), group());
        let ratio = mean(&a).unwrap() / mean(&b).unwrap();
        ratio.ln().abs() > floor(&[a, b], 0.95).unwrap().ln_1p()
    });
    let share = above.count() as f64 / 3000.0;
    assert!((0.02..0.07).contains(&share), "{share}");
}

#[test]
fn only_what_differs_beyond_noise_is_ranked() {
    let groups = [[10.0, 10.4, 9.7], [10.1, 9.8, 10.3], [5.0, 5.1, 4.9]];
    let ratio = |a: usize, b: usize| separate(&groups[a], &groups[b], 0.95);
    let ranks = |floor, more| [0, 1, 2].map(|own| rank(own, 3, floor, more, ratio));
    assert_eq!(ranks(0.05, true), [(1, 2), (1, 2), (3, 3)]);
    assert_eq!(ranks(0.05, false), [(2, 3), (2, 3), (1, 1)]);
    assert_eq!(ranks(5.0, true), [(1, 3); 3]);
}

#[test]
fn a_value_far_from_its_fellows_is_named() {
    assert_eq!(outliers(&SKEWED), [5]);
    assert!(outliers(&STEADY).is_empty());
    assert!(
        outliers(&[1.0, 1.0, 1.0, 99.0]).is_empty(),
        "four are no crowd"
    );
    assert_eq!(outliers(&[1.0, 1.0, 1.0, 1.0, 2.0]), [4]);
    assert!(outliers(&[100.0, 100.0, 100.0, 100.0, 100.5]).is_empty());
}
