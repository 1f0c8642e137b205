//! Spreading the flows of one policy over several associations: the data plane's half of RFC 9611.
//!
//! ```text
//!   flow ──► keyed hash ──┬─► number for association A ─┐
//!                         ├─► number for association B ─┼─► the highest wins
//!                         └─► number for association C ─┘
//! ```
//!
//! All packets of a flow use one association, so they stay in order. When an association is added or removed, only the
//! flows that it wins or loses move (rendezvous hashing), and they move once.

use super::SaIndex;
use crate::packet::{FragmentKind, Outline};
use crate::sa::{Sa, Spi};
use crate::wire::ip::number;
use std::hash::Hasher;
#[allow(
    deprecated,
    reason = "the only hash of the standard library that takes a key"
)]
use std::hash::SipHasher;
use std::net::IpAddr;

/// Hashes flows with a secret key, so that a sender cannot choose the association or put many flows on one.
#[derive(Clone, Copy, Default)]
pub(super) struct Spreader {
    key: [u64; 2],
}

impl Spreader {
    /// With a key of fresh random bits.
    pub fn new(random: &mut dyn FnMut() -> u64) -> Self {
        Self {
            key: [random(), random()],
        }
    }

    /// Which of `alternatives` a packet takes; one that has died is passed over. They are not empty.
    ///
    /// INVARIANT: the caller has locked none of them: whether one is alive is read under the same lock.
    pub fn choose<'a, 's>(
        &self,
        alternatives: &'a [SaIndex],
        packet: &Outline,
        sa: impl Fn(SaIndex) -> &'s Sa,
    ) -> &'a [SaIndex] {
        let flow = self.flow(packet);
        let number = |place: &usize| weight(flow, sa(alternatives[*place]).config.id.spi);
        let lives = |place: &usize| sa(alternatives[*place]).is_alive();
        let all = 0..alternatives.len();
        // Nearly always it is alive, and the others need not be checked.
        let best = all.clone().max_by_key(number).filter(lives);
        let place = best.or_else(|| all.filter(lives).max_by_key(number));
        // Where all are dead, the first one reports it.
        std::slice::from_ref(&alternatives[place.unwrap_or(0)])
    }

    /// What all packets of a flow have in common: addresses, protocol and ports. Fragments show no ports, so those of
    /// one packet stay together without. IPv6's flow label is the sender's to choose and is not looked at.
    #[allow(deprecated, reason = "see the import")]
    fn flow(&self, packet: &Outline) -> u64 {
        let mut bytes = [0; 38];
        bytes[..16].copy_from_slice(&octets(packet.source));
        bytes[16..32].copy_from_slice(&octets(packet.destination));
        bytes[32] = packet.protocol;
        if let Some((source, destination)) = ports(packet) {
            bytes[33] = 1;
            bytes[34..36].copy_from_slice(&source.to_be_bytes());
            bytes[36..].copy_from_slice(&destination.to_be_bytes());
        }
        let mut hasher = SipHasher::new_with_keys(self.key[0], self.key[1]);
        hasher.write(&bytes);
        hasher.finish()
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Real ports only: type and code of ICMP do not distinguish flows.
fn ports(packet: &Outline) -> Option<(u16, u16)> {
    let is_icmp = matches!(packet.protocol, number::ICMP | number::ICMPV6);
    packet
        .ports
        .filter(|_| !is_icmp && packet.fragment == FragmentKind::Whole)
}

/// A flow's number for an association: every bit of both counts (the finisher of SplitMix64).
fn weight(flow: u64, spi: Spi) -> u64 {
    let mut mixed = flow ^ u64::from(spi.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
