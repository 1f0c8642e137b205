//! NAT keepalives (RFC 3948 4): an association that has sent nothing for its keepalive interval sends one byte, so that
//! a NAT on the path keeps its mapping.

use ipsec::sa::{Sa, SaUsage};

/// RFC 3948 2.3: the content of a NAT keepalive.
pub(super) const CONTENT: [u8; 1] = [0xff];

/// Whether the keepalive of an association is due.
pub(super) fn is_due(sa: &Sa, usage: &SaUsage, now: u64) -> bool {
    let interval = u64::from(sa.config.keepalive);
    let last = usage
        .last_used
        .max(usage.created)
        .max(sa.state.kept_alive_at());
    interval > 0 && now >= last + interval
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::{Plane, Recorder};
    use ipsec::database::Snapshot;
    use ipsec::setkey::{Forwarding, NoNames, compile};
    use std::net::IpAddr;

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
    fn sent(snapshot: &Snapshot, now: u64) -> Vec<IpAddr> {
        let due = snapshot
            .sas()
            .filter(|sa| is_due(sa, &sa.state.usage(), now));
        let note = |sa: &std::sync::Arc<Sa>| {
            sa.state.note_keepalive(now);
            sa.config.id.destination
        };
        due.map(note).collect()
    }

    #[test]
    fn a_keepalive_is_due_after_each_interval_without_a_packet_and_only_where_it_was_asked_for() {
        let out = "192.0.2.1 192.0.2.2";
        let text = add(out, 300, "-o keepalive=20") + &add(out, 301, "");
        let mut plane = Recorder::default();
        let snapshot = snapshot(&mut plane, &text);
        let due = |now| sent(&snapshot, now);
        assert_eq!(due(19).len(), 0);
        assert_eq!(due(20), [IpAddr::from(REMOTE)]);
        assert_eq!([due(21).len(), due(39).len(), due(40).len()], [0, 0, 1]);
        let sa = snapshot.sas().find(|sa| sa.config.id.spi.get() == 300);
        let sa = sa.unwrap();
        sa.state.reserve(&sa.config, 1, 1, 50).unwrap();
        assert_eq!([due(60).len(), due(69).len(), due(70).len()], [0, 0, 1]);
    }

    #[test]
    fn a_shorter_interval_counts_from_the_last_keepalive() {
        let out = "192.0.2.1 192.0.2.2";
        let mut plane = Recorder::default();
        let long = snapshot(&mut plane, &add(out, 300, "-o keepalive=600"));
        assert_eq!(sent(&long, 600).len(), 1);
        let update = add(out, 300, "-o keepalive=20").replacen("add", "update", 1);
        let short = snapshot(&mut plane, &update);
        assert_eq!([sent(&short, 619).len(), sent(&short, 620).len()], [0, 1]);
    }
}
