//! Any bytes as "too big" messages about the paths to three peers, to each of which a hundred packets were sent.

use super::validated_mtu;
use crate::plane::{Plane, Recorder};
use dataplane::io::PmtuCache;
use ipsec::database::Snapshot;
use ipsec::sa::Protocol;
use ipsec::setkey::{Forwarding, NoNames, compile};
use std::sync::{Arc, OnceLock};

/// Reads `data` as a claim of an MTU in four bytes and the quote behind it.
///
/// # Panics
/// If a message is accepted that quotes no recent packet, or that reports more than the path's MTU or less than the
/// minimum of every path.
pub fn messages(data: &[u8]) {
    const PRESENT: u32 = 1400;
    let Some((claim, quote)) = data.split_first_chunk() else {
        return;
    };
    let claim = u32::from_ne_bytes(*claim);
    let (snapshot, paths) = (after_a_hundred_packets(), PmtuCache::default());
    for sa in snapshot.sas() {
        let peer = sa.config.id.destination;
        paths.learn(peer, PRESENT);
        let Some(mtu) = validated_mtu(snapshot, &paths, peer, claim, quote) else {
            continue;
        };
        let least = if peer.is_ipv4() { 576 } else { 1280 };
        assert!((least..PRESENT).contains(&mtu), "{peer}: {mtu}");
        let quoted = match sa.config.id.protocol {
            Protocol::Esp => quote,
            Protocol::Ah => &quote[4..],
            Protocol::IpComp => unreachable!("it is never the outermost"),
        };
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| quoted[at + byte]));
        assert_eq!(word(0), sa.config.id.spi.get());
        assert!((1..=100).contains(&word(4)), "{peer}: number {}", word(4));
    }
}

/// Databases for [`messages`], as they are after the gateway has sent.
fn after_a_hundred_packets() -> &'static Snapshot {
    const SAS: &str = "
        add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 4 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
        add 192.0.2.1 192.0.2.3 ah 0x1002 -m tunnel -r 4 -A hmac-sha2-256 \"0123456789abcdef0123456789abcdef\";
        add 2001:db8::1 2001:db8::2 esp 0x1003 -m tunnel -r 4 -E aes-gcm-16 0x100102030405060708090a0b0c0d0e0f10111213;";
    static DATABASES: OnceLock<Arc<Snapshot>> = OnceLock::new();
    DATABASES.get_or_init(|| {
        let lowered = compile(SAS.as_bytes(), Forwarding::WithIn, &mut NoNames);
        let commands = lowered.map(|lowered| lowered.commands).unwrap_or_default();
        let mut plane = Recorder::default();
        plane.apply(&commands).expect("a plane in memory applies");
        let snapshot = plane.snapshot();
        assert_eq!(snapshot.sas().count(), 3);
        for sa in snapshot.sas() {
            let sent = sa.state.reserve(&sa.config, 100, 1400, 1);
            assert!(sent.is_ok());
        }
        snapshot
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;

    #[test]
    fn an_icmp_error_that_quotes_no_recent_packet_changes_no_path() {
        replay("icmp_complaints", messages);
    }
}
