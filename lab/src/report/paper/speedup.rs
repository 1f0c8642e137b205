//! What parallel work gains against what a byte costs: the question of the study of 2010, drawn as its argument goes. A
//! gateway handles a byte in `c` nanoseconds, of which `s` cannot be shared out: reading, numbering, writing, for
//! which the NULL tunnel stands. With `n` workers beside the reader on `p` processors, the gain is at most `c /
//! max(s, c / min(n + 1, p))`.

use crate::report::chart::{Chart, Line, Lines, Point, lines};
use crate::report::findings::{Findings, MeasuredCell, Part, factor, ratio};
use crate::report::html::{Table, TableCell};
use crate::report::quantity::{Scale, significant, with_interval};

/// A pair of the same suite with workers and without.
struct Gain {
    suite: String,
    workers: usize,
    cost_ns: f64,
    gain: crate::stats::Estimate,
}

/// A chart for each part that measured several suites both ways: what a byte costs must vary by its cipher, and not
/// by the length of packets.
pub(super) fn charts<'a>(findings: &'a Findings) -> impl Iterator<Item = Chart> + 'a {
    let parts = findings.parts.iter();
    parts.filter_map(|part| chart(findings, part))
}

fn chart(findings: &Findings, part: &Part) -> Option<Chart> {
    let cells: Vec<&MeasuredCell> = part
        .cells
        .iter()
        .filter(|cell| cell.contender.starts_with("esplanade"))
        .collect();
    let mut gains: Vec<Gain> = cells.iter().flat_map(|cell| gain(cell, &cells)).collect();
    gains.sort_by(|a, b| a.cost_ns.total_cmp(&b.cost_ns));
    let first = &gains.first()?.suite;
    if gains.iter().all(|gain| gain.suite == *first) {
        return None;
    }
    let alone = serial(&cells);
    let processors = findings.any.provenance.cpus;
    let drawn = curves(&gains, alone, processors);
    let title = part.titled("What workers gain, against what a byte costs");
    let description = "Points: the speed-up of each suite by workers over the cost of a byte; dotted: the most that \
    can be gained.";
    let frame = Lines {
        x: "gateway's processor time per byte without workers, ns",
        places: &[],
        decades: false,
        scale: Scale::of("speedup", 1.0),
        description,
    };
    Some(Chart {
        title,
        note: note(alone, findings),
        picture: lines(&drawn, &frame),
        table: table(&gains, alone, processors),
    })
}

fn note(alone: Option<f64>, findings: &Findings) -> String {
    let clock = findings.any.provenance.cpu_mhz;
    let cycles = clock.map_or_else(String::new, |mhz| {
        format!(
            " One ns is {} cycles at {mhz:.0} MHz.",
            significant(mhz / 1000.0)
        )
    });
    match alone {
        Some(alone) => format!(
            "Dotted: the most that can be gained when {} ns of each byte stay serial (the NULL tunnel's cost).{cycles}",
            significant(alone)
        ),
        None => format!(
            "Without a NULL tunnel among the contenders the serial share, and so the prediction, is not known.{cycles}"
        ),
    }
}

fn curves(gains: &[Gain], alone: Option<f64>, processors: usize) -> Vec<Line> {
    let mut counts: Vec<usize> = gains.iter().map(|gain| gain.workers).collect();
    counts.sort_unstable();
    counts.dedup();
    let of = |workers: usize| gains.iter().filter(move |gain| gain.workers == workers);
    let measured = counts.iter().map(|workers| {
        let points = of(*workers).map(|gain| Point {
            x: gain.cost_ns,
            y: gain.gain.value,
            interval: gain.gain.interval,
        });
        Line::measured(&counted(*workers), points.collect())
    });
    let mut all: Vec<Line> = measured.collect();
    for workers in counts {
        let Some(alone) = alone else { break };
        let points = of(workers).map(|gain| Point {
            x: gain.cost_ns,
            y: max_gain(gain.cost_ns, alone, workers, processors),
            interval: None,
        });
        all.push(Line {
            model: true,
            ..Line::measured(&format!("at most, {}", counted(workers)), points.collect())
        });
    }
    all
}

fn counted(workers: usize) -> String {
    match workers {
        1 => "1 worker".into(),
        _ => format!("{workers} workers"),
    }
}

fn max_gain(cost: f64, serial: f64, workers: usize, processors: usize) -> f64 {
    let threads = (workers + 1).min(processors).max(1) as f64;
    cost / serial.min(cost).max(cost / threads)
}

