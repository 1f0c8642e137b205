//! Path MTUs that ICMP reports, accepted only if the message quotes a packet that was sent recently.

use arc_swap::ArcSwap;
use dataplane::io::{MtuReportCheck, PmtuCache};
use ipsec::database::Snapshot;
use ipsec::pmtu::TooBigMessage;
use ipsec::sa::SequenceNumber;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

#[cfg(any(test, fuzzing))]
pub mod fuzz_body;

/// The databases, once the data plane runs; before that nothing has been sent.
pub(super) type Databases = Arc<OnceLock<Arc<ArcSwap<Snapshot>>>>;

/// The check that the sockets apply to reported MTUs.
pub(super) fn judge(databases: &Databases, paths: &PmtuCache) -> MtuReportCheck {
    let (databases, paths) = (Arc::clone(databases), paths.clone());
    Arc::new(move |peer, claim, quote| {
        let snapshot = databases.get()?.load();
        validated_mtu(&snapshot, &paths, peer, claim, quote)
    })
}

/// RFC 4301 8.2.2, RFC 5927 7: the message must quote the SPI and a recent sequence number of an association to this
/// peer.
fn validated_mtu(
    snapshot: &Snapshot,
    paths: &PmtuCache,
    peer: IpAddr,
    claim: u32,
    quote: &[u8],
) -> Option<u32> {
    let present = paths.mtu(peer).map_or(usize::MAX, |mtu| mtu as usize);
    let to_peer = snapshot.sas().filter(|sa| sa.config.id.destination == peer);
    let mut mtus = to_peer.filter_map(|sa| {
        let highest = SequenceNumber(sa.state.usage().sequence);
        TooBigMessage::from_error_queue(&sa.config, claim, quote)?
            .accepted_mtu(&sa.config, highest, present)
    });
    mtus.next().map(|mtu| mtu as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::{Plane, Recorder};
    use ipsec::setkey::{Forwarding, NoNames, compile};

    const SA: &str = "add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 4 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;";

    /// After 100 packets on SPI 0x1001.
    fn validated(claim: u32, spi: u32, sequence: u32) -> Option<u32> {
        let mut plane = Recorder::default();
        let lowered = compile(SA.as_bytes(), Forwarding::WithIn, &mut NoNames).unwrap();
        plane.apply(&lowered.commands).unwrap();
        let snapshot = plane.snapshot();
        let sa = snapshot.sas().next().unwrap();
        sa.state.reserve(&sa.config, 100, 1400, 1).unwrap();
        let quote = [spi.to_be_bytes(), sequence.to_be_bytes()].concat();
        let peer = sa.config.id.destination;
        validated_mtu(&snapshot, &PmtuCache::default(), peer, claim, &quote)
    }

    #[test]
    fn only_an_icmp_error_that_quotes_a_recent_packet_counts() {
        assert_eq!(validated(1300, 0x1001, 99), Some(1300));
        for (spi, sequence) in [(0x1001, 101), (0x1001, 0xffff_0000), (0x1002, 99), (0, 0)] {
            assert_eq!(validated(1300, spi, sequence), None, "{spi:#x} {sequence}");
        }
        // No path MTU is set below what every IPv4 host accepts.
        assert_eq!(validated(68, 0x1001, 99), Some(576));
    }
}
