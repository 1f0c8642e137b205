//! How much of the processors a load took, by soakers: the readings of a cell, and the chart and table of them.

use super::chart::{Chart, Stack, split, stack};
use super::findings::{Findings, MeasuredCell};
use super::html::{Table, TableCell, escaped};
use super::quantity::significant;
use super::section::Body;
use crate::meter::{IntrusiveMeter, Readings};
use crate::record::{Outcome, Record};

/// More bars than this in one drawing are not readable: the rest goes into further drawings.
const MAX_BARS: usize = 36;

/// What the soaker of one machine lost.
#[derive(Debug, Clone, PartialEq)]
pub struct SoakerLoad {
    /// A host on the machine; empty where there is one machine.
    pub machine: String,
    /// How many processors it has.
    pub processors: usize,
    /// The share of all of them that others took.
    pub all: f64,
    /// The share, contained in it, that the kernel charged to the soaker.
    pub hidden: f64,
    /// The share of the processor that others took most of.
    pub busiest: f64,
    /// What `/proc/stat` counts in the same trial as neither idle nor nice, where that is of the same machine: a
    /// soaker is nice, and so perhaps is what others run there.
    pub by_the_kernel: Option<f64>,
    /// By how much the clock ran faster than in the calibration.
    pub faster: f64,
    /// Whether the soaker ran in the idle class, which takes nothing from others.
    pub idle_class: bool,
    /// What was carried while it ran, as a share of what is carried without it.
    pub carried: f64,
}

/// One for each machine, where a soaker ran.
pub fn loads(cell: &MeasuredCell) -> Vec<SoakerLoad> {
    let mut trials = cell.under_meters.iter();
    let found = trials.find_map(|trial| Some((*trial, readings(trial)?)));
    let Some((trial, readings)) = found else {
        return Vec::new();
    };
    let carried = trial.figures.get("goodput_bps").copied();
    let without = cell.other("goodput_bps");
    let carried = carried.zip(without).map_or(1.0, |(beside, without)| {
        beside / without.max(f64::MIN_POSITIVE)
    });
    let prefixes = readings
        .keys()
        .filter_map(|name| name.strip_suffix("soaker.load_ratio"));
    prefixes
        .filter_map(|prefix| load(readings, prefix, carried))
        .collect()
}

fn readings(trial: &Record) -> Option<&Readings> {
    match &trial.outcome {
        Outcome::Examined {
            by: IntrusiveMeter::Soaker,
            readings,
            ..
        } => Some(readings),
        _ => None,
    }
}

fn load(readings: &Readings, prefix: &str, carried: f64) -> Option<SoakerLoad> {
    let read = |name: &str| readings.get(&format!("{prefix}soaker.{name}")).copied();
    Some(SoakerLoad {
        machine: prefix.trim_end_matches('.').into(),
        processors: read("processors_count")? as usize,
        all: read("load_ratio")?,
        hidden: read("hidden_ratio")?,
        busiest: read("busiest_ratio")?,
        by_the_kernel: by_the_kernel(readings).filter(|_| prefix.is_empty()),
        faster: read("faster_ratio").unwrap_or(0.0),
        idle_class: read("nice_count").is_none(),
        carried,
    })
}

fn by_the_kernel(readings: &Readings) -> Option<f64> {
    let spent = |state: &&str| readings.get(&format!("machine.{state}_s")).copied();
    let sum = |states: &[&str]| states.iter().filter_map(spent).sum::<f64>();
    let busy = sum(&["user", "system", "irq", "softirq", "steal"]);
    let all = busy + sum(&["nice", "idle", "iowait"]);
    (all > 0.0).then(|| busy / all)
}

impl SoakerLoad {
    /// Of which processors, as `both processors`.
    pub fn of_all(&self) -> String {
        let processors = match self.processors {
            1 => "the processor".into(),
            2 => "both processors".into(),
            count => format!("all {count} processors"),
        };
        if self.machine.is_empty() {
            processors
        } else {
            format!("{processors} of {}'s machine", self.machine)
        }
    }

    /// Why its figures are less certain, if there is a reason.
    pub fn caveat(&self) -> Option<&'static str> {
        if !self.idle_class {
            Some("the idle class was refused: the soaker took a little time from the load")
        } else if self.faster > 0.01 {
            Some("the soaker ran faster than in its calibration: the load is higher than shown")
        } else {
            None
        }
    }
}

/// A cell with the load of one machine.
type Soaked = (String, SoakerLoad);

const NAMES: [&str; 2] = [
    "seen by the kernel's accounting",
    "hidden in the soaker's own time",
];

/// Adds as many charts as are readable, with their tables; nothing where no soaker ran.
pub(super) fn show(findings: &Findings, body: &mut Body) {
    let found: Vec<Soaked> = findings
        .cells()
        .flat_map(|cell| loads(cell).into_iter().map(|load| (cell.name(), load)))
        .collect();
    for (title, some) in split("Load of the processors, by a soaker", &found, MAX_BARS) {
        body.push_chart(drawn(title, some));
    }
    body.push_html(caveats(&found));
}

fn drawn(title: String, found: &[Soaked]) -> Chart {
    let bars = found.iter().map(|(name, load)| Stack {
        name: named(name, load),
        shares: shares(load).into(),
    });
    let description = "Stacked bars: the share of the processors that a soaker lost beside each contender, and how \
    much of it the kernel's accounting hides; the table below has the numbers.";
    Chart {
        title,
        note: note(found),
        picture: stack(&bars.collect::<Vec<_>>(), &NAMES, description),
        table: table(found),
    }
}

