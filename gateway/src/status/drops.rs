//! Dropped packets as a table: each reason with advice.

use super::Drops;
use std::fmt::Write as _;

impl Drops {
    /// For people: reasons with advice, the most frequent first.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        if self.total == 0 && self.clear.values().all(|count| *count == 0) {
            return "nothing was dropped\n".to_owned();
        }
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), name.as_str()));
        for (name, count) in reasons {
            let _ = writeln!(text, "{count:>12}  {name:<20} {}", advice(name));
        }
        for (name, count) in self.clear.iter().filter(|(_, count)| **count > 0) {
            let _ = writeln!(text, "{count:>12}  {name:<20} {}", clear_advice(name));
        }
        for sa in &self.associations {
            let _ = writeln!(text, "{}", sa.name);
            for (name, count) in &sa.reasons {
                let _ = writeln!(text, "{count:>12}  {name}");
            }
        }
        text
    }
}

fn advice(name: &str) -> &'static str {
    match name {
        "policy-in" => {
            return "the packet is for this host, and only a `fwd` policy allows it";
        }
        "policy-fwd" => {
            return "the packet is to be forwarded, and only an `in` policy allows it";
        }
        _ => {}
    }
    ipsec::Dropped::ALL
        .iter()
        .find(|reason| reason.name() == name)
        .map_or("", |reason| reason.advice())
}

fn clear_advice(name: &str) -> &'static str {
    match name {
        "clear_leaving" => "protected traffic would have left unencrypted; is the gateway running?",
        "clear_arriving" => {
            "traffic that must be protected arrived unencrypted; does the peer protect it?"
        }
        "clear_at_devices" => {
            "protected traffic would have left or arrived unencrypted, and was dropped by a device filter"
        }
        "clear_passing" => {
            "traffic to be forwarded must be protected but arrived unencrypted; does the peer protect it?"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_listed_by_frequency_with_advice() {
        let drops = Drops {
            total: 12,
            reasons: [("replayed".to_owned(), 2), ("bad-icv".to_owned(), 10)].into(),
            clear: [("clear_arriving".to_owned(), 1)].into(),
            ..Drops::default()
        };
        let table = drops.table();
        let lines: Vec<_> = table.lines().collect();
        assert!(
            lines[0].contains("bad-icv") && lines[0].contains("keys"),
            "{table}"
        );
        assert!(lines[1].contains("replayed"), "{table}");
        assert!(lines[2].contains("peer"), "{table}");
        assert_eq!(Drops::default().table(), "nothing was dropped\n");
    }
}
