//! Compresses packets before they go through ESP or AH (RFC 3173 2): each packet by itself, and only where it becomes
//! shorter.
//!
//! ```text
//!   transport   [ IP │ payload ]  ──►  [ IP │ IPComp │ compressed payload ]          or the packet as it is
//!   tunnel      [ packet ]        ──►  [ new IP │ IPComp │ compressed packet ]       or [ new IP │ packet ]
//! ```
//!
//! The result is a packet like any other, by a plan of its own. How long it is must be known before it is laid out, so
//! this runs in order, on the lane's own thread.

use super::classify::Classifier;
use super::fragment::copy_packet;
use super::planner::Planner;
use crate::outbound::OutboundBatch;
use crate::outbound::chain::MAX_NESTED_SAS;
use crate::outbound::compression::Compression;
use crate::outbound::item::{ClassifiedItem, CompressionPlan, EncapPlan, EncapPlans, Item};
use crate::train::segments::Segments;
use ipsec::Dropped;
use ipsec::database::SaIndex;
use ipsec::ipcomp::MIN_PAYLOAD_LEN;
use ipsec::packet::{FragmentKind, Outline};
use ipsec::sa::Protocol;
use ipsec::transport::UnprotectedHeaders;
use ipsec::tunnel::Outer;
use ipsec::wire::ip::number::{IPV4, IPV6};

/// The fixed header of IPv6, which is longer than that of IPv4 without options.
const MAX_FIXED_HEADER_BYTES: usize = 40;

impl Classifier<'_> {
    /// The plan of a flow that is compressed by `index` first, and then goes through the SAs of `rest`.
    pub(super) fn compressed_plan(
        &mut self,
        plans: &mut EncapPlans,
        (index, rest): (SaIndex, &[SaIndex]),
        packet: &[u8],
        outline: &Outline,
    ) -> Result<EncapPlan, Dropped> {
        // A template of level `use` may have led to nothing, and compression alone protects nothing.
        if rest.is_empty() {
            return Err(Dropped::Acquire);
        }
        let is_aggfrag = |sa: &SaIndex| self.snapshot.sa(*sa).config.aggfrag.is_some();
        if rest.len() >= MAX_NESTED_SAS || rest.iter().any(is_aggfrag) {
            return Err(Dropped::Unsupported);
        }
        let config = &self.snapshot.sa(index).config;
        let tunnel = super::chain::is_tunnel(config, outline).then(|| Outer {
            protocol: if outline.source.is_ipv4() { IPV4 } else { IPV6 },
            ..Outer::around(config, outline)
        });
        let plain = match &tunnel {
            Some(outer) => {
                let mut header = [0; MAX_FIXED_HEADER_BYTES];
                outer.emit(0, 0, &mut header);
                let around = super::chain::outline_of(outer);
                self.plan_of(rest, &header[..outer.ip_len()], &around)?
            }
            None => self.plan_of(rest, packet, outline)?,
        };
        let compressed = self.renamed(plain, Protocol::IpComp.number());
        let header = tunnel.as_ref().map_or(0, Outer::ip_len);
        Ok(EncapPlan {
            sa: index,
            outside: if tunnel.is_some() { 0 } else { plain.outside },
            inner_mtu: plain.inner_mtu.saturating_sub(header),
            compression: Some(CompressionPlan {
                tunnel,
                compressed: plans.push(compressed),
                plain: plans.push(plain),
            }),
            ..plain
        })
    }

    /// The same plan for packets whose headers name `next`.
    fn renamed(&mut self, plan: EncapPlan, next: u8) -> EncapPlan {
        if plan.outside == 0 {
            return plan;
        }
        EncapPlan {
            next_header: next,
            chain: super::chain::rename(self.chains, plan.chain, next),
            ..plan
        }
    }
}

impl<'a> Planner<'a> {
    /// Compresses the packets of an item, and assigns what follows to each.
    pub(super) fn compress(
        &mut self,
        batch: &mut OutboundBatch,
        classified: &ClassifiedItem<'a>,
        plan: &CompressionPlan,
    ) {
        for number in 0..classified.item.segments.count() {
            if let Err(reason) = self.compress_one(batch, classified, plan, number) {
                classified.sa.state.count_drop(reason);
                batch.counts.drop(reason, 1);
            }
        }
    }

