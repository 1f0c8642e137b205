//! IPComp inside ESP or AH (RFC 3173): packets that are compressed, and those that their sender left as they were.

use super::decapsulate::{Decapsulator, GenuineLayer};
use crate::inbound::chain::SaChain;
use crate::inbound::layer::{LayerState, NestedLayer};
use crate::inbound::packet::{InnerSpan, LayerHeader};
use ipsec::Dropped;
use ipsec::database::SaIndex;
use ipsec::ipcomp::{DEFLATE_CPI, HEADER_LEN, InboundIpComp};
use ipsec::packet::{FragmentKind, Outline};
use ipsec::sa::{Mode, Protocol, SaId};
use ipsec::transport::UnprotectedHeaders;
use ipsec::tunnel::decapsulate_ecn;
use ipsec::wire::ip::number::{IPV4, IPV6};

/// The most bytes that the packets of one batch are decompressed to, all together: a few kilobytes of compressed zeros
/// must not fill the memory. A batch of 256 jumbo frames fits.
const MAX_DECOMPRESSED_BYTES: usize = 4 << 20;

impl Decapsulator<'_> {
    /// Decompresses what is behind the header; in transport mode behind a copy of the IP headers.
    pub(super) fn decompress(
        &mut self,
        layer: &GenuineLayer<'_>,
        header: &InboundIpComp,
    ) -> Result<InnerSpan, Dropped> {
        if self.rebuilt.len() > MAX_DECOMPRESSED_BYTES {
            return Err(Dropped::NoBuffer);
        }
        let mode = self.snapshot.sa(layer.sa).config.mode;
        let in_tunnel = match (header.next_header(), mode) {
            (IPV4 | IPV6, Mode::Tunnel | Mode::Any) => true,
            (_, Mode::Transport | Mode::Any) => false,
            (_, Mode::Tunnel) => return Err(Dropped::BadInner),
        };
        let outer_class = self.outer_class(layer);
        let start = self.rebuilt.len();
        let headers = if in_tunnel {
            None
        } else {
            Some(self.copy_headers(layer)?)
        };
        let result = self.append_text(layer, headers.map_or(0, |headers| headers.len));
        if let Err(reason) = result {
            self.rebuilt.truncate(start);
            return Err(reason);
        }
        let packet = &mut self.rebuilt[start..];
        let len = packet.len();
        match headers {
            Some(headers) => {
                headers.rename(&mut packet[..headers.len], header.next_header(), len, 0);
            }
            None => check_inner(packet, header.next_header(), outer_class)?,
        }
        Ok(InnerSpan {
            rebuilt: true,
            start,
            len,
            in_tunnel,
        })
    }

    fn copy_headers(&mut self, layer: &GenuineLayer<'_>) -> Result<UnprotectedHeaders, Dropped> {
        let at = layer.body.start - layer.headers;
        let headers = UnprotectedHeaders::before(&self.buffer(layer.rebuilt)[at..layer.body.end])?;
        let range = at..at + headers.len;
        if layer.rebuilt {
            self.rebuilt.extend_from_within(range)
        } else {
            self.rebuilt.extend_from_slice(&self.bytes[range])
        }
        Ok(headers)
    }

    fn append_text(&mut self, layer: &GenuineLayer<'_>, headers: usize) -> Result<(), Dropped> {
        let data = layer.body.start + HEADER_LEN..layer.body.end;
        let data = if layer.rebuilt {
            &self.rebuilt[data]
        } else {
            &self.bytes[data]
        };
        let decompressor = self.decompressor.get_or_insert_default();
        let text = decompressor.decompress(data, headers)?;
        self.rebuilt.extend_from_slice(text);
        Ok(())
    }
}

/// RFC 6040 4.2, for a packet that is of the version that the header before it named.
fn check_inner(inner: &mut [u8], next_header: u8, outer_class: u8) -> Result<(), Dropped> {
    let version = if next_header == IPV4 { 4 } else { 6 };
    if inner.first().is_none_or(|byte| byte >> 4 != version) {
        return Err(Dropped::BadInner);
    }
    decapsulate_ecn(outer_class, inner)
}

/// The IPComp SA of a packet that names DEFLATE by its well-known CPI, as KAME and its successors send it.
pub(super) fn by_well_known_cpi(
    packets: &Decapsulator<'_>,
    id: &SaId,
    outline: &Outline,
    body: &[u8],
) -> Option<SaIndex> {
    if id.protocol != Protocol::IpComp || id.spi.get() != u32::from(DEFLATE_CPI) {
        return None;
    }
    let next_header = *body.first()?;
    let hosts = (outline.source, outline.destination);
    let in_tunnel = matches!(next_header, IPV4 | IPV6);
    packets.snapshot.compressing(hosts, in_tunnel)
}

/// Whether a packet is one of an IPComp tunnel whose header was left out (RFC 3173 2.2): an IP packet in another one.
pub(super) fn is_left_out(packets: &Decapsulator<'_>, span: InnerSpan, outline: &Outline) -> bool {
    tunnel_of(packets, span, outline).is_some()
}

fn tunnel_of(packets: &Decapsulator<'_>, span: InnerSpan, outline: &Outline) -> Option<SaIndex> {
    let may_be = matches!(outline.protocol, IPV4 | IPV6)
        && outline.fragment == FragmentKind::Whole
        && !span.in_tunnel;
    let hosts = (outline.source, outline.destination);
    may_be.then(|| packets.snapshot.compressing(hosts, true))?
}

/// The layer of such a packet, which has no header of its own.
pub(super) fn left_out_layer(
    packets: &Decapsulator<'_>,
    chain: &mut SaChain,
    packet: usize,
    span: InnerSpan,
    outline: &Outline,
    mtu: usize,
) -> Result<Option<NestedLayer>, Dropped> {
    let Some(index) = tunnel_of(packets, span, outline) else {
        return Ok(None);
    };
    if chain.is_full() {
        return Err(Dropped::PolicyMismatch);
    }
    chain.charged = index;
    Ok(Some(NestedLayer {
        packet,
        span: InnerSpan {
            len: outline.total_len,
            ..span
        },
        headers: outline.header_len,
        sa: index,
        header: LayerHeader::IpComp(InboundIpComp::left_out(outline.protocol)),
        mtu,
        state: LayerState::Pending,
    }))
}
