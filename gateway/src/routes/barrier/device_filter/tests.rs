use super::*;
use crate::routes::DEFAULT_MARK;
use crate::routes::firewall::tests::kernel::{in_a_namespace, isolated, said};
use crate::routes::plan::Disposition;
use crate::routes::plan::tests::entry;
use ipsec::policy::Upper;
use std::time::Duration;

/// How often devices are added and removed while they are compared.
const ROUNDS: usize = 60;

fn plan() -> Plan {
    let protected =
        |source, destination| entry(source, destination, Upper::Any, Disposition::Protect);
    Plan {
        leaving: vec![protected("10.1.0.0/24", "10.2.0.0/24")],
        arriving: vec![protected("10.2.0.0/24", "10.1.0.0/24")],
        ..Plan::default()
    }
}

#[test]
fn a_device_that_is_removed_during_the_comparison_has_lost_nothing() {
    isolated(|| {
        in_a_namespace(|| {
            let site = Site::new("esp0", None, DEFAULT_MARK).unwrap();
            let mut filters = DeviceFilters::open(&site).unwrap();
            filters.install(&plan()).unwrap();
            let mut seen = 0;
            std::thread::scope(|scope| {
                let others = scope.spawn(|| {
                    let add =
                        (0..4).map(|n| format!("link add one{n} type veth peer name other{n}\n"));
                    let add: String = add.collect();
                    let remove: String = (0..4).map(|n| format!("link del one{n}\n")).collect();
                    for _ in 0..ROUNDS {
                        said(&["ip", "-batch", "-"], &add);
                        // Time for the filters to be added.
                        std::thread::sleep(Duration::from_millis(5));
                        said(&["ip", "-batch", "-"], &remove);
                    }
                });
                while !others.is_finished() {
                    filters.reach_new().unwrap();
                    seen += usize::from(!filters.reached.is_empty());
                    filters.news.compare_again();
                    assert_eq!(filters.missing().unwrap(), Vec::<String>::new());
                }
            });
            assert!(seen > 0, "no device had filters");
            said(
                &[
                    "ip", "link", "add", "stays", "type", "veth", "peer", "name", "other",
                ],
                "",
            );
            filters.reach_new().unwrap();
            said(&["tc", "qdisc", "del", "dev", "stays", "clsact"], "");
            assert_eq!(
                filters.missing().unwrap(),
                ["of stays deleted (qdisc clsact)"]
            );
        });
    });
}

#[test]
fn where_in_and_fwd_policies_differ_the_filters_are_partial() {
    isolated(|| {
        in_a_namespace(|| {
            let site = Site::new("esp0", None, DEFAULT_MARK).unwrap();
            let mut filters = DeviceFilters::open(&site).unwrap();
            let mut plan = plan();
            filters.install(&plan).unwrap();
            let gaps = filters.gaps().unwrap();
            assert!(gaps.contains("only one of `in` and `fwd`"), "{gaps}");
            plan.passing.clone_from(&plan.arriving);
            filters.install(&plan).unwrap();
            assert_eq!(filters.gaps(), None);
        });
    });
}
