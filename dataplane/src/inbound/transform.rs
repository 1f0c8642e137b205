//! The middle step inbound, on any thread: the ciphers, then what follows from one authentic packet alone.
//!
//! ```text
//!   packets with ESP ──► icv ──► decapsulate ──► deliver: policy, checksum, MSS
//!                                    │ another layer inside
//!   packets with AH ─────────────────┴──► nested: the same, layer by layer
//! ```

mod decapsulate;
mod decompress;
mod deliver;
mod icv;
mod nested;

use super::InboundBatch;
use super::chain::{ProvenLayer, SaChain};
use super::layer::{LayerState, NestedLayer};
use super::packet::{InboundPacket, InnerSpan, LayerHeader, Outcome};
use super::policy::PolicyCheck;
use crate::buffers::recycle;
use crate::io::Arrival;
use crate::pipeline::lane::Transform;
use decapsulate::{Decapsulator, GenuineLayer, check_source};
use decompress::is_left_out;
use deliver::InnerProcessor;
use icv::JOBS_PER_CALL;
use ipsec::Dropped;
use ipsec::database::Snapshot;
use ipsec::esp;
use ipsec::packet::{self, Outline};
use ipsec::wire::ip::number::{AH, ESP, IPCOMP};

impl Transform for InboundBatch {
    fn arrived(&self) -> u64 {
        self.counts.arrived
    }

    fn transform(&mut self) {
        let Some(snapshot) = &self.snapshot else {
            return;
        };
        let mut jobs = recycle(std::mem::take(&mut self.jobs));
        for packets in self.packets.chunks_mut(JOBS_PER_CALL) {
            snapshot.prefetch_associations(packets.iter().map(|packet| packet.sa));
            jobs = icv::open(snapshot, packets, (&mut self.intake.bytes[..], false), jobs);
            prefetch_policies(snapshot, packets, &self.intake.bytes);
            let mut processor = InnerProcessor {
                packets: Decapsulator {
                    snapshot,
                    bytes: &mut self.intake.bytes,
                    rebuilt: &mut self.rebuilt,
                    decompressor: &mut self.decompressor,
                },
                train_kinds: self.train_kinds,
                forwards: self.forwards,
                policy: PolicyCheck::default(),
            };
            for (number, packet) in packets.iter_mut().enumerate() {
                let (_, arrival) = &self.intake.items[packet.item as usize];
                let chains = &mut self.chains;
                let next = match packet.header {
                    LayerHeader::Esp(_) => {
                        open_inner(&mut processor, packet, arrival, number, chains)
                    }
                    LayerHeader::Ah(_) => Some(packet.outermost_layer(number)),
                    LayerHeader::IpComp(_) | LayerHeader::Inside => None,
                };
                self.nested.current.extend(next);
            }
            jobs = nested::open_all(
                &mut processor,
                packets,
                &mut self.chains,
                &mut self.nested,
                jobs,
            );
        }
        self.jobs = jobs;
    }
}

/// Prefetches the policies that packets out of tunnels will be checked against.
fn prefetch_policies(snapshot: &Snapshot, packets: &[InboundPacket], bytes: &[u8]) {
    let hosts = packets.iter().filter_map(|packet| {
        let text_at = esp::ciphertext_at(&snapshot.sa(packet.sa).config);
        packet::hosts(bytes.get(packet.range.start + text_at..packet.range.end)?)
    });
    snapshot.prefetch_inbound_policies(hosts);
}

/// RFC 4303 3.4.4, RFC 4301 5.2: removes padding and tunnel header, checks policy. If there is one more layer inside,
/// it is returned.
fn open_inner(
    processor: &mut InnerProcessor<'_>,
    packet: &mut InboundPacket,
    arrival: &Arrival,
    number: usize,
    chains: &mut Vec<SaChain>,
) -> Option<NestedLayer> {
    if !matches!(packet.outcome, Outcome::Genuine(_)) {
        return None;
    }
    let (sa, inner_mtu) = (packet.sa, packet.inner_mtu);
    let layer = GenuineLayer {
        rebuilt: false,
        headers: packet.headers.into(),
        body: packet.range.clone(),
        sa,
        header: &packet.header,
        outer: Some(&arrival.outer),
    };
    let packets = &mut processor.packets;
    if packets.snapshot.sa(sa).config.aggfrag.is_some() {
        packet.outcome = packets.aggfrag_payload(&layer);
        return None;
    }
    let outcome = match packets.decapsulate(&layer) {
        Ok(span) => {
            let known = processor.policy.recognize(packets.bytes_at(span), sa);
            match known {
                Some((outline, interface)) => {
                    Ok(processor.finish(span, &outline, (sa, interface), inner_mtu))
                }
                None => match open_unknown(processor, packet, span, number, chains) {
                    Ok(Opened::Inner(outline)) => processor.deliver(span, &outline, sa, inner_mtu),
                    Ok(Opened::Layer(next)) => return Some(next),
                    Err(reason) => Err(reason),
                },
            }
        }
        Err(reason) => Err(reason),
    };
    packet.outcome = Outcome::Genuine(outcome);
    None
}

/// What was found inside a packet.
enum Opened {
    /// A packet for delivery.
    Inner(Outline),
    /// Another layer.
    Layer(NestedLayer),
}

/// Reads a packet that is not of the flow before.
fn open_unknown(
    processor: &mut InnerProcessor<'_>,
    packet: &mut InboundPacket,
    span: InnerSpan,
    number: usize,
    chains: &mut Vec<SaChain>,
) -> Result<Opened, Dropped> {
    let packets = &processor.packets;
    let outline = Outline::read(packets.bytes_at(span)).map_err(|_| Dropped::BadInner)?;
    check_source(packets.snapshot.sa(packet.sa), span, &outline)?;
    if !matches!(outline.protocol, ESP | AH | IPCOMP) && !is_left_out(packets, span, &outline) {
        return Ok(Opened::Inner(outline));
    }
    let chain = packet.begin_chain(chains, span.len);
    let inside = nested::next_layer(packets, chain, number, span, &outline, packet.inner_mtu)?;
    Ok(inside.map_or(Opened::Inner(outline), Opened::Layer))
}

impl InboundPacket {
    /// The layer of a packet whose first header is AH: all of it is still to be opened.
    fn outermost_layer(&self, number: usize) -> NestedLayer {
        let headers = usize::from(self.headers);
        NestedLayer {
            packet: number,
            span: InnerSpan {
                rebuilt: false,
                start: self.range.start - headers,
                len: self.range.len() + headers,
                in_tunnel: false,
            },
            headers,
            sa: self.sa,
            header: self.header.clone(),
            mtu: self.inner_mtu,
            state: LayerState::Pending,
        }
    }

    /// Its SA chain, begun with the first layer, which was ESP and is open already.
    fn begin_chain<'a>(&mut self, chains: &'a mut Vec<SaChain>, bytes: usize) -> &'a mut SaChain {
        let (sa, sequence) = (self.sa, self.header.sequence());
        let chain = self.chain(chains);
        chain.add(ProvenLayer {
            sa,
            sequence,
            bytes: bytes as u64,
        });
        chain
    }
}
