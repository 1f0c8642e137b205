//! Removes one genuine layer: padding, then the tunnel header or the ESP or AH header between IP header and payload.

use crate::inbound::packet::{InnerSpan, LayerHeader, Outcome};
use ipsec::Dropped;
use ipsec::aggfrag;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::ipcomp::Decompressor;
use ipsec::packet::Outline;
use ipsec::sa::{Mode, Sa};
use ipsec::transport::UnprotectedHeaders;
use ipsec::tunnel::{Outer, decapsulate_ecn};
use ipsec::wire::ip::number::{IPV4, IPV6, NO_NEXT};
use std::ops::Range;

/// Removes layers of packets in the two buffers of a batch.
pub(super) struct Decapsulator<'a> {
    pub snapshot: &'a Snapshot,
    /// The intake's bytes.
    pub bytes: &'a mut [u8],
    pub rebuilt: &'a mut Vec<u8>,
    pub decompressor: &'a mut Option<Decompressor>,
}

/// One layer whose ICV was right, and the headers before it.
pub(super) struct GenuineLayer<'a> {
    pub rebuilt: bool,
    /// Bytes of headers directly before the body; 0 if they are not there, and then `outer` is their meaning.
    pub headers: usize,
    /// From ESP or AH to the end.
    pub body: Range<usize>,
    pub sa: SaIndex,
    pub header: &'a LayerHeader,
    pub outer: Option<&'a Outer>,
}

