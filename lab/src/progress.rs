//! How an experiment looks while it runs: a bar with the time left on a terminal, one plain line per trial elsewhere.

use std::collections::BTreeSet;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::experiment::Watcher;
use crate::plan::{Plan, Planned};
use crate::record::{Outcome, Record};

/// Tells the user, on standard error.
#[derive(Default)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// Absences that were reported; each is reported once.
    absent: BTreeSet<String>,
}

impl Progress {
    /// Says a line without tearing the bar.
    fn print_line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Watcher for Progress {
    fn planned(&mut self, plan: &Plan, estimate: Duration) {
        let (trials, seed) = (plan.trials.len(), plan.seed);
        eprintln!("{trials} trials, about {}, seed {seed}", length(estimate));
        if stderr().is_terminal() {
            let bar = ProgressBar::new(trials as u64);
            let style =
                ProgressStyle::with_template("[{bar:24}] {pos}/{len}, {eta} left  {wide_msg}");
            bar.set_style(
                style
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("=> "),
            );
            self.bar = Some(bar);
        }
    }

    fn begins(&mut self, _trial: &Planned, label: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(label.to_owned());
            bar.tick();
        }
    }

    fn ended(&mut self, record: &Record) {
        let line = line(record);
        let absent = matches!(record.outcome, Outcome::Absent { .. });
        if !absent || self.absent.insert(line.clone()) {
            self.print_line(&line);
        }
        if let Some(bar) = &self.bar
            && record.trial > 0
        {
            bar.set_position(record.trial as u64);
            if record.trial == record.trials {
                bar.finish_and_clear();
            }
        }
    }

    fn trouble(&mut self, what: &str) {
        self.print_line(&format!("warning: {what}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A duration for readers: `45 s`, `12 min`, `1 h 40 min`.
pub(crate) fn length(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds @ 100..5970 => format!("{} min", (seconds + 30) / 60),
        seconds => format!(
            "{} h {} min",
            (seconds + 30) / 3600,
            (seconds + 30) % 3600 / 60
        ),
    }
}

fn line(record: &Record) -> String {
    let said = match &record.outcome {
        Outcome::Measured { carried, .. } => format!("{:.0} Mbit/s", carried.goodput_bps / 1e6),
        Outcome::Examined { by, carried, .. } => {
            let mbit = carried.goodput_bps / 1e6;
            format!("{}, {mbit:.0} Mbit/s", by.label())
        }
        Outcome::Absent { why, remedy } => format!("absent: {why}. Fix: {remedy}"),
        Outcome::Failed { stage, why, .. } => format!("failed at {stage}: {why}"),
        Outcome::Interrupted { stage } => format!("interrupted at {stage}"),
    };
    let mut line = match record.trial {
        0 => format!("{}: {said}", record.label),
        number => format!("{number:>3}/{} {}: {said}", record.trials, record.label),
    };
    for note in &record.notes {
        line += &format!("\n        note: {note}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_in_minutes_and_seconds() {
        let shown = |seconds| length(Duration::from_secs(seconds));
        assert_eq!(
            [45, 130, 3000, 6000].map(shown),
            ["45 s", "2 min", "50 min", "1 h 40 min"]
        );
    }
}
