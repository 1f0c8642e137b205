//! Packets whose first header is AH, or that have another layer inside: opened layer by layer, those of all packets of
//! a chunk together, so that the ciphers have many packets in each call.
//!
//! ```text
//!   layer = a whole packet and the SA of its outermost ESP or AH header
//!   ESP opened in place, AH verified ──► decapsulate ──► another layer inside? once more
//!                                                   └──► policy, with all SAs of the chain
//! ```
//!
//! What was proven is kept in the packet's [`SaChain`]: commit checks and moves the window of every SA in it, outermost
//! first.

use super::decapsulate::{Decapsulator, GenuineLayer, check_source};
use super::decompress::{by_well_known_cpi, left_out_layer};
use super::deliver::InnerProcessor;
use super::icv::{self, JOBS_PER_CALL};
use crate::buffers::{prefix_mut, recycle};
use crate::inbound::chain::{ProvenLayer, SaChain};
use crate::inbound::layer::{LayerState, NestedLayer, NestedLayers};
use crate::inbound::packet::{InboundPacket, Inner, InnerSpan, LayerHeader, Outcome};
use crate::inbound::sa_id::read_sa_id;
use crate::outbound::MAX_NESTED_SAS;
use ipsec::Dropped;
use ipsec::ah;
use ipsec::packet::{FragmentKind, Outline};
use ipsec::sa::Protocol;
use multibuffer::OpenJob;

/// Opens layers until none is left.
pub(super) fn open_all(
    processor: &mut InnerProcessor<'_>,
    packets: &mut [InboundPacket],
    chains: &mut Vec<SaChain>,
    nested: &mut NestedLayers,
    mut jobs: Vec<OpenJob<'static>>,
) -> Vec<OpenJob<'static>> {
    while !nested.current.is_empty() {
        let snapshot = processor.packets.snapshot;
        for rebuilt in [false, true] {
            let bytes = (processor.packets.buffer(rebuilt), rebuilt);
            jobs = icv::open(snapshot, &mut nested.current, bytes, jobs);
        }
        verify(&processor.packets, nested);
        for layer in nested.current.drain(..) {
            let packet = &mut packets[layer.packet];
            let (outcome, next) = settle(processor, packet, chains, layer);
            packet.outcome = outcome;
            nested.next.extend(next);
        }
        std::mem::swap(&mut nested.current, &mut nested.next);
    }
    jobs
}

/// Verifies the ICVs of all AH layers, in one call.
fn verify(packets: &Decapsulator<'_>, nested: &mut NestedLayers) {
    let layers = &mut nested.current;
    let covered_len = layers.iter().map(NestedLayer::covered_len).sum();
    let mut rest = prefix_mut(&mut nested.covered, covered_len);
    let mut jobs = recycle(std::mem::take(&mut nested.verify_jobs));
    let mut failures = [None; JOBS_PER_CALL];
    for (layer, failure) in layers.iter().zip(&mut failures) {
        let LayerHeader::Ah(header) = &layer.header else {
            continue;
        };
        let sa = packets.snapshot.sa(layer.sa);
        let whole = packets.bytes_at(layer.span);
        let (headers, covered);
        (covered, rest) = rest.split_at_mut(layer.covered_len());
        headers = &whole[..covered.len()];
        *failure = ah::icv_input(&sa.config, headers, header.header_len(), covered).err();
        jobs.push(header.job(sa, covered, &whole[layer.headers..]));
    }
    multibuffer::verify(&mut jobs);
    let verdicts = icv::verdicts(jobs.iter().map(|job| job.verdict));
    nested.verify_jobs = recycle(jobs);
    let signed = |layer: &&mut NestedLayer| matches!(layer.header, LayerHeader::Ah(_));
    icv::apply(verdicts, layers.iter_mut().filter(signed));
    for (layer, failure) in layers.iter_mut().zip(failures) {
        if let Some(reason) = failure {
            layer.state = LayerState::Failed(reason);
        }
    }
}

