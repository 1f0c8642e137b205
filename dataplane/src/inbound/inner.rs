//! The last touches to a packet that policy allows, before it is delivered.

use super::packet::{Inner, InnerSpan};
use crate::syn;
use crate::train::TrainKinds;
use crate::train::merge::GroCandidate;
use ipsec::packet::Outline;
use ipsec::pmtu::TcpChecksum;

/// Clamps the MSS of a TCP SYN to what fits the path back, and reads what merging needs. `packet` lies at `span` and
/// goes to the kernel through the device `interface`.
pub(super) fn finish(
    packet: &mut [u8],
    outline: &Outline,
    span: InnerSpan,
    inner_mtu: usize,
    interface: u32,
    train_kinds: TrainKinds,
) -> Inner {
    if syn::is_syn(packet, outline) {
        syn::clamp(packet, inner_mtu, TcpChecksum::Finished);
    }
    Inner {
        candidate: GroCandidate::read(packet, outline, train_kinds).by(interface),
        len: outline.total_len,
        rebuilt: span.rebuilt,
        start: span.start,
        interface,
    }
}
