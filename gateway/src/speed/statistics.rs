//! How far a median may be off.

/// The two figures between which the median lies, at 95 % or more, whatever their distribution (the sign test). With
/// fewer than six figures that level cannot be reached, and these are the lowest and the highest.
pub(crate) fn interval(figures: &[f64]) -> [f64; 2] {
    let sorted = sorted(figures);
    let n = sorted.len();
    // How likely it is that so few figures lie below the median.
    let mut tail = 0.5_f64.powi(n as i32);
    let (mut ways, mut rank) = (1.0, 0);
    while rank + 1 < n / 2 {
        ways *= (n - rank) as f64 / (rank + 1) as f64;
        tail += ways * 0.5_f64.powi(n as i32);
        if tail > 0.025 {
            break;
        }
        rank += 1;
    }
    [sorted[rank], sorted[n - 1 - rank]]
}

fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_tables_of_the_sign_test() {
        let figures = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        // Conover, Practical Nonparametric Statistics, table of the binomial distribution at one half.
        assert_eq!(interval(&figures(9)), [2.0, 8.0]);
        assert_eq!(interval(&figures(11)), [2.0, 10.0]);
        assert_eq!(interval(&figures(15)), [4.0, 12.0]);
        assert_eq!(interval(&figures(5)), [1.0, 5.0]);
    }
}