    fn compress_one(
        &mut self,
        batch: &mut OutboundBatch,
        classified: &ClassifiedItem<'a>,
        plan: &CompressionPlan,
        number: u32,
    ) -> Result<(), Dropped> {
        let item = &classified.item;
        let bytes = if item.is_made {
            &batch.made[item.range.clone()]
        } else {
            &batch.intake.bytes[item.range.clone()]
        };
        let compression = self.compression.get_or_insert_default();
        copy_packet(&item.segments, bytes, number, &mut compression.packet);
        let outline = Outline::read(&compression.packet)?;
        let sa = classified.sa;
        // INVARIANT: the state of one SA is unlocked before that of another is locked.
        self.assigner.release();
        let len = outline.total_len as u64;
        sa.state.reserve(&sa.config, 1, len, self.now)?;
        let cpi = sa.config.id.spi.get() as u16;
        let start = batch.made.len();
        let is_compressed = match &plan.tunnel {
            Some(outer) => into_tunnel(compression, outer, &outline, cpi, &mut batch.made),
            None => in_place(compression, &outline, cpi, &mut batch.made)?,
        };
        let id = if is_compressed {
            plan.compressed
        } else {
            plan.plain
        };
        let range = start..batch.made.len();
        let made = Outline::read(&batch.made[range.clone()])?;
        let next = ClassifiedItem {
            item: Item {
                range,
                is_made: true,
                segments: Segments::whole(&made),
            },
            plan: id,
            sa: self.assigner.sa(batch.planned.plans[id].sa),
        };
        let before = batch.counts.bytes;
        self.assign(batch, &next);
        if batch.counts.bytes > before {
            // The bytes of the packet as it came are counted, as its receiver does.
            batch.counts.bytes = before + len;
        }
        Ok(())
    }
}

/// Tunnel mode: appends a new IP header with the packet behind it, compressed or not. Returns whether it is.
fn into_tunnel(
    compression: &mut Compression,
    outer: &Outer,
    inner: &Outline,
    cpi: u16,
    made: &mut Vec<u8>,
) -> bool {
    let start = made.len();
    made.resize(start + outer.ip_len(), 0);
    let is_compressed = shorten(compression, inner, 0, (outer.protocol, cpi), made);
    let outer = if is_compressed {
        Outer {
            protocol: Protocol::IpComp.number(),
            ..*outer
        }
    } else {
        *outer
    };
    let payload_len = made.len() - start - outer.ip_len();
    outer.emit(payload_len, 0, &mut made[start..]);
    is_compressed
}

/// Transport mode: appends the packet, with its payload compressed or not. RFC 3173 2.1: fragments never are.
fn in_place(
    compression: &mut Compression,
    outline: &Outline,
    cpi: u16,
    made: &mut Vec<u8>,
) -> Result<bool, Dropped> {
    if outline.fragment != FragmentKind::Whole {
        made.extend_from_slice(&compression.packet[..outline.total_len]);
        return Ok(false);
    }
    let start = made.len();
    let outside = UnprotectedHeaders::of(&compression.packet)?;
    made.extend_from_slice(&compression.packet[..outside.len]);
    let names = (outside.next, cpi);
    let is_compressed = shorten(compression, outline, outside.len, names, made);
    if is_compressed {
        let len = made.len() - start;
        let headers = &mut made[start..start + outside.len];
        outside.rename(headers, Protocol::IpComp.number(), len, 0);
    }
    Ok(is_compressed)
}

/// Appends the packet from `from` on: compressed, if its flow is tried and it becomes shorter. Returns whether it is.
fn shorten(
    compression: &mut Compression,
    outline: &Outline,
    from: usize,
    (next_header, cpi): (u8, u16),
    made: &mut Vec<u8>,
) -> bool {
    let flow = Compression::flow_of(outline);
    // What is too short says nothing about its flow.
    let is_long = outline.total_len - from >= MIN_PAYLOAD_LEN;
    let tries = is_long && compression.tries(flow);
    let payload = &compression.packet[from..outline.total_len];
    let compressor = &mut compression.compressor;
    let is_shorter = tries && compressor.compress(next_header, cpi, payload, made);
    if !is_shorter {
        made.extend_from_slice(payload);
    }
    if tries {
        compression.note(flow, is_shorter);
    }
    is_shorter
}
