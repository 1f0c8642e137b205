//! Latency by percentile. The axis is that of high-dynamic-range histograms: each step to the right leaves out a
//! tenth of what the step before left out. A mean would hide the slow packets.

use super::delays;
use super::measured::not_drawn;
use crate::load::PERCENTILES;
use crate::report::chart::{Chart, Line, Lines, Point, lines};
use crate::report::findings::{Findings, LEVEL, MeasuredCell, Part};
use crate::report::html::{Table, TableCell, escaped};
use crate::report::quantity::Scale;
use crate::report::section::{Body, Section};
use crate::report::two_clocks;
use crate::stats;
use std::collections::BTreeSet;

/// What is timed, and its name for readers. Delays at a share of the highest rate follow.
const TIMED: [(&str, &str); 3] = [
    ("rtt", "Round trips by percentile"),
    (
        "connection",
        "Connections, opened, answered and closed, by percentile",
    ),
    ("latency", "One-way delays by percentile"),
];
/// The same at shares of the highest rate: how their names begin, and what one and several are called.
const AT_SHARES: [(&str, &str, &str); 2] = [
    ("latency_at_", "one-way delay", "One-way delays"),
    ("rtt_at_", "round trip of a frame", "Round trips of frames"),
];
/// More curves than this in one drawing are not readable; the rest is in the table.
const MAX_CURVES: usize = 16;

/// The section; empty where nothing was timed.
pub(super) fn section(findings: &Findings) -> Section {
    let mut body = Body::default();
    if let Some(note) = two_clocks::note(findings) {
        body.push_html(format!("<p>Note: {}.</p>\n", escaped(note)));
    }
    for part in &findings.parts {
        for chart in of_part(part) {
            body.push_chart(chart);
        }
    }
    Section::new("latency", "Latency", body)
}

/// Medians at shares of the highest rate over a setting, then everything that is timed by percentile.
fn of_part(part: &Part) -> Vec<Chart> {
    let shares = at_shares(part);
    let medians = shares.iter().flat_map(|share| {
        let title = format!("Median {}, {}", share.one, share.at);
        delays::charts(part, &share.timed, &title)
    });
    let usual = TIMED.map(|(timed, title)| (timed.to_owned(), title.to_owned()));
    let by_percentile = shares.iter().map(|share| {
        let title = format!("{} by percentile, {}", share.several, share.at);
        (share.timed.clone(), title)
    });
    let all = usual.into_iter().chain(by_percentile);
    let percentiles = all.filter_map(|(timed, title)| chart(part, &timed, &title));
    medians.chain(percentiles).collect()
}

/// What was timed at a percentage of the highest rate.
struct AtShare {
    /// How its figures' names begin, as in [`TIMED`].
    timed: String,
    one: &'static str,
    several: &'static str,
    /// Which percentage, for titles.
    at: String,
}

/// In ascending order.
fn at_shares(part: &Part) -> Vec<AtShare> {
    let all = AT_SHARES.iter().flat_map(|(prefix, one, several)| {
        let trials = part.cells.iter().flat_map(|cell| &cell.trials);
        let names = trials.flat_map(|trial| trial.figures.keys());
        let percent = |name: &String| name.strip_prefix(*prefix)?.split_once('.')?.0.parse().ok();
        let percentages: BTreeSet<u32> = names.filter_map(percent).collect();
        percentages.into_iter().map(move |percent| AtShare {
            timed: format!("{prefix}{percent}"),
            one,
            several,
            at: format!("at {percent} % of the highest rate"),
        })
    });
    all.collect()
}

/// The means over all rounds of one cell at each share, and the longest.
struct Curve {
    name: String,
    points: Vec<Point>,
    longest: Option<f64>,
}

fn chart(part: &Part, timed: &str, title: &str) -> Option<Chart> {
    let curves: Vec<Curve> = part
        .cells
        .iter()
        .map(|cell| curve(cell, timed))
        .filter(|curve| curve.points.len() > 1)
        .collect();
    let slowest = curves.iter().flat_map(|curve| &curve.points);
    let most = slowest.map(|point| point.y).reduce(f64::max)?;
    let scale = Scale::of("delay_us", most);
    let places: Vec<(f64, String)> = PERCENTILES
        .iter()
        .map(|(_, share)| (place(*share), percent(*share)))
        .collect();
    let title = part.titled(title);
    let description = format!(
        "Lines: {title}, from the median to the highest percentile, for {} cases; the table below has the numbers.",
        curves.len()
    );
    let table = table(&title, &curves, &scale);
    let undrawn: Vec<String> = curves
        .iter()
        .skip(MAX_CURVES)
        .map(|curve| curve.name.clone())
        .collect();
    let drawn: Vec<Line> = curves
        .into_iter()
        .take(MAX_CURVES)
        .map(|curve| Line::measured(&curve.name, curve.points))
        .collect();
    Some(Chart {
        note: not_drawn(&undrawn)
            + "The share of packets that took at most this long, on a logarithmic scale. Points are means over the \
            rounds, bands their 95 % intervals; the maximum is in the table.",
        picture: lines(
            &drawn,
            &Lines {
                x: "share of all that took at most this long",
                places: &places,
                decades: true,
                scale,
                description: &description,
            },
        ),
        table,
        title,
    })
}

