//! Whether both ends have the same associations and nothing else.

use crate::world::{Host, World};
use ikev2::endpoint::{PeerReport, PeerState};
use std::{collections::BTreeSet, time::Duration};

impl World {
    /// Lets everything come to rest on a path without loss, and checks that nothing is left over.
    pub fn come_to_rest(&mut self) {
        self.path = crate::network::Path::GOOD;
        self.hostile = None;
        self.stop_frames();
        self.run_for(Duration::from_secs(150));
    }

    /// Both ends are up, with the same IKE SA and the same pairs: these many.
    pub fn assert_agreement(&self, pairs: usize) {
        let [a, b] = [0, 1].map(|host| self.report(host));
        assert_eq!(a.state, PeerState::Up, "{:#?}", self.hosts[0].events);
        assert_eq!(b.state, PeerState::Up, "{:#?}", self.hosts[1].events);
        assert_eq!((a.ike.len(), b.ike.len()), (1, 1), "{a:#?} {b:#?}");
        assert_eq!(a.ike[0].spis, b.ike[0].spis);
        assert_ne!(a.ike[0].is_initiator, b.ike[0].is_initiator);
        let children = |report: &PeerReport, is_mirrored: bool| -> BTreeSet<(u32, u32)> {
            let spis = report.ike[0].children.iter().map(|child| child.spis);
            spis.map(|(one, other)| {
                if is_mirrored {
                    (other, one)
                } else {
                    (one, other)
                }
            })
            .collect()
        };
        assert_eq!(children(&a, false), children(&b, true));
        assert_eq!(children(&a, false).len(), pairs, "{a:#?}");
        for (host, report) in self.hosts.iter().zip([&a, &b]) {
            assert_nothing_left(host, report);
        }
        self.assert_same_keys();
    }

    /// What one sends by, the other receives by, with the same keys.
    fn assert_same_keys(&self) {
        for (host, other) in [(0, 1), (1, 0)] {
            for pair in self.hosts[host].plane.pairs.values() {
                let mut pairs = self.hosts[other].plane.pairs.values();
                let same = pairs.find(|one| one.sa.inbound_spi == pair.sa.outbound_spi);
                let same = same.expect("the other end has the pair");
                assert!(same.sa.inbound == pair.sa.outbound);
                assert_eq!(same.sa.local_traffic, pair.sa.remote_traffic);
                let extended = pair.sa.extended_sequence_numbers;
                assert_eq!(same.sa.extended_sequence_numbers, extended);
            }
        }
    }

    pub fn report(&self, host: usize) -> PeerReport {
        let mut reports = self.hosts[host].endpoint.report(self.now);
        reports.pop().expect("a connection")
    }

    /// No frame was lost, duplicated or refused.
    pub fn assert_no_frame_lost(&self) {
        let [a, b] = [0, 1].map(|host| self.hosts[host].plane.counts);
        for (sent, received) in [(a, b), (b, a)] {
            assert!(sent.sent > 0);
            assert_eq!(sent.sent, received.received + received.lost, "{a:?} {b:?}");
            let bad = (sent.refused, received.lost, received.duplicated);
            assert_eq!(bad, (0, 0, 0), "{a:?} {b:?}");
        }
    }
}

/// The data plane has the pairs of the report, one of them carries traffic, and the secrets of one IKE SA are kept.
fn assert_nothing_left(host: &Host, report: &PeerReport) {
    let children = report.ike.iter().flat_map(|ike| &ike.children);
    let reported: BTreeSet<_> = children.map(|child| child.id).collect();
    let installed: BTreeSet<_> = host.plane.pairs.keys().copied().collect();
    assert_eq!(installed, reported);
    if !installed.is_empty() {
        let outbound = host.plane.outbound.expect("one carries traffic");
        assert!(installed.contains(&outbound));
    }
    assert_eq!(host.secrets.held(), (0, report.ike.len()));
}