fn table(gains: &[Gain], alone: Option<f64>, processors: usize) -> Table {
    let mut table = Table::new(
        "Speed-up by workers",
        &[
            "suite",
            "#workers",
            "#ns per byte without",
            "#speed-up",
            "#at most",
        ],
    );
    table.rows.extend(gains.iter().map(|gain| {
        let limit = alone.map(|alone| max_gain(gain.cost_ns, alone, gain.workers, processors));
        vec![
            TableCell::text(&gain.suite),
            TableCell::number(gain.workers.to_string(), None),
            TableCell::number(significant(gain.cost_ns), None),
            TableCell::number(with_interval(&gain.gain), Some(gain.gain.value)),
            TableCell::maybe(limit.map(significant), None),
        ]
    }));
    table
}

fn gain(cell: &MeasuredCell, cells: &[&MeasuredCell]) -> Option<Gain> {
    let workers = workers(cell).filter(|workers| *workers > 0)?;
    let suite = suite(cell)?;
    let without = cells.iter().find(|other| {
        is_inline(other) && self::suite(other) == Some(suite) && cell.shares_but(other, "workers")
    })?;
    Some(Gain {
        suite: suite.into(),
        workers,
        cost_ns: cost(without)?,
        gain: ratio(cell, without)?,
    })
}

fn serial(cells: &[&MeasuredCell]) -> Option<f64> {
    let null = cells
        .iter()
        .find(|cell| suite(cell) == Some("null") && is_inline(cell))?;
    cost(null)
}

fn suite<'a>(cell: &MeasuredCell<'a>) -> Option<&'a str> {
    factor(cell.trials.first()?, "suite")
}

fn workers(cell: &MeasuredCell) -> Option<usize> {
    factor(cell.trials.first()?, "workers")?.parse().ok()
}

/// A gateway that chooses for itself has no workers beside the NULL cipher, which leaves them nothing to do.
fn is_inline(cell: &MeasuredCell) -> bool {
    let asked = cell
        .trials
        .first()
        .and_then(|trial| factor(trial, "workers"));
    matches!(asked, None | Some("0"))
}

/// Nanoseconds of the sealing gateway's processor time for each byte of user data.
fn cost(cell: &MeasuredCell) -> Option<f64> {
    let spent = cell.reading("left.cpu.user_s")? + cell.reading("left.cpu.system_s")?;
    let bytes = cell.other("goodput_bps")? / 8.0 * cell.reading("window_s")?;
    (bytes > 0.0 && spent > 0.0).then(|| 1e9 * spent / bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    /// Titles of the charts of tunnels with these suites and workers.
    fn titles(tunnels: &[(&str, &str)]) -> Vec<(String, String)> {
        let cell = |(order, (suite, workers)): (usize, &(&str, &str))| {
            let factors = [("part", "stream"), ("suite", *suite), ("workers", *workers)];
            let name = format!("esplanade-{suite}-{workers}");
            fixture::cell(&name, order, &factors, &[1e9, 1.1e9, 0.9e9])
        };
        let records: Vec<_> = tunnels.iter().enumerate().flat_map(cell).collect();
        let findings = Findings::of(&records).unwrap();
        let charts = charts(&findings).map(|chart| (chart.title, chart.picture.inline()));
        charts.collect()
    }

    #[test]
    fn gains_are_drawn_by_suite_with_the_most_that_can_be_gained() {
        let aes = [("aes", "0"), ("aes", "1")];
        assert!(titles(&aes).is_empty(), "one suite has one cost");
        let both = [aes, [("des", "0"), ("des", "1")]].concat();
        let [(title, drawn)] = &titles(&both)[..] else {
            panic!("one chart for the part");
        };
        assert_eq!(
            title,
            "stream: What workers gain, against what a byte costs"
        );
        assert!(drawn.contains(">1 worker<") && !drawn.contains("at most"));
        let null = [&both[..], &[("null", "0")]].concat();
        assert!(titles(&null)[0].1.contains(">at most, 1 worker<"));
    }

    #[test]
    fn gains_end_at_the_processors_and_at_the_serial_share() {
        assert_eq!(max_gain(10.0, 1.0, 1, 16), 2.0);
        assert_eq!(max_gain(10.0, 1.0, 3, 2), 2.0);
        assert_eq!(max_gain(10.0, 1.0, 31, 64), 10.0);
        assert_eq!(max_gain(1.0, 2.0, 3, 4), 1.0);
    }
}
