//! Packets that the gateway itself sends beside the traffic: NAT keepalives and dummy packets.

use super::Host;
use crate::run::nat_keepalives;
use dataplane::dummy;
use ipsec::database::Snapshot;
use ipsec::sa::Sa;
use ipsec::tunnel::Outer;

impl Host {
    /// Sends what is due: NAT keepalives (RFC 3948 4), and dummy packets (RFC 4303 2.6) by associations that have sent
    /// nothing for their dummy interval.
    pub(in crate::run) fn send_beside_traffic(&mut self, snapshot: &Snapshot, now: u64) {
        for sa in snapshot.sas() {
            if sa.config.keepalive > 0 && self.nat_keepalives.take_due(sa, &self.local, now) {
                let outer = Outer::without_inner(&sa.config);
                self.sockets
                    .send_out_of_band(&outer, &nat_keepalives::CONTENT);
            }
            if sa.config.dummy > 0 && self.is_dummy_due(sa, now) {
                self.send_dummy(sa, now);
            }
        }
        self.nat_keepalives.forget_until(now);
    }

    fn is_dummy_due(&self, sa: &Sa, now: u64) -> bool {
        let (config, usage) = (&sa.config, sa.state.usage());
        let last = usage.last_used.max(usage.created);
        self.local.contains(&config.source) && now >= last + u64::from(config.dummy)
    }

    /// Sends one dummy packet. An association past its hard limit sends none.
    pub(in crate::run) fn send_dummy(&mut self, sa: &Sa, now: u64) {
        if let Ok(packet) = dummy::seal(sa, &mut self.random, now) {
            let outer = Outer::without_inner(&sa.config);
            self.sockets.send_out_of_band(&outer, &packet);
        }
    }
}