/// What becomes of a packet after one of its layers: its outcome, or the next layer.
fn settle(
    processor: &mut InnerProcessor<'_>,
    packet: &mut InboundPacket,
    chains: &mut Vec<SaChain>,
    layer: NestedLayer,
) -> (Outcome, Option<NestedLayer>) {
    let chain = packet.chain(chains);
    if let LayerState::Failed(reason) = layer.state {
        chain.charged = layer.sa;
        return match (chain.layers(), reason) {
            // The packet is not authentic, so no replay window is checked.
            ([], Dropped::BadIcv) => (Outcome::Forged, None),
            (_, reason) => (Outcome::Genuine(Err(reason)), None),
        };
    }
    let opened = processor.packets.decapsulate(&layer.genuine());
    let bytes = opened.map_or(layer.body().len(), |span| span.len) as u64;
    chain.add(ProvenLayer {
        sa: layer.sa,
        sequence: layer.header.sequence(),
        bytes,
    });
    let next = opened.and_then(|span| open_inside(processor, chain, &layer, span));
    match next {
        Ok(Next::Deliver(inner)) => (Outcome::Genuine(Ok(inner)), None),
        Ok(Next::Layer(next)) => (Outcome::Genuine(Err(Dropped::BadInner)), Some(next)),
        Err(reason) => (Outcome::Genuine(Err(reason)), None),
    }
}

/// What was found inside a layer.
enum Next {
    Deliver(Inner),
    Layer(NestedLayer),
}

fn open_inside(
    processor: &mut InnerProcessor<'_>,
    chain: &mut SaChain,
    layer: &NestedLayer,
    span: InnerSpan,
) -> Result<Next, Dropped> {
    let packets = &processor.packets;
    let mtu = layer.mtu_inside(packets.snapshot);
    let outline = Outline::read(packets.bytes_at(span)).map_err(|_| Dropped::BadInner)?;
    check_source(packets.snapshot.sa(layer.sa), span, &outline)?;
    if let Some(next) = next_layer(packets, chain, layer.packet, span, &outline, mtu)? {
        return Ok(Next::Layer(next));
    }
    let innermost = chain.charged;
    let mut path = [innermost; MAX_NESTED_SAS];
    for (sa, layer) in path.iter_mut().zip(chain.layers()) {
        *sa = layer.sa;
    }
    let path = &path[..chain.layers().len()];
    let inner = processor.deliver_nested(span, &outline, path, innermost, mtu)?;
    Ok(Next::Deliver(inner))
}

/// The next layer of a packet, if it has one that ends here. In transport mode ESP or AH is always for this gateway;
/// out of a tunnel it may be another host's, on its way through.
pub(super) fn next_layer(
    packets: &Decapsulator<'_>,
    chain: &mut SaChain,
    packet: usize,
    span: InnerSpan,
    outline: &Outline,
    mtu: usize,
) -> Result<Option<NestedLayer>, Dropped> {
    let protocol = match outline.protocol {
        number if number == Protocol::Esp.number() => Protocol::Esp,
        number if number == Protocol::Ah.number() => Protocol::Ah,
        number if number == Protocol::IpComp.number() => Protocol::IpComp,
        _ => return left_out_layer(packets, chain, packet, span, outline, mtu),
    };
    if outline.fragment != FragmentKind::Whole {
        return Ok(None);
    }
    let body = packets
        .bytes_at(span)
        .get(outline.header_len..outline.total_len)
        .ok_or(Dropped::BadInner)?;
    let id = read_sa_id(outline.destination, protocol, body, Dropped::BadInner)?;
    let found = packets.snapshot.find(&id);
    let index = match found.or_else(|| by_well_known_cpi(packets, &id, outline, body)) {
        Some(index) => index,
        None if span.in_tunnel => return Ok(None),
        None => return Err(Dropped::NoSa),
    };
    if chain.is_full() {
        return Err(Dropped::PolicyMismatch);
    }
    let sa = packets.snapshot.sa(index);
    chain.charged = index;
    if sa.config.encapsulation.is_some() {
        return Err(Dropped::WrongEncapsulation);
    }
    Ok(Some(NestedLayer {
        packet,
        span: InnerSpan {
            len: outline.total_len,
            ..span
        },
        headers: outline.header_len,
        sa: index,
        header: LayerHeader::parse(sa, body)?,
        mtu,
        state: LayerState::Pending,
    }))
}

impl NestedLayer {
    fn genuine(&self) -> GenuineLayer<'_> {
        GenuineLayer {
            rebuilt: self.span.rebuilt,
            headers: self.headers,
            body: self.body(),
            sa: self.sa,
            header: &self.header,
            outer: None,
        }
    }
}