impl Decapsulator<'_> {
    /// Removes one layer: the packet inside where it lies; in transport mode with its IP header moved or written anew.
    pub fn decapsulate(&mut self, layer: &GenuineLayer<'_>) -> Result<InnerSpan, Dropped> {
        let sa = self.snapshot.sa(layer.sa);
        if let LayerHeader::IpComp(header) = layer.header
            && header.is_compressed()
        {
            return self.decompress(layer, header);
        }
        let (inside, next_header) = self.inside(layer)?;
        let version = match (next_header, sa.config.mode) {
            // RFC 4303 2.6: a dummy packet.
            (NO_NEXT, _) => return Err(Dropped::Dummy),
            (IPV4, Mode::Tunnel | Mode::Any) => 4,
            (IPV6, Mode::Tunnel | Mode::Any) => 6,
            (_, Mode::Transport | Mode::Any) => return self.join(layer, inside, next_header),
            (_, Mode::Tunnel) => return Err(Dropped::BadInner),
        };
        let outer_class = self.outer_class(layer);
        let inner = &mut self.buffer(layer.rebuilt)[inside.clone()];
        if inner.first().is_none_or(|byte| byte >> 4 != version) {
            return Err(Dropped::BadInner);
        }
        decapsulate_ecn(outer_class, inner)?;
        Ok(InnerSpan {
            rebuilt: layer.rebuilt,
            start: inside.start,
            len: inside.len(),
            in_tunnel: true,
        })
    }

    /// RFC 9347 2.3: an SA in AGGFRAG mode carries nothing but payloads.
    pub fn aggfrag_payload(&mut self, layer: &GenuineLayer<'_>) -> Outcome {
        match self.inside(layer) {
            Ok((inside, aggfrag::PROTOCOL)) => Outcome::Aggfrag(InnerSpan {
                rebuilt: layer.rebuilt,
                start: inside.start,
                len: inside.len(),
                in_tunnel: true,
            }),
            Ok((_, NO_NEXT)) => Outcome::Genuine(Err(Dropped::Dummy)),
            Ok(_) => Outcome::Genuine(Err(Dropped::BadInner)),
            Err(reason) => Outcome::Genuine(Err(reason)),
        }
    }

    /// Where the layer's payload lies, and its next header.
    fn inside(&mut self, layer: &GenuineLayer<'_>) -> Result<(Range<usize>, u8), Dropped> {
        let sa = self.snapshot.sa(layer.sa);
        let start = layer.body.start;
        match layer.header {
            LayerHeader::Esp(esp) => {
                let body = &self.buffer(layer.rebuilt)[layer.body.clone()];
                let (text, next_header) = esp.strip(sa, body)?;
                Ok((start + text.start..start + text.end, next_header))
            }
            LayerHeader::Ah(ah) => {
                let inside = start + ah.header_len()..layer.body.end;
                Ok((inside, ah.next_header()))
            }
            LayerHeader::IpComp(header) => Ok((layer.body.clone(), header.next_header())),
            LayerHeader::Inside => Err(Dropped::BadInner),
        }
    }

    /// The traffic class of the IP header before the layer.
    pub(super) fn outer_class(&mut self, layer: &GenuineLayer<'_>) -> u8 {
        if let Some(outer) = layer.outer {
            return outer.traffic_class;
        }
        let headers_at = layer.body.start - layer.headers;
        let headers = &self.buffer(layer.rebuilt)[headers_at..layer.body.end];
        Outline::read(headers).map_or(0, |outline| outline.traffic_class)
    }

    /// Transport mode: the IP header before the layer moves up to the payload, or is written anew.
    fn join(
        &mut self,
        layer: &GenuineLayer<'_>,
        inside: Range<usize>,
        next_header: u8,
    ) -> Result<InnerSpan, Dropped> {
        let (0, Some(outer)) = (layer.headers, layer.outer) else {
            return self.move_headers(layer, inside, next_header);
        };
        let sequence = layer.header.sequence().low();
        Ok(self.rebuild(inside, next_header, outer, sequence))
    }

    fn move_headers(
        &mut self,
        layer: &GenuineLayer<'_>,
        inside: Range<usize>,
        next_header: u8,
    ) -> Result<InnerSpan, Dropped> {
        let headers_at = layer.body.start - layer.headers;
        let buffer = self.buffer(layer.rebuilt);
        let outside = UnprotectedHeaders::before(&buffer[headers_at..layer.body.end])?;
        let start = inside.start - outside.len;
        buffer.copy_within(headers_at..headers_at + outside.len, start);
        let len = inside.end - start;
        outside.rename(&mut buffer[start..start + outside.len], next_header, len, 0);
        Ok(InnerSpan {
            rebuilt: layer.rebuilt,
            start,
            len,
            in_tunnel: false,
        })
    }

    /// Transport mode in UDP, whose socket does not hand over IP headers: the header is written anew from what the
    /// socket reports. IPv4's identification is 0 where DF is set, and a new one where the packet may be fragmented
    /// again.
    fn rebuild(
        &mut self,
        plaintext: Range<usize>,
        next_header: u8,
        outer: &Outer,
        sequence: u32,
    ) -> InnerSpan {
        let header = Outer {
            protocol: next_header,
            ports: None,
            ..*outer
        };
        let identification = if outer.dont_fragment {
            0
        } else {
            sequence as u16
        };
        let start = self.rebuilt.len();
        self.rebuilt.resize(start + header.len(), 0);
        header.emit(plaintext.len(), identification, &mut self.rebuilt[start..]);
        self.rebuilt.extend_from_slice(&self.bytes[plaintext]);
        InnerSpan {
            rebuilt: true,
            start,
            len: self.rebuilt.len() - start,
            in_tunnel: false,
        }
    }

    /// One of the two buffers in which packets lie.
    pub fn buffer(&mut self, rebuilt: bool) -> &mut [u8] {
        if rebuilt {
            &mut self.rebuilt[..]
        } else {
            &mut *self.bytes
        }
    }

    /// The bytes of a packet.
    pub fn bytes_at(&self, span: InnerSpan) -> &[u8] {
        let buffer = if span.rebuilt {
            &self.rebuilt[..]
        } else {
            &*self.bytes
        };
        &buffer[span.start..span.start + span.len]
    }

    /// The same, to be changed.
    pub fn bytes_at_mut(&mut self, span: InnerSpan) -> &mut [u8] {
        &mut self.buffer(span.rebuilt)[span.start..span.start + span.len]
    }
}

/// In transport mode no key covers a packet's source address, so it must be the SA's: otherwise the peer could send for
/// another host. An SA from any source (0.0.0.0, ::) accepts every source.
pub(super) fn check_source(sa: &Sa, span: InnerSpan, outline: &Outline) -> Result<(), Dropped> {
    let source = sa.config.source;
    if span.in_tunnel || source.is_unspecified() || outline.source == source {
        Ok(())
    } else {
        Err(Dropped::SourceNotOfAssociation)
    }
}
