//! NAT keepalives (RFC 3948 4): an association that has sent nothing for its keepalive interval sends one byte, so that
//! a NAT on the path keeps its mapping.

use ipsec::database::Snapshot;
use ipsec::sa::SaId;
use ipsec::tunnel::Outer;
use std::collections::HashMap;
use std::net::IpAddr;

/// RFC 3948 2.3: the content of a NAT keepalive.
pub(super) const CONTENT: [u8; 1] = [0xff];

/// When the last keepalive was sent for each association.
#[derive(Default)]
pub(super) struct NatKeepalives(HashMap<SaId, u64>);

impl NatKeepalives {
    /// The outer headers of the keepalives that are due on a host with the addresses `local`; they count as sent.
    pub(super) fn take_due(
        &mut self,
        snapshot: &Snapshot,
        local: &[IpAddr],
        now: u64,
    ) -> Vec<Outer> {
        let mut due = Vec::new();
        for sa in snapshot.sas().filter(|sa| sa.config.keepalive > 0) {
            let config = &sa.config;
            let usage = sa.state.usage();
            let last_sent = self.0.get(&config.id).copied().unwrap_or(0);
            let last = usage.last_used.max(last_sent).max(usage.created);
            if local.contains(&config.source) && now >= last + u64::from(config.keepalive) {
                due.push(Outer::without_inner(config));
                self.0.insert(config.id, now);
            }
        }
        self.0.retain(|id, _| snapshot.find(id).is_some());
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::{Plane, Recorder};
    use ipsec::setkey::{Forwarding, NoNames, compile};

    const LOCAL: [u8; 4] = [192, 0, 2, 1];
    const REMOTE: [u8; 4] = [192, 0, 2, 2];

    fn snapshot(plane: &mut Recorder, text: &str) -> std::sync::Arc<Snapshot> {
        let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames).unwrap();
        plane.apply(&lowered.commands).unwrap();
        plane.snapshot()
    }

    fn add(ends: &str, spi: u32, options: &str) -> String {
        format!(
            "add {ends} esp-udp {spi} -m tunnel {options} -E aes-gcm-16 0x{};",
            "07".repeat(20)
        )
    }

    #[test]
    fn a_keepalive_is_due_after_each_interval_without_a_packet_and_only_where_it_was_asked_for() {
        let (out, back) = ("192.0.2.1 192.0.2.2", "192.0.2.2 192.0.2.1");
        let text = add(out, 300, "-o keepalive=20")
            + &add(out, 301, "")
            + &add(back, 302, "-o keepalive=20");
        let mut plane = Recorder::default();
        let snapshot = snapshot(&mut plane, &text);
        let mut keepalives = NatKeepalives::default();
        let mut due = |now| keepalives.take_due(&snapshot, &[LOCAL.into()], now);
        assert_eq!(due(19).len(), 0);
        let first = due(20);
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].destination, IpAddr::from(REMOTE));
        assert_eq!([due(21).len(), due(39).len(), due(40).len()], [0, 0, 1]);
        let sa = snapshot.sas().find(|sa| sa.config.id.spi.get() == 300);
        let sa = sa.unwrap();
        sa.state.reserve(&sa.config, 1, 1, 50).unwrap();
        assert_eq!([due(60).len(), due(69).len(), due(70).len()], [0, 0, 1]);
    }

    #[test]
    fn a_deleted_association_is_forgotten() {
        let mut plane = Recorder::default();
        let mut keepalives = NatKeepalives::default();
        let text = add("192.0.2.1 192.0.2.2", 300, "-o keepalive=20");
        let with = snapshot(&mut plane, &text);
        assert_eq!(keepalives.take_due(&with, &[LOCAL.into()], 20).len(), 1);
        let without = snapshot(&mut plane, "flush;");
        assert!(
            keepalives
                .take_due(&without, &[LOCAL.into()], 90)
                .is_empty()
        );
        assert!(keepalives.0.is_empty());
    }
}
