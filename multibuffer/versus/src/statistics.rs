//! How low a median may be.

/// The lower bound of the median at 95 %: the figure that so few stand below that a lower median is that unlikely,
/// whatever their distribution (the sign test).
pub fn lower_bound(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let n = figures.len();
    let (mut below, mut ways) = (0.0, 1.0);
    for at in 0..n {
        below += ways / 2_f64.powi(n as i32);
        if below > 0.025 {
            return figures[at.saturating_sub(1).max(0)];
        }
        ways *= (n - at) as f64 / (at + 1) as f64;
    }
    figures[0]
}
