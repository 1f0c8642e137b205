use super::*;
use crate::routes::firewall::tests::generated::{addresses, entries, fits};
use crate::routes::plan::Disposition;
use crate::routes::plan::tests::entry;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_first_case_that_fits_has_the_verdict_of_the_first_entry_that_fits(
        entries in entries(),
        packets in proptest::collection::vec((addresses(), addresses()), 60),
    ) {
        let cases = cases(&entries);
        for (source, destination) in packets {
            if source.is_ipv4() != destination.is_ipv4() {
                continue;
            }
            let first = entries.iter().find(|entry| {
                entry.selector.source.contains(source) && entry.selector.destination.contains(destination)
            });
            let case = cases.iter().find(|case| {
                case.conditions.iter().any(|rule| fits(rule, source, destination))
            });
            prop_assert_eq!(
                first.map(|entry| (entry.verdict, entry.device.is_some())),
                case.map(|case| (case.entry.verdict, case.entry.device.is_some()))
            );
        }
    }
}

fn peers(count: u8) -> Vec<Entry> {
    let one = |n| {
        let destination = format!("10.{n}.0.0/16");
        entry(
            "10.255.0.0/24",
            &destination,
            Upper::Any,
            Disposition::Protect,
        )
    };
    (0..count).map(|n| one(2 * n)).collect()
}

#[test]
fn peers_of_one_network_are_one_rule_and_few_are_compared_one_by_one() {
    let rules = |entries: &[Entry]| {
        let cases = cases(entries);
        cases
            .iter()
            .map(|case| case.conditions.len())
            .collect::<Vec<_>>()
    };
    assert_eq!(rules(&peers(7)), [1; 7]);
    assert_eq!(rules(&peers(100)), [1]);
    let mut back = peers(100);
    for entry in &mut back {
        let selector = &mut entry.selector;
        (selector.source, selector.destination) = (selector.destination, selector.source);
    }
    assert_eq!(rules(&back), [1]);
    // What is between them keeps its place.
    let web = Upper::Protocol {
        number: 6,
        source_port: None,
        destination_port: Some(443),
    };
    let bypass = entry("10.255.0.0/24", "10.0.0.0/8", web, Disposition::Bypass);
    let apart = [peers(50), vec![bypass.clone()], peers(50)].concat();
    assert_eq!(rules(&apart), [1; 3]);
    assert_eq!(cases(&apart)[1].entry, &bypass);
}
