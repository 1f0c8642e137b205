//! The results of a capture's packets, as a report.

use super::operation::Operation;
use ipsec::Dropped;
use std::collections::BTreeMap;
use std::fmt::Write;

/// How many packet numbers are listed for each reason.
const MAX_LISTED_PACKETS: usize = 8;

/// The result for every packet.
#[derive(Default)]
pub(super) struct Report {
    carried: u64,
    passed_by: u64,
    drops: BTreeMap<Dropped, (u64, Vec<u64>)>,
}

impl Report {
    /// Packets that were processed.
    pub(super) fn carry(&mut self, packets: u64) {
        self.carried += packets;
    }

    /// A packet that no association or policy applies to.
    pub(super) fn pass_by(&mut self, _number: u64) {
        self.passed_by += 1;
    }

    /// A packet that was dropped.
    pub(super) fn drop(&mut self, number: u64, reason: Dropped, packets: u64) {
        let (count, numbers) = self.drops.entry(reason).or_default();
        *count += packets;
        if numbers.len() < MAX_LISTED_PACKETS {
            numbers.push(number);
        }
    }

    /// A fragment of a packet that stayed incomplete.
    pub(super) fn note_fragment(&mut self, number: u64) {
        self.drop(number, Dropped::Fragment, 1);
    }

    /// All packets dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.drops.values().map(|(count, _)| count).sum()
    }

    /// Dropped packets without dummy packets (RFC 4303 2.6), which are always discarded.
    pub(super) fn lost(&self) -> u64 {
        let dummies = self.drops.get(&Dropped::Dummy);
        self.dropped() - dummies.map_or(0, |(count, _)| *count)
    }

    /// All packets that an association or policy selected.
    pub(super) fn named(&self) -> u64 {
        self.carried + self.dropped()
    }

    /// Whether all selected packets were processed.
    pub(super) fn is_complete(&self) -> bool {
        self.lost() == 0
    }

    /// The report as it is printed.
    pub(super) fn text(&self, operation: Operation) -> String {
        let done = match operation {
            Operation::Open => "opened",
            Operation::Seal => "sealed",
        };
        let mut text = format!(
            "{done} {}, dropped {}, ignored {}",
            self.carried,
            self.dropped(),
            self.passed_by
        );
        if self.named() == 0 {
            text.push_str(
                "\n  no packet of this capture matches: compare addresses, SPIs and selectors",
            );
        }
        for (reason, (count, numbers)) in &self.drops {
            let list: Vec<_> = numbers.iter().map(u64::to_string).collect();
            let more = if *count > numbers.len() as u64 {
                ", …"
            } else {
                ""
            };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n  {:<20} {count:>6}  packet {}{more}: {}",
                reason.name(),
                list.join(", "),
                reason.advice()
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_each_reason_with_its_packets_and_what_to_look_at() {
        let mut report = Report::default();
        report.carry(3);
        report.pass_by(1);
        report.drop(3, Dropped::Dummy, 1);
        assert!(report.is_complete());
        report.drop(4, Dropped::BadIcv, 1);
        report.drop(9, Dropped::BadIcv, 1);
        assert!(!report.is_complete());
        let counts = (report.named(), report.dropped(), report.lost());
        assert_eq!(counts, (6, 3, 2));
        let text = report.text(Operation::Open);
        assert!(
            text.starts_with("opened 3, dropped 3, ignored 1\n"),
            "{text}"
        );
        assert!(
            text.contains("packet 4, 9: the keys or algorithms differ"),
            "{text}"
        );
    }
}
