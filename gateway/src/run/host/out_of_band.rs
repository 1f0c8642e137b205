//! Packets that the gateway itself sends beside the traffic: NAT keepalives and dummy packets.

use super::Host;
use crate::run::nat_keepalives;
use dataplane::dummy;
use ipsec::sa::{Sa, SaUsage};
use ipsec::tunnel::Outer;
use std::sync::Arc;

impl Host {
    /// Sends what is due of associations that are silent ([`is_silent`]): NAT keepalives (RFC 3948 4), and dummy
    /// packets (RFC 4303 2.6).
    pub(in crate::run) fn send_beside_traffic(&mut self, silent: &[Arc<Sa>], now: u64) {
        for sa in silent {
            if !self.local.contains(&sa.config.source) {
                continue;
            }
            let usage = sa.state.usage();
            if nat_keepalives::is_due(sa, &usage, now) {
                sa.state.note_keepalive(now);
                let outer = Outer::without_inner(&sa.config);
                self.sockets
                    .send_out_of_band(&outer, &nat_keepalives::CONTENT);
            }
            if is_dummy_due(sa, &usage, now) {
                self.send_dummy(sa, now);
            }
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

/// Whether an association has sent nothing for so long that a NAT keepalive or a dummy packet is due.
pub(in crate::run) fn is_silent(sa: &Sa, usage: &SaUsage, now: u64) -> bool {
    nat_keepalives::is_due(sa, usage, now) || is_dummy_due(sa, usage, now)
}

fn is_dummy_due(sa: &Sa, usage: &SaUsage, now: u64) -> bool {
    let interval = u64::from(sa.config.dummy);
    interval > 0 && now >= usage.last_used.max(usage.created) + interval
}
