//! Packets that the gateway itself sends beside the traffic: NAT keepalives and dummy packets.

use super::Host;
use crate::run::nat_keepalives;
use dataplane::dummy;
use ipsec::database::Snapshot;
use ipsec::sa::Sa;
use ipsec::tunnel::Outer;

impl Host {
    /// Sends the NAT keepalives that are due.
    pub(in crate::run) fn send_nat_keepalives(&mut self, snapshot: &Snapshot, now: u64) {
        for outer in self.nat_keepalives.take_due(snapshot, &self.local, now) {
            self.sockets
                .send_out_of_band(&outer, &nat_keepalives::CONTENT);
        }
    }

    /// RFC 4303 2.6: an association that has sent nothing for its dummy interval sends a dummy packet.
    pub(in crate::run) fn send_dummies(&mut self, snapshot: &Snapshot, now: u64) {
        for sa in snapshot.sas().filter(|sa| sa.config.dummy > 0) {
            let config = &sa.config;
            let tally = sa.state.usage();
            let last = tally.last_used.max(tally.created);
            if !self.local.contains(&config.source) || now < last + u64::from(config.dummy) {
                continue;
            }
            self.send_dummy(sa, now);
        }
    }

    /// Sends one dummy packet. An association past its hard limit sends none.
    pub(in crate::run) fn send_dummy(&mut self, sa: &Sa, now: u64) {
        if let Ok(packet) = dummy::seal(sa, &mut self.random, now) {
            let outer = Outer::without_inner(&sa.config);
            self.sockets.send_out_of_band(&outer, &packet);
        }
    }
}
