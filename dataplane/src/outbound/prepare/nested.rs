//! Assigns sequence numbers to all layers of a nested packet and gives each its place in the buffers.

use crate::outbound::chain::ChainLayer;
use crate::outbound::item::Item;
use crate::outbound::nested::{LayerHeader, NestedPacket, NestedPackets, PacketLayer};
use ipsec::database::{SaIndex, Snapshot};
use ipsec::sa::{Sa, SequenceNumber};
use ipsec::{Dropped, ah};
use multibuffer::Iv;
use std::ops::Range;

/// The most bytes of an IP packet.
const MAX_PACKET_LEN: usize = 65_535;

/// One packet that is to be protected.
pub(super) struct Unprotected<'a> {
    pub item: &'a Item,
    /// Which segment of the item.
    pub number: u32,
    /// Whether the outermost headers are written here.
    pub writes_outer: bool,
}

/// Where a protected packet will lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Output {
    pub buffer: usize,
    pub range: Range<usize>,
}

/// Why a packet does not go through all its layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub sa: SaIndex,
    pub reason: Dropped,
}

/// Takes what one layer needs from its SA: sequence number and IV, or why there is none.
pub(super) type Assign<'a> = dyn FnMut(&Sa, u64) -> Result<(SequenceNumber, Iv), Dropped> + 'a;

impl NestedPackets {
    /// Numbers and lays out all layers of one packet, innermost first. Of a packet that is refused nothing stays but
    /// the sequence numbers that its inner layers took.
    pub(super) fn add(
        &mut self,
        snapshot: &Snapshot,
        chain: &[ChainLayer],
        packet: Unprotected<'_>,
        assign: &mut Assign<'_>,
    ) -> Result<Output, Refusal> {
        let start = self.layers.len();
        match self.number(snapshot, chain, &packet, assign) {
            Ok(()) => Ok(self.lay_out(start, &packet)),
            Err(refusal) => {
                self.layers.truncate(start);
                Err(refusal)
            }
        }
    }

    fn number(
        &mut self,
        snapshot: &Snapshot,
        chain: &[ChainLayer],
        packet: &Unprotected<'_>,
        assign: &mut Assign<'_>,
    ) -> Result<(), Refusal> {
        let mut len = packet.item.segments.packet_len(packet.number);
        let mut stage = 0;
        for (index, layer) in chain.iter().enumerate() {
            let sa = snapshot.sa(layer.sa);
            let refused = |reason| Refusal {
                sa: layer.sa,
                reason,
            };
            let (sequence, iv) = assign(sa, len as u64).map_err(refused)?;
            let inside = len - layer.mode.outside();
            let next_header = layer.mode.next_header();
            let (header, body) = LayerHeader::new(sa, sequence, iv, next_header, inside);
            stage += usize::from(index > 0 && matches!(header, LayerHeader::Esp(_)));
            let headers = layer.mode.headers_len(&sa.config);
            len = headers + body;
            if len > MAX_PACKET_LEN {
                return Err(refused(Dropped::TooBig));
            }
            let is_last = index + 1 == chain.len();
            self.layers.push(PacketLayer {
                sa: layer.sa,
                mode: layer.mode,
                header,
                identification: ah::identification(sequence),
                stage,
                headers: if is_last && !packet.writes_outer {
                    0
                } else {
                    headers
                },
                body: 0..body,
                covered: 0..0,
            });
        }
        Ok(())
    }

    /// Gives every layer its place: those of one stage end together, each in front of the one inside.
    fn lay_out(&mut self, start: usize, packet: &Unprotected<'_>) -> Output {
        let mut end = self.layers.len();
        let mut output = None;
        while end > start {
            let stage = self.layers[end - 1].stage;
            let outermost = &self.layers[end - 1];
            let used = &mut self.used[stage % 2];
            let region = *used..*used + outermost.headers + outermost.body.len();
            *used = region.end;
            output.get_or_insert(Output {
                buffer: stage % 2,
                range: region.clone(),
            });
            while end > start && self.layers[end - 1].stage == stage {
                end -= 1;
                let layer = &mut self.layers[end];
                layer.body = region.end - layer.body.len()..region.end;
                if let LayerHeader::Ah(header) = &layer.header {
                    let len = layer.headers + header.header_len();
                    layer.covered = self.covered_len..self.covered_len + len;
                    self.covered_len += len;
                }
            }
        }
        let head = self.heads_len..self.heads_len + packet.item.segments.head_len();
        self.heads_len = head.end;
        self.packets.push(NestedPacket {
            item: packet.item.clone(),
            number: packet.number,
            head,
            layers: start..self.layers.len(),
        });
        output.unwrap_or(Output {
            buffer: 0,
            range: 0..0,
        })
    }
}
