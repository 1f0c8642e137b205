//! TCP's opening segments, whose maximum segment size is lowered to what fits the tunnel.

use ipsec::packet::{FragmentKind, Outline};
use ipsec::pmtu::{TcpChecksum, clamp_mss};

const TCP: u8 = 6;
const FLAGS_OFFSET: usize = 13;
const SYN: u8 = 0x02;

/// Whether `packet` opens a TCP connection: checked for every packet, so it is cheap.
pub fn is_syn(packet: &[u8], outline: &Outline) -> bool {
    outline.protocol == TCP
        && outline.fragment == FragmentKind::Whole
        && packet
            .get(outline.header_len + FLAGS_OFFSET)
            .is_some_and(|flags| flags & SYN != 0)
}

/// Lowers the MSS of the segment to what fits an inner packet of `inner_mtu`.
pub fn clamp(packet: &mut [u8], inner_mtu: usize, checksum: TcpChecksum) {
    clamp_mss(packet, inner_mtu, checksum);
}
