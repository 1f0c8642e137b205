//! The two distributions the intervals need: the normal and Student's. Each cumulative function is computed directly;
//! the inverse is found by bisection, which is exact to the last bits.

/// Cumulative standard normal distribution.
pub(super) fn normal(x: f64) -> f64 {
    let tail = 0.5 * upper_gamma_half(x * x / 2.0);
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// The value below which the share `p` of a standard normal lies.
pub(super) fn normal_quantile(p: f64) -> f64 {
    invert(normal, p)
}

/// Cumulative Student's t distribution.
pub(super) fn student(t: f64, freedom: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    if t < 0.0 { tail } else { 1.0 - tail }
}

/// The value below which the share `p` of a Student's t lies.
pub(super) fn student_quantile(p: f64, freedom: f64) -> f64 {
    invert(|t| student(t, freedom), p)
}

/// Where a growing function reaches `p`. Both halves of a symmetric one are searched on the lower side, where its
/// values have their full precision.
fn invert(cumulative: impl Fn(f64) -> f64, p: f64) -> f64 {
    if p > 0.5 {
        return -invert(cumulative, 1.0 - p);
    }
    let mut low = -1.0;
    while cumulative(low) > p && low > -1e300 {
        low *= 2.0;
    }
    let mut high = 0.0;
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if cumulative(middle) < p {
            low = middle
        } else {
            high = middle
        }
    }
    (low + high) / 2.0
}

/// Q(1/2, x), the upper regularized gamma function: erfc of the square root.
fn upper_gamma_half(x: f64) -> f64 {
    if x < 1.5 {
        1.0 - gamma_series(x)
    } else {
        gamma_fraction(x)
    }
}

/// P(1/2, x) by its power series.
fn gamma_series(x: f64) -> f64 {
    let (mut term, mut sum, mut at) = (2.0, 2.0, 0.5);
    while term > sum * 1e-17 {
        at += 1.0;
        term *= x / at;
        sum += term;
    }
    sum * (-x).exp() * x.sqrt() / std::f64::consts::PI.sqrt()
}

/// Q(1/2, x) by its continued fraction.
fn gamma_fraction(x: f64) -> f64 {
    let fraction = continued(|step| {
        let step = step as f64;
        (-step * (step - 0.5), x + 0.5 + 2.0 * step)
    });
    (-x).exp() * x.sqrt() / std::f64::consts::PI.sqrt() / fraction
}

/// I_x(a, b), the regularized incomplete beta function.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on one side; the other is its mirror image.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = a * x.ln() + b * (1.0 - x).ln() - ln_gamma(a) - ln_gamma(b) + ln_gamma(a + b);
    let fraction = continued(|step| (beta_numerator(step, x, a, b), 1.0));
    front.exp() / a / fraction
}

fn beta_numerator(step: u32, x: f64, a: f64, b: f64) -> f64 {
    let half = f64::from(step / 2);
    match step % 2 {
        0 => half * (b - half) * x / ((a + 2.0 * half - 1.0) * (a + 2.0 * half)),
        _ => -(a + half) * (a + b + half) * x / ((a + 2.0 * half) * (a + 2.0 * half + 1.0)),
    }
}

/// b0 + a1/(b1 + a2/(b2 + …)) by Lentz's method; `part(n)` gives (a_n, b_n), and a_0 is not used.
fn continued(part: impl Fn(u32) -> (f64, f64)) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut result = away(part(0).1);
    let (mut c, mut d) = (result, 0.0);
    for step in 1..10_000 {
        let (a, b) = part(step);
        d = 1.0 / away(b + a * d);
        c = away(b + a / c);
        result *= c * d;
        if (c * d - 1.0).abs() < 1e-16 {
            break;
        }
    }
    result
}

/// The logarithm of the gamma function for positive numbers: Stirling's series where it is exact, and the recurrence to
/// get there.
fn ln_gamma(x: f64) -> f64 {
    if x < 12.0 {
        return ln_gamma(x + 1.0) - x.ln();
    }
    const SERIES: [f64; 6] = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
    ];
    let inverse = 1.0 / (x * x);
    let series = SERIES
        .iter()
        .rev()
        .fold(0.0, |sum, term| sum * inverse + term)
        / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}