fn curve(cell: &MeasuredCell, timed: &str) -> Curve {
    let point = |(word, share): &(&str, f64)| {
        let values = cell.all(&format!("{timed}.{word}_us"));
        Some(Point {
            x: place(*share),
            y: stats::mean(&values)?,
            interval: stats::mean_interval(&values, LEVEL),
        })
    };
    Curve {
        name: cell.name(),
        points: PERCENTILES.iter().filter_map(point).collect(),
        longest: cell.other(&format!("{timed}.max_us")),
    }
}

/// The place of a share on the axis: one to the right for each tenth that it leaves out.
fn place(share: f64) -> f64 {
    // A whole number of thousandths, so that equal shares have equal places.
    ((1.0 - (1.0 - share).log10()) * 1e3).round() / 1e3
}

fn percent(share: f64) -> String {
    let digits = format!("{:.3}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}

fn table(title: &str, curves: &[Curve], scale: &Scale) -> Table {
    let has_points = |share: f64| {
        let here = |point: &Point| point.x == place(share);
        curves.iter().any(|curve| curve.points.iter().any(here))
    };
    let shares: Vec<f64> = PERCENTILES.iter().map(|(_, share)| *share).collect();
    let shares: Vec<f64> = shares
        .into_iter()
        .filter(|share| has_points(*share))
        .collect();
    let names: Vec<String> = shares
        .iter()
        .map(|share| format!("#{}", percent(*share)))
        .collect();
    let head: Vec<&str> = std::iter::once("contender")
        .chain(names.iter().map(String::as_str))
        .chain(["#maximum"])
        .collect();
    let mut table = Table::new(title, &head);
    table.rows.extend(curves.iter().map(|curve| {
        let at = |share: &f64| {
            let point = curve.points.iter().find(|point| point.x == place(*share));
            let value = point.map(|point| point.y);
            TableCell::maybe(value.map(|value| scale.text(value)), value)
        };
        let longest = curve.longest.map(|longest| scale.text(longest));
        std::iter::once(TableCell::text(&curve.name))
            .chain(shares.iter().map(at))
            .chain([TableCell::maybe(longest, curve.longest)])
            .collect()
    }));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn timed(figures: &[(&str, f64)]) -> String {
        let mut records = fixture::cell("a", 0, &[], &[1e9, 1e9]);
        for record in &mut records {
            let named = figures.iter().map(|(name, value)| ((*name).into(), *value));
            record.figures.extend(named);
        }
        section(&Findings::of(&records).unwrap()).body.html(&mut 0)
    }

    #[test]
    fn percentiles_are_drawn_at_their_places_and_stand_in_the_table() {
        let body = timed(&[
            ("rtt.p50_us", 40.0),
            ("rtt.p99_us", 90.0),
            ("rtt.max_us", 1234.0),
        ]);
        assert!(body.contains(">50 %<") && body.contains(">99 %<"), "{body}");
        assert!(
            body.contains("99 %: 90.0 µs"),
            "the tip names the share: {body}"
        );
        assert!(body.contains("data-value=\"1234\""), "{body}");
        assert!(
            !body.contains("99.9 %"),
            "a percentile without a figure is left out: {body}"
        );
    }

    #[test]
    fn delays_at_a_share_of_the_highest_rate_have_a_chart_of_their_own() {
        let body = timed(&[
            ("latency_at_90.p50_us", 40.0),
            ("latency_at_90.p99_us", 90.0),
            ("latency_at_50.p50_us", 30.0),
            ("latency_at_50.p99_us", 60.0),
        ]);
        let at = |percent: u32| body.find(&format!("at {percent} % of the highest rate</h3>"));
        assert!(at(50).is_some() && at(50) < at(90), "{body}");
        assert_eq!(body.matches("<figure").count(), 2);
    }

    #[test]
    fn round_trips_of_frames_are_drawn_under_their_name_below_what_is_not_measured() {
        let mut records = fixture::cell("a", 0, &[], &[1e9, 1e9]);
        for record in &mut records {
            record.load = "frames-ndr".into();
            for (name, value) in [("rtt_at_50.p50_us", 80.0), ("rtt_at_50.p99_us", 120.0)] {
                record.figures.insert(name.into(), value);
            }
        }
        let body = section(&Findings::of(&records).unwrap()).body.html(&mut 0);
        assert!(
            body.contains("one-way delays of frames are not measured"),
            "{body}"
        );
        let title = "Round trips of frames by percentile, at 50 % of the highest rate</h3>";
        assert!(
            body.contains(title) && body.contains("99 %: 120 µs"),
            "{body}"
        );
        assert_eq!(body.matches("<figure").count(), 1);
    }

    #[test]
    fn each_step_leaves_out_a_tenth() {
        let places = [0.9, 0.99, 0.999, 0.9999, 0.99999].map(place);
        assert_eq!(places, [2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(percent(0.99999), "99.999 %");
    }

    #[test]
    fn what_was_not_timed_has_no_section() {
        assert!(timed(&[]).is_empty());
    }
}
