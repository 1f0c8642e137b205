//! One genuine layer comes off: padding, tunnel or moved headers, and what is left is a packet.

use super::SocketOpener;
use crate::inbound::batch::{Header, Outcome, Place};
use ipsec::Dropped;
use ipsec::aggfrag;
use ipsec::database::SaIndex;
use ipsec::packet::Outline;
use ipsec::sa::Mode;
use ipsec::transport::Outside;
use ipsec::tunnel::{Outer, decapsulate_ecn};
use std::ops::Range;

/// Next headers.
const IPV4_INSIDE: u8 = 4;
const IPV6_INSIDE: u8 = 41;
const NOTHING_INSIDE: u8 = 59;

/// One layer that was found genuine, and the headers before it.
pub(in crate::inbound) struct Layer<'a> {
    pub rebuilt: bool,
    /// Bytes of headers directly before the body; 0 if they are not there, and then `outer` says what they were.
    pub headers: usize,
    /// From ESP or AH to the end.
    pub body: Range<usize>,
    pub sa: SaIndex,
    pub received: &'a Header,
    pub outer: Option<&'a Outer>,
}

impl SocketOpener<'_> {
    /// Takes one layer off: the packet inside as it lies there, or with the headers given back to it that stood outside.
    pub fn unwrap(&mut self, layer: &Layer<'_>) -> Result<Place, Dropped> {
        let sa = self.snapshot.sa(layer.sa);
        let (inside, next_header) = self.inside(layer)?;
        let version = match (next_header, sa.config.mode) {
            // RFC 4303 2.6: sent to be thrown away.
            (NOTHING_INSIDE, _) => return Err(Dropped::Dummy),
            (IPV4_INSIDE, Mode::Tunnel | Mode::Any) => 4,
            (IPV6_INSIDE, Mode::Tunnel | Mode::Any) => 6,
            (_, Mode::Transport | Mode::Any) => return self.join(layer, inside, next_header),
            (_, Mode::Tunnel) => return Err(Dropped::BadInner),
        };
        let outer_class = self.outer_class(layer);
        let inner = &mut self.buffer(layer.rebuilt)[inside.clone()];
        if inner.first().is_none_or(|byte| byte >> 4 != version) {
            return Err(Dropped::BadInner);
        }
        decapsulate_ecn(outer_class, inner)?;
        Ok(Place {
            rebuilt: layer.rebuilt,
            start: inside.start,
            len: inside.len(),
            in_tunnel: true,
        })
    }

    /// RFC 9347 2.3: an association in AGGFRAG mode carries nothing else.
    pub(super) fn payload(&mut self, layer: &Layer<'_>) -> Outcome {
        match self.inside(layer) {
            Ok((inside, aggfrag::PROTOCOL)) => Outcome::Packed(Place {
                rebuilt: layer.rebuilt,
                start: inside.start,
                len: inside.len(),
                in_tunnel: true,
            }),
            Ok((_, NOTHING_INSIDE)) => Outcome::Genuine(Err(Dropped::Dummy)),
            Ok(_) => Outcome::Genuine(Err(Dropped::BadInner)),
            Err(reason) => Outcome::Genuine(Err(reason)),
        }
    }

    /// What the layer carries, and what that is.
    fn inside(&mut self, layer: &Layer<'_>) -> Result<(Range<usize>, u8), Dropped> {
        let sa = self.snapshot.sa(layer.sa);
        let start = layer.body.start;
        match layer.received {
            Header::Esp(received) => {
                let body = &self.buffer(layer.rebuilt)[layer.body.clone()];
                let (text, next_header) = received.strip(sa, body)?;
                Ok((start + text.start..start + text.end, next_header))
            }
            Header::Ah(received) => {
                let inside = start + received.header_len()..layer.body.end;
                Ok((inside, received.next_header()))
            }
            Header::Inside => Err(Dropped::BadInner),
        }
    }

    /// The traffic class of the header that the layer stood behind.
    fn outer_class(&mut self, layer: &Layer<'_>) -> u8 {
        if let Some(outer) = layer.outer {
            return outer.traffic_class;
        }
        let headers_at = layer.body.start - layer.headers;
        let headers = &self.buffer(layer.rebuilt)[headers_at..layer.body.end];
        Outline::read(headers).map_or(0, |outline| outline.traffic_class)
    }

    /// Transport mode: the headers that the layer stood behind move up to what was inside.
    fn join(
        &mut self,
        layer: &Layer<'_>,
        inside: Range<usize>,
        next_header: u8,
    ) -> Result<Place, Dropped> {
        let (0, Some(outer)) = (layer.headers, layer.outer) else {
            return self.move_headers(layer, inside, next_header);
        };
        let sequence = layer.received.sequence().low();
        Ok(self.rebuild(inside, next_header, outer, sequence))
    }

    fn move_headers(
        &mut self,
        layer: &Layer<'_>,
        inside: Range<usize>,
        next_header: u8,
    ) -> Result<Place, Dropped> {
        let headers_at = layer.body.start - layer.headers;
        let buffer = self.buffer(layer.rebuilt);
        let outside = Outside::before(&buffer[headers_at..layer.body.end])?;
        let start = inside.start - outside.len;
        buffer.copy_within(headers_at..headers_at + outside.len, start);
        let len = inside.end - start;
        outside.rename(&mut buffer[start..start + outside.len], next_header, len, 0);
        Ok(Place {
            rebuilt: layer.rebuilt,
            start,
            len,
            in_tunnel: false,
        })
    }

    /// Transport mode in UDP, whose socket kept the headers: they are made anew from what it told of them. IPv4's
    /// identification has done its work; where DF is clear another fragmentation needs a new one.
    fn rebuild(
        &mut self,
        plaintext: Range<usize>,
        next_header: u8,
        outer: &Outer,
        sequence: u32,
    ) -> Place {
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
        Place {
            rebuilt: true,
            start,
            len: self.rebuilt.len() - start,
            in_tunnel: false,
        }
    }
}
