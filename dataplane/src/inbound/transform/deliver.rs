//! What becomes of a packet inside once no layer is left: policy, then ready to be delivered.

use super::decapsulate::Decapsulator;
use crate::inbound::inner;
use crate::inbound::packet::{Inner, InnerSpan};
use crate::inbound::policy::{self, PolicyCheck};
use crate::train::TrainKinds;
use ipsec::Dropped;
use ipsec::database::SaIndex;
use ipsec::nat;
use ipsec::packet::Outline;
use ipsec::sa::Sa;

/// Processes the packets inside of one chunk.
pub(super) struct InnerProcessor<'a> {
    pub packets: Decapsulator<'a>,
    pub train_kinds: TrainKinds,
    pub forwards: bool,
    pub policy: PolicyCheck,
}

impl InnerProcessor<'_> {
    /// RFC 4301 5.2, for a packet that came through a single SA.
    pub fn deliver(
        &mut self,
        span: InnerSpan,
        outline: &Outline,
        sa: SaIndex,
        inner_mtu: usize,
    ) -> Result<Inner, Dropped> {
        let packet = self.packets.bytes_at(span);
        let snapshot = self.packets.snapshot;
        let interface = self
            .policy
            .check(snapshot, self.forwards, packet, outline, sa)?;
        Ok(self.finish(span, outline, (sa, interface), inner_mtu))
    }

    /// RFC 4301 5.2, for a packet that came through the SAs of `path`, outermost first.
    pub fn deliver_nested(
        &mut self,
        span: InnerSpan,
        outline: &Outline,
        path: &[SaIndex],
        innermost: SaIndex,
        inner_mtu: usize,
    ) -> Result<Inner, Dropped> {
        let snapshot = self.packets.snapshot;
        let interface = policy::check(snapshot, self.forwards, outline, path)?;
        // A payload that was compressed inside ESP in UDP; nothing else is rebuilt with several SAs.
        let is_behind_nat = |sa: &SaIndex| *sa != innermost && is_behind_nat(snapshot.sa(*sa));
        if span.rebuilt && !span.in_tunnel && path.iter().any(is_behind_nat) {
            nat::renew_checksum(self.packets.bytes_at_mut(span), outline);
        }
        Ok(self.finish(span, outline, (innermost, interface), inner_mtu))
    }

    /// A packet that policy allows to go through the device `interface`, ready to be delivered.
    pub fn finish(
        &mut self,
        span: InnerSpan,
        outline: &Outline,
        (sa, interface): (SaIndex, u32),
        inner_mtu: usize,
    ) -> Inner {
        let sa = self.packets.snapshot.sa(sa);
        let needs_checksum = span.rebuilt && !span.in_tunnel && is_behind_nat(sa);
        let packet = self.packets.bytes_at_mut(span);
        if needs_checksum {
            nat::renew_checksum(packet, outline);
        }
        inner::finish(
            packet,
            outline,
            span,
            inner_mtu,
            interface,
            self.train_kinds,
        )
    }
}

/// Whether a NAT may have changed the addresses that a checksum inside covers. RFC 3948 3.1.2: the checksum is
/// corrected only where the packet is authenticated.
fn is_behind_nat(sa: &Sa) -> bool {
    sa.config.encapsulation.is_some() && sa.config.suite.is_authenticated()
}
