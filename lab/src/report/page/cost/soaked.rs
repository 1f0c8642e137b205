//! The load of the processors by a soaker, and what of it the kernel's accounting does not show.

use super::MANY;
use crate::report::chart::{Figure, Stack, stack};
use crate::report::findings::Findings;
use crate::report::html::{Cell, Table, escaped};
use crate::report::page::Body;
use crate::report::quantity::significant;
use crate::report::soaker::{Load, loads};

/// A cell with the load of one machine.
type Soaked = (String, Load);

const NAMES: [&str; 2] = [
    "seen by the kernel's accounting",
    "hidden in the soaker's own time",
];

/// Adds the chart with its table, or where there are too many bars the table alone; nothing where no soaker ran.
pub(super) fn show(findings: &Findings, body: &mut Body) {
    let found: Vec<Soaked> = findings
        .cells()
        .flat_map(|cell| loads(cell).into_iter().map(|load| (cell.name(), load)))
        .collect();
    if found.is_empty() {
        return;
    }
    let table = table(&found);
    match found.len() > MANY {
        true => body.say(format!(
            "<p>{}</p>\n{}",
            escaped(&note(&found)),
            table.html()
        )),
        false => body.draw(drawn(&found, table)),
    }
    body.say(doubts(&found));
}

fn drawn(found: &[Soaked], table: Table) -> Figure {
    let bars = found.iter().map(|(name, load)| Stack {
        name: named(name, load),
        shares: shares(load).into(),
    });
    let spoken = "Stacked bars: the share of the processors that a soaker lost beside each contender, and how much of it the kernel's accounting hides; the table below has the numbers.";
    Figure {
        title: "Load of the processors, by a soaker".into(),
        note: note(found),
        picture: stack(&bars.collect::<Vec<_>>(), &NAMES, spoken),
        table,
    }
}

/// With the machine, where there are several.
fn named(name: &str, load: &Load) -> String {
    match load.machine.is_empty() {
        true => name.into(),
        false => format!("{name} · {}'s machine", load.machine),
    }
}

fn note(found: &[Soaked]) -> String {
    let mut machines: Vec<String> = found.iter().map(|(_, load)| load.of_all()).collect();
    machines.sort();
    machines.dedup();
    format!(
        "Of {}, endpoints and whoever else runs included. A soaker takes every idle cycle and counts; what it does not get is the load, wherever the kernel books it. \
         Hidden is what the kernel charged to the soaker while it counted nothing: interrupts and softirqs that met it, time stolen by a host, \
         and what the other thread of a core slowed it by. Taken in trials of their own, which count for no other figure.",
        machines.join("; ")
    )
}

/// What the kernel's accounting shows of the load, and what it does not.
fn shares(load: &Load) -> [f64; 2] {
    [(load.all - load.hidden).max(0.0), load.hidden]
}

fn table(found: &[Soaked]) -> Table {
    let head = [
        "contender",
        "#load, by the soaker",
        "#of it seen by the kernel",
        "#of it hidden",
        "#neither idle nor nice, by /proc/stat",
        "#busiest processor",
        "#goodput beside the soaker",
    ];
    let mut table = Table::new("Load of the processors, by a soaker", &head);
    table.rows.extend(found.iter().map(|(name, load)| {
        let [seen, hidden] = shares(load);
        vec![
            Cell::text(named(name, load)),
            Cell::number(percent(load.all), None),
            Cell::number(percent(seen), Some(seen)),
            Cell::number(percent(hidden), Some(hidden)),
            Cell::maybe(load.by_the_kernel.map(percent), None),
            Cell::number(percent(load.busiest), None),
            Cell::number(format!("{} of that without", percent(load.carried)), None),
        ]
    }));
    table
}

fn percent(share: f64) -> String {
    format!("{} %", significant(100.0 * share))
}

/// Why some of it is less sure, each reason once.
fn doubts(found: &[Soaked]) -> String {
    let mut told: Vec<(&str, usize)> = Vec::new();
    for doubt in found.iter().filter_map(|(_, load)| load.doubt()) {
        match told.iter_mut().find(|(known, _)| *known == doubt) {
            Some((_, times)) => *times += 1,
            None => told.push((doubt, 1)),
        }
    }
    let told = told.into_iter().map(|(doubt, times)| {
        let all = found.len();
        format!("<p>In {times} of {all}: {}.</p>\n", escaped(doubt))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::IntrusiveMeter;
    use crate::record::Record;
    use crate::report::fixture;

    fn page(records: &[Record]) -> String {
        let mut body = Body::default();
        show(&Findings::of(records).unwrap(), &mut body);
        body.html(&mut 0)
    }

    fn soaked(cells: usize, faster: f64) -> Vec<Record> {
        let readings = [
            ("soaker.load_ratio", 0.5),
            ("soaker.hidden_ratio", 0.125),
            ("soaker.busiest_ratio", 0.75),
            ("soaker.processors_count", 2.0),
            ("soaker.faster_ratio", faster),
        ];
        let cell = |order: usize| {
            let level = order.to_string();
            let factors = [("mtu", level.as_str())];
            let mut records = fixture::cell("plain", order, &factors, &[1e9]);
            records.push(fixture::examined(
                "plain",
                order,
                &factors,
                IntrusiveMeter::Soaker,
                &readings,
            ));
            records
        };
        (0..cells).flat_map(cell).collect()
    }

    #[test]
    fn load_is_drawn_as_what_the_kernel_sees_and_what_it_hides_with_its_table() {
        let page = page(&soaked(2, 0.0));
        for words in [
            "<figure",
            "Of both processors, endpoints and whoever else runs included.",
            "data-value=\"0.375\">37.5 %",
            "data-value=\"0.125\">12.5 %",
            ">100 % of that without<",
        ] {
            assert!(page.contains(words), "{words} is not in {page}");
        }
        assert!(!page.contains("In 2 of 2"), "{page}");
    }

    #[test]
    fn many_cells_are_a_table_alone_and_doubts_are_told_once() {
        let page = page(&soaked(MANY + 1, 0.05));
        assert!(!page.contains("<figure") && page.contains("<table>"));
        assert_eq!(page.matches("the soaker ran faster").count(), 1);
        assert!(page.contains(&format!("In {0} of {0}: ", MANY + 1)));
    }

    #[test]
    fn without_a_soaker_there_is_nothing() {
        assert_eq!(page(&fixture::cell("plain", 0, &[], &[1e9])), "");
    }
}
