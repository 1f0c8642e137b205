//! The most that the link can carry, as dotted lines beside what was carried.

use crate::report::chart::{Line, Point};
use crate::report::findings::MeasuredCell;

/// More different ones than this would hide what was measured.
const MAX_CURVES: usize = 3;

/// What the link would carry if encapsulation were the only cost, where the records have it: a curve for each kind of
/// encapsulation, named by its contenders where there are several.
pub(super) fn lines(cells: &[&MeasuredCell], across: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for cell in cells.iter().filter(|cell| !cell.levels[across].is_empty()) {
        let (Ok(x), Some(y)) = (cell.levels[across].parse(), cell.other("ideal_bps")) else {
            return Vec::new();
        };
        let point = Point {
            x,
            y,
            interval: None,
        };
        match lines.iter_mut().find(|line| line.name == cell.label) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                model: true,
                ..Line::measured(cell.label, vec![point])
            }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    let mut distinct: Vec<Line> = Vec::new();
    for line in lines {
        if !distinct.iter().any(|known| same_curve(known, &line)) {
            distinct.push(line);
        }
    }
    // An ideal far above everything measured would press the findings into a corner.
    let most = cells.iter().map(|cell| cell.mean).fold(0.0, f64::max);
    let points = || distinct.iter().flat_map(|line| &line.points);
    let near = points().all(|point| point.y <= 2.0 * most);
    let curved = distinct.iter().all(|line| line.points.len() > 1);
    if !near || !curved || distinct.len() > MAX_CURVES {
        return Vec::new();
    }
    let alone = distinct.len() == 1;
    for line in &mut distinct {
        line.name = if alone {
            "ideal".into()
        } else {
            format!("ideal, {}", line.name)
        };
    }
    distinct
}

fn same_curve(one: &Line, other: &Line) -> bool {
    let same = |(a, b): (&Point, &Point)| a.x == b.x && (a.y / b.y - 1.0).abs() < 1e-6;
    one.points.len() == other.points.len() && one.points.iter().zip(&other.points).all(same)
}
