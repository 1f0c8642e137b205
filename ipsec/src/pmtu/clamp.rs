//! Lowering the maximum segment size that a TCP SYN announces, so that what is answered fits the tunnel.

use crate::packet::{FragmentKind, Outline};
use crate::wire::checksum;
use crate::wire::ip::{number, v4, v6};
use crate::wire::tcp::{self, Tcp};

/// What the checksum field of a TCP segment holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpChecksum {
    /// The checksum.
    Finished,
    /// The sum of the pseudo-header only, as a TUN device with checksum offload has it: options are not included yet.
    Unfinished,
}

/// Lowers the maximum segment size of a SYN to what an unfragmented packet of `inner_mtu` holds. Returns whether it was
/// lowered.
///
/// Never raises it, never adds the option, and touches nothing that is not a whole TCP SYN.
pub fn clamp_mss(packet: &mut [u8], inner_mtu: usize, state: TcpChecksum) -> bool {
    let Some((segment, headers_len)) = syn(packet) else {
        return false;
    };
    let limit = inner_mtu.saturating_sub(headers_len);
    let limit = u16::try_from(limit).unwrap_or(u16::MAX);
    lower(segment, limit, state).is_some()
}

/// The TCP segment of a SYN, and the bytes of IP and TCP header that a segment of full size will have.
fn syn(packet: &mut [u8]) -> Option<(&mut [u8], usize)> {
    let outline = Outline::read(packet).ok()?;
    if outline.protocol != number::TCP || outline.fragment != FragmentKind::Whole {
        return None;
    }
    // RFC 6691 2: options are not counted; the sender subtracts those it uses.
    let ip_len = if outline.source.is_ipv4() {
        v4::MIN_HEADER_LEN
    } else {
        v6::HEADER_LEN
    };
    let segment = packet.get_mut(outline.header_len..outline.total_len)?;
    let is_syn = Tcp::new_checked(segment).ok()?.flags() & tcp::SYN != 0;
    is_syn.then_some((segment, ip_len + tcp::MIN_HEADER_LEN))
}

fn lower(segment: &mut [u8], limit: u16, state: TcpChecksum) -> Option<()> {
    let (old, at) = Tcp::new_checked(segment).ok()?.max_segment_size()?;
    if old <= limit || limit == 0 {
        return None;
    }
    segment
        .get_mut(at.clone())?
        .copy_from_slice(&limit.to_be_bytes());
    if state == TcpChecksum::Finished {
        let field = segment
            .get_mut(tcp::CHECKSUM_AT..)?
            .first_chunk_mut::<2>()?;
        let before = u16::from_be_bytes(*field);
        // At an odd place the value lies across two words of the sum, bytes swapped (RFC 1071 2(B)).
        let mended = match at.start % 2 {
            0 => checksum::mend(before, old, limit),
            _ => checksum::mend(before, old.swap_bytes(), limit.swap_bytes()),
        };
        *field = mended.to_be_bytes();
    }
    Some(())
}
