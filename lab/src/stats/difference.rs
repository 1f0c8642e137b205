//! Two differences that were measured in the same rounds, such as two gains. Either may be 0 or less, so neither a
//! ratio of each round nor a logarithm exists; their means are compared.

use super::distribution::student_quantile;
use super::{Estimate, Interval, mean, mean_interval, variance};

/// The mean of the first less `multiple` times the second. `None` of nothing.
pub(crate) fn excess(pairs: &[(f64, f64)], multiple: f64, level: f64) -> Option<Estimate> {
    let each: Vec<f64> = pairs.iter().map(|(a, b)| a - multiple * b).collect();
    Some(Estimate {
        value: mean(&each)?,
        interval: mean_interval(&each, level),
    })
}

/// The mean of the first over the mean of the second, with Fieller's interval: the multiples at which `excess` may be
/// 0. `None` where the second may be 0 or less: whatever the first is, a multiple then says nothing.
pub(crate) fn multiple(pairs: &[(f64, f64)], level: f64) -> Option<Estimate> {
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (of_a, of_b) = (mean(&a)?, mean(&b)?);
    let value = of_a / of_b;
    let interval = match variance(&a).zip(variance(&b)) {
        None if of_b > 0.0 => None,
        Some(variances) => Some(fieller((&a, &b), variances, level)?),
        None => return None,
    };
    Some(Estimate { value, interval })
}

/// The roots r of `mean(a − r b)² = t² variance(a − r b) / n`, where these are all multiples in between.
fn fieller((a, b): (&[f64], &[f64]), variances: (f64, f64), level: f64) -> Option<Interval> {
    let count = a.len() as f64;
    let (of_a, of_b) = (mean(a)?, mean(b)?);
    let products = a.iter().zip(b).map(|(a, b)| (a - of_a) * (b - of_b));
    let covariance = products.sum::<f64>() / (count - 1.0);
    let scale = student_quantile(0.5 + level / 2.0, count - 1.0).powi(2) / count;
    let quadratic = of_b * of_b - scale * variances.1;
    if of_b <= 0.0 || quadratic <= 0.0 {
        return None;
    }
    let half_linear = of_a * of_b - scale * covariance;
    let constant = of_a * of_a - scale * variances.0;
    let root = (half_linear * half_linear - quadratic * constant)
        .max(0.0)
        .sqrt();
    Some(Interval {
        low: (half_linear - root) / quadratic,
        high: (half_linear + root) / quadratic,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVEL: f64 = 0.95;

    #[test]
    fn at_the_ends_of_the_interval_the_excess_just_reaches_zero() {
        for pairs in [
            [(7.5, 10.0), (8.0, 10.5), (7.0, 9.0), (7.7, 10.1)],
            [(-1.0, 10.0), (0.5, 11.0), (0.2, 9.5), (-0.4, 10.0)],
        ] {
            let found = multiple(&pairs, LEVEL).unwrap();
            let interval = found.interval.unwrap();
            assert!(interval.holds(found.value), "{found:?}");
            let end = |multiple: f64| excess(&pairs, multiple, LEVEL).unwrap().interval.unwrap();
            let (low, high) = (end(interval.low).low, end(interval.high).high);
            assert!(low.abs() < 1e-9 && high.abs() < 1e-9, "{low} {high}");
        }
    }

    #[test]
    fn where_the_second_may_be_nothing_there_is_no_multiple() {
        for pairs in [
            [(5.0, 1.0), (6.0, -1.0), (5.5, 0.5)],
            [(5.0, -3.0), (6.0, -3.1), (5.5, -2.9)],
        ] {
            assert_eq!(multiple(&pairs, LEVEL), None, "{pairs:?}");
            // The question whether the first is at least as large is answered all the same.
            let excess = excess(&pairs, 1.0, LEVEL).unwrap().interval.unwrap();
            assert!(excess.low > 0.0, "{pairs:?}: {excess:?}");
        }
    }

    #[test]
    fn one_pair_has_no_interval_and_none_has_no_multiple() {
        let one = multiple(&[(3.0, 4.0)], LEVEL).unwrap();
        assert_eq!((one.value, one.interval), (0.75, None));
        assert_eq!(multiple(&[(3.0, -4.0)], LEVEL), None);
        assert_eq!(multiple(&[], LEVEL), None);
    }
}
