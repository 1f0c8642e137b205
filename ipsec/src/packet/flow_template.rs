//! The next packet of a flow, recognised by its raw headers: most packets follow one that differs from them only in
//! length, identification and checksum, and need not be parsed field by field.

use super::{FragmentKind, Outline};

/// The headers of one packet, to recognise others of its flow.
///
/// ```text
///   IPv4   [ver tos ---- ---- flags][ttl proto ---- source][destination ports]      ----: not looked at
///   IPv6   [ver class flow ---- next hops][source][destination][ports]
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FlowTemplate {
    key: Key,
    header_len: usize,
}

type Key = [u64; 6];

impl FlowTemplate {
    /// The template of `packet`, whose outline was read; `None` if it has options or extension headers, is a
    /// fragment or has no ports.
    pub fn new(packet: &[u8], outline: &Outline) -> Option<Self> {
        let plain_len = if outline.source.is_ipv4() { 20 } else { 40 };
        let is_plain = outline.header_len == plain_len && outline.fragment == FragmentKind::Whole;
        if !is_plain || outline.ports.is_none() {
            return None;
        }
        Some(Self {
            key: key(packet)?,
            header_len: plain_len,
        })
    }

    /// The total length of `packet`, if everything else in its outline is the template's.
    #[inline]
    pub fn total_len_of(&self, packet: &[u8]) -> Option<usize> {
        if !is_same(&key(packet)?, &self.key) {
            return None;
        }
        let total_len = match self.header_len {
            20 => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
            _ => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
        };
        (self.header_len + 4..=packet.len())
            .contains(&total_len)
            .then_some(total_len)
    }
}

/// Whether two packets with ports and without options or extension headers differ, up to the ports, in nothing but
/// lengths, IPv4's identification and its checksum.
#[inline]
pub fn have_same_flow(a: &[u8], b: &[u8]) -> bool {
    match (key(a), key(b)) {
        (Some(a), Some(b)) => is_same(&a, &b),
        _ => false,
    }
}

/// MEASURED: a comparison of arrays calls `memcmp`, which takes longer than the rest of the comparison.
#[inline]
fn is_same(a: &Key, b: &Key) -> bool {
    let differing = a.iter().zip(b).map(|(a, b)| a ^ b);
    differing.fold(0, |all, one| all | one) == 0
}

/// All that must be the same, from the first byte to the ports.
#[inline]
fn key(packet: &[u8]) -> Option<Key> {
    match packet.first()? >> 4 {
        4 => {
            let (words, _) = packet.first_chunk::<24>()?.as_chunks::<8>();
            let [a, b, c] = [0, 1, 2].map(|n| u64::from_be_bytes(words[n]));
            Some([
                a & 0xffff_0000_0000_ffff,
                b & 0xffff_0000_ffff_ffff,
                c,
                0,
                0,
                0,
            ])
        }
        6 => {
            let (words, ports) = packet.first_chunk::<44>()?.as_chunks::<8>();
            let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|n| u64::from_be_bytes(words[n]));
            let ports = u32::from_be_bytes(*ports.first_chunk()?);
            Some([a & 0xffff_ffff_0000_ffff, b, c, d, e, ports.into()])
        }
        _ => None,
    }
}
