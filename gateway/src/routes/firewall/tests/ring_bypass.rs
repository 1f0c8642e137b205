//! The drop rules after packet rings, deleted by another program.

use super::super::ring_bypass::{self, Rings};
use super::kernel::{in_a_namespace, isolated, said};
use super::*;
use crate::routes::installed::Installed;

#[test]
fn what_others_take_away_from_behind_the_rings_is_named_and_put_back() {
    isolated(|| {
        in_a_namespace(|| {
            let site = Site::new("esp0", None, DEFAULT_MARK).unwrap();
            let rings = Rings {
                devices: ["lo".to_owned()].into(),
                addresses: ["192.0.2.1".parse().unwrap()].into(),
            };
            let ruleset = ring_bypass::ruleset(&site, &rings).unwrap();
            let mut installed = Installed::new(site).unwrap();
            assert_eq!(installed.missing().unwrap(), [""; 0]);
            for (taken, words) in [
                ("delete table netdev esplanade", "table deleted"),
                ("flush chain netdev esplanade ring0", "rule"),
            ] {
                // As on kernels before 6.9, where other programs may change the table.
                installed.ring_bypass().apply_unowned(&ruleset).unwrap();
                assert_eq!(installed.missing().unwrap(), [""; 0]);
                said(&["nft", "-f", "-"], taken);
                let missing = installed.missing().unwrap();
                assert!(
                    missing.len() == 1
                        && missing[0].starts_with("packet-ring bypass rules: ")
                        && missing[0].contains(words),
                    "{missing:?}"
                );
                installed.restore().unwrap();
                assert_eq!(installed.missing().unwrap(), [""; 0]);
                let there = said(&["nft", "list", "table", "netdev", "esplanade"], "");
                assert!(
                    there.contains("192.0.2.1") && there.contains("drop"),
                    "{there}"
                );
                installed.ring_bypass().remove().unwrap();
            }
        });
    });
}
