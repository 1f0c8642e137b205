//! NAT keepalives (RFC 3948 4): an association that has sent nothing for its keepalive interval sends one byte, so that
//! a NAT on the path keeps its mapping.

use ipsec::sa::{Sa, SaId};
use std::collections::HashMap;
use std::net::IpAddr;

/// RFC 3948 2.3: the content of a NAT keepalive.
pub(super) const CONTENT: [u8; 1] = [0xff];

/// When the next keepalive is due for each association for which one was sent, if nothing else is sent until then.
#[derive(Default)]
pub(super) struct NatKeepalives(HashMap<SaId, u64>);

impl NatKeepalives {
    /// Whether the keepalive of this association is due, on a host with the addresses `local`; it counts as sent.
    pub(super) fn take_due(&mut self, sa: &Sa, local: &[IpAddr], now: u64) -> bool {
        let (config, usage) = (&sa.config, sa.state.usage());
        let interval = u64::from(config.keepalive);
        let is_idle = now >= usage.last_used.max(usage.created) + interval;
        if interval == 0 || !is_idle || !local.contains(&config.source) {
            return false;
        }
        let next = now + interval;
        // One that lies further ahead was set by an interval that has been shortened since.
        let waits = |at: &u64| now < *at && *at <= next;
        let is_due = !self.0.get(&config.id).is_some_and(waits);
        if is_due {
            self.0.insert(config.id, next);
        }
        is_due
    }

    /// What is due again, or belongs to an association that has gone, needs no entry.
    pub(super) fn forget_until(&mut self, now: u64) {
        self.0.retain(|_, at| now < *at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::{Plane, Recorder};
    use ipsec::database::Snapshot;
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

    /// The destinations of those that are sent.
    fn sent(keepalives: &mut NatKeepalives, snapshot: &Snapshot, now: u64) -> Vec<IpAddr> {
        let due = |sa: &&std::sync::Arc<Sa>| keepalives.take_due(sa, &[LOCAL.into()], now);
        let due = snapshot.sas().filter(due);
        let sent = due.map(|sa| sa.config.id.destination).collect();
        keepalives.forget_until(now);
        sent
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
        let mut due = |now| sent(&mut keepalives, &snapshot, now);
        assert_eq!(due(19).len(), 0);
        assert_eq!(due(20), [IpAddr::from(REMOTE)]);
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
        assert_eq!(sent(&mut keepalives, &with, 20).len(), 1);
        let without = snapshot(&mut plane, "flush;");
        assert!(sent(&mut keepalives, &without, 90).is_empty());
        assert!(keepalives.0.is_empty());
    }
}
