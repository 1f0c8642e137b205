//! The drop rules after packet rings, deleted by another program.

use super::super::ring_bypass::{self, Rings};
use super::super::tables::Firewall;
use super::kernel::{in_a_namespace, isolated, said};
use super::*;
use crate::routes::installed::Installed;
use crate::routes::nftables::TableFamily;

fn site() -> Site {
    Site::new("esp0", None, DEFAULT_MARK).unwrap()
}

fn rings() -> Rings {
    Rings {
        devices: ["lo".to_owned()].into(),
        addresses: ["192.0.2.1".parse().unwrap()].into(),
    }
}

#[test]
fn rules_that_cannot_be_removed_are_told_and_removed_later() {
    isolated(|| {
        in_a_namespace(|| {
            let ruleset = ring_bypass::ruleset(&site(), &rings()).unwrap();
            let mut installed = Installed::new(site()).unwrap();
            installed.install_ring_bypass(&rings()).unwrap();
            // From here on another netlink socket owns the nftables table.
            installed.ring_bypass().remove().unwrap();
            installed.ring_bypass().apply_unowned(&ruleset).unwrap();
            said(&["nft", "delete", "table", "netdev", "esplanade"], "");
            let mut other = Firewall::new(TableFamily::Netdev, site().firewall_table());
            other.apply(&ruleset).unwrap();
            for _ in 0..2 {
                installed
                    .install_ring_bypass(&Rings::default())
                    .unwrap_err();
            }
            other.remove().unwrap();
            installed.install_ring_bypass(&Rings::default()).unwrap();
            assert_eq!(installed.missing().unwrap(), [""; 0]);
        });
    });
}

#[test]
fn what_others_take_away_from_behind_the_rings_is_named_and_put_back() {
    isolated(|| {
        in_a_namespace(|| {
            let ruleset = ring_bypass::ruleset(&site(), &rings()).unwrap();
            let mut installed = Installed::new(site()).unwrap();
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