/// With the machine, where there are several.
fn named(name: &str, load: &SoakerLoad) -> String {
    if load.machine.is_empty() {
        name.into()
    } else {
        format!("{name} · {}'s machine", load.machine)
    }
}

fn note(found: &[Soaked]) -> String {
    let mut machines: Vec<String> = found.iter().map(|(_, load)| load.of_all()).collect();
    machines.sort();
    machines.dedup();
    format!(
        "Of {}, endpoints and other programs included. A soaker takes every idle cycle and counts; what it does not \
         get is the load, wherever the kernel accounts it. \
         Hidden is what the kernel charged to the soaker while it counted nothing: interrupts and softirqs that \
         interrupted it, time stolen by a host, \
         and the slowdown by the other thread of a core. Taken in separate trials, which count for no other figure.",
        machines.join("; ")
    )
}

/// What the kernel's accounting shows of the load, and what it does not.
fn shares(load: &SoakerLoad) -> [f64; 2] {
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
            TableCell::text(named(name, load)),
            TableCell::number(percent(load.all), None),
            TableCell::number(percent(seen), Some(seen)),
            TableCell::number(percent(hidden), Some(hidden)),
            TableCell::maybe(load.by_the_kernel.map(percent), None),
            TableCell::number(percent(load.busiest), None),
            TableCell::number(format!("{} of that without", percent(load.carried)), None),
        ]
    }));
    table
}

fn percent(share: f64) -> String {
    format!("{} %", significant(100.0 * share))
}

/// Why some figures are less certain, each reason once.
fn caveats(found: &[Soaked]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for caveat in found.iter().filter_map(|(_, load)| load.caveat()) {
        match counted.iter_mut().find(|(known, _)| *known == caveat) {
            Some((_, times)) => *times += 1,
            None => counted.push((caveat, 1)),
        }
    }
    let lines = counted.into_iter().map(|(caveat, times)| {
        let all = found.len();
        format!("<p>In {times} of {all}: {}.</p>\n", escaped(caveat))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_soaker_s_trial_is_shown_beside_what_the_kernel_counted_in_it() {
        let mut records = fixture::cell("plain", 0, &[], &[1e9, 3e9]);
        let readings = [
            ("soaker.load_ratio", 0.3),
            ("soaker.hidden_ratio", 0.1),
            ("soaker.busiest_ratio", 0.5),
            ("soaker.processors_count", 2.0),
            ("machine.user_s", 0.2),
            ("machine.nice_s", 0.8),
        ];
        records.push(fixture::examined(
            "plain",
            0,
            &[],
            IntrusiveMeter::Soaker,
            &readings,
        ));
        let findings = Findings::of(&records).unwrap();
        let loads = loads(findings.cells().next().unwrap());
        let [load] = &loads[..] else {
            panic!("{loads:?}")
        };
        assert_eq!((load.all, load.hidden, load.busiest), (0.3, 0.1, 0.5));
        assert_eq!(load.by_the_kernel, Some(0.2));
        assert_eq!(
            (load.of_all().as_str(), load.caveat()),
            ("both processors", None)
        );
        // Made records under meters carry 1 Gbit/s, and the measured ones 2 on average.
        assert_eq!(load.carried, 0.5);
    }

    #[test]
    fn each_machine_has_its_own_and_a_profile_none() {
        let mut records = fixture::cell("plain", 0, &[], &[1e9]);
        let of = |host: &str| {
            ["load", "hidden", "busiest"]
                .map(|name| (format!("{host}.soaker.{name}_ratio"), 0.25))
                .into_iter()
                .chain([(format!("{host}.soaker.processors_count"), 8.0)])
                .collect::<Vec<_>>()
        };
        let both = [of("left"), of("right")].concat();
        let both: Vec<(&str, f64)> = both.iter().map(|(name, value)| (&**name, *value)).collect();
        records.push(fixture::examined(
            "plain",
            0,
            &[],
            IntrusiveMeter::Profile,
            &both,
        ));
        let machines = |records: &[Record]| {
            let findings = Findings::of(records).unwrap();
            let loads = loads(findings.cells().next().unwrap());
            loads.iter().map(SoakerLoad::of_all).collect::<Vec<_>>()
        };
        assert!(machines(&records).is_empty());
        records.push(fixture::examined(
            "plain",
            0,
            &[],
            IntrusiveMeter::Soaker,
            &both,
        ));
        let wanted = ["left", "right"].map(|host| format!("all 8 processors of {host}'s machine"));
        assert_eq!(machines(&records), wanted);
    }

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
            "Of both processors, endpoints and other programs included.",
            "data-value=\"0.375\">37.5 %",
            "data-value=\"0.125\">12.5 %",
            ">100 % of that without<",
        ] {
            assert!(page.contains(words), "{words} is not in {page}");
        }
        assert!(!page.contains("In 2 of 2"), "{page}");
    }

    #[test]
    fn many_cells_are_drawn_in_several_charts_and_doubts_are_listed_once() {
        let page = page(&soaked(MAX_BARS + 1, 0.05));
        assert_eq!(page.matches("<figure").count(), 2);
        let bars = page.matches("class=\"part k1\" data-value=\"0.125\"");
        assert_eq!(bars.count(), MAX_BARS + 1);
        assert_eq!(page.matches("the soaker ran faster").count(), 1);
        assert!(page.contains(&format!("In {0} of {0}: ", MAX_BARS + 1)));
    }

    #[test]
    fn without_a_soaker_there_is_nothing() {
        assert_eq!(page(&fixture::cell("plain", 0, &[], &[1e9])), "");
    }
}
