//! Classifies packets: the policy decision for a flow, and the encapsulation plan that follows from it and its SAs.

use super::chain::{self, is_tunnel};
use crate::notice::Notice;
use crate::outbound::chain::{ChainLayer, ChainRange};
use crate::outbound::item::{EncapPlan, EncapPlans, PlanId};
use crate::path_mtu::PathMtus;
use ipsec::Dropped;
use ipsec::aggfrag;
use ipsec::database::{Decision, SaIndex, Snapshot};
use ipsec::packet::{FlowTemplate, FragmentKind, Outline};
use ipsec::pmtu;
use ipsec::sa::{Protocol, Sa, SaConfig};
use ipsec::tunnel::Outer;
use ipsec::wire::ip::number::{IPV4, IPV6};

/// Classifies the packets of one batch.
pub(super) struct Classifier<'a> {
    pub snapshot: &'a Snapshot,
    pub paths: &'a mut PathMtus,
    pub hook: &'a (dyn Fn(Notice) + Send + Sync),
    /// The device that the batch was read from.
    pub interface: u32,
    /// The layers of all SA chains of the batch.
    pub chains: &'a mut Vec<ChainLayer>,
    /// The packet before: most are followed by another one of their flow.
    pub last: Option<LastFlow>,
}

/// The packet classified last, its plan, and what packets of its flow have in common.
pub(super) struct LastFlow {
    pub outline: Outline,
    pub plan: PlanId,
    template: Option<FlowTemplate>,
}

impl<'a> Classifier<'a> {
    /// Outline and plan of a packet that follows another one of its flow, without reading its headers.
    #[inline]
    pub fn recognize(&mut self, packet: &[u8]) -> Option<&LastFlow> {
        let last = self.last.as_mut()?;
        last.outline.total_len = last.template.as_ref()?.total_len_of(packet)?;
        Some(last)
    }

    /// The plan of the packet before, if all that policy looks at is the same.
    pub fn plan_before(&mut self, outline: &Outline) -> Option<PlanId> {
        let last = self.last.as_mut()?;
        last.outline.total_len = outline.total_len;
        (last.outline == *outline).then_some(last.plan)
    }

    /// Asks policy, and appends the plan that follows. Policy and path MTU may take long.
    pub fn classify(
        &mut self,
        plans: &mut EncapPlans,
        packet: &[u8],
        outline: &Outline,
    ) -> Result<PlanId, Dropped> {
        let plan = match self.decide(outline)? {
            &[index] if self.snapshot.sa(index).config.aggfrag.is_some() => {
                let sa = self.snapshot.sa(index);
                aggfrag_plan(sa, index, self.paths.choice(sa.config.id.destination))
            }
            [index, rest @ ..] if self.compresses(*index) => {
                self.compressed_plan(plans, (*index, rest), packet, outline)?
            }
            path => self.plan_of(path, packet, outline)?,
        };
        let id = plans.push(plan);
        // Rare headers may differ where all that policy looks at is the same.
        if plan.outside == 0 || outline.header_len == plain_len(outline) {
            self.last = Some(LastFlow {
                outline: *outline,
                plan: id,
                template: FlowTemplate::new(packet, outline),
            });
        }
        Ok(id)
    }

    /// Whether a packet goes through its innermost SA in tunnel mode.
    pub fn is_for_tunnel(&self, outline: &Outline) -> Result<bool, Dropped> {
        let is_tunnel = |index: &SaIndex| is_tunnel(&self.snapshot.sa(*index).config, outline);
        Ok(match self.decide(outline)? {
            // RFC 3173 2.1: a fragment is not compressed, and goes on to the next SA.
            [index, next, ..] if self.compresses(*index) => is_tunnel(index) || is_tunnel(next),
            path => path.first().is_some_and(is_tunnel),
        })
    }

    fn compresses(&self, index: SaIndex) -> bool {
        self.snapshot.sa(index).config.id.protocol == Protocol::IpComp
    }

    /// The plan of a path without compression, or behind it.
    pub(super) fn plan_of(
        &mut self,
        path: &[SaIndex],
        packet: &[u8],
        outline: &Outline,
    ) -> Result<EncapPlan, Dropped> {
        match path {
            &[index] if is_single_esp(&self.snapshot.sa(index).config, outline) => {
                self.single_plan(index, packet, outline)
            }
            path => self.chain_plan(path, packet, outline),
        }
    }

    /// Appends a copy of a plan whose new headers have DF clear.
    pub fn allow_fragments(&mut self, plans: &mut EncapPlans, id: PlanId) -> PlanId {
        let mut plan = plans[id];
        plan.outer.dont_fragment = false;
        plan.chain = chain::allow_fragments(self.chains, plan.chain);
        if let Some(compression) = &mut plan.compression {
            compression.compressed = self.allow_fragments(plans, compression.compressed);
            compression.plain = self.allow_fragments(plans, compression.plain);
            if let Some(outer) = &mut compression.tunnel {
                outer.dont_fragment = false;
            }
        }
        plans.push(plan)
    }

    /// Bytes of an AGGFRAG payload of `sa`.
    pub fn payload_room(&mut self, sa: &Sa) -> usize {
        aggfrag::payload_capacity(&sa.config, self.paths.choice(sa.config.id.destination))
    }

    /// One ESP SA, whose outer header any socket can write.
    fn single_plan(
        &mut self,
        index: SaIndex,
        packet: &[u8],
        outline: &Outline,
    ) -> Result<EncapPlan, Dropped> {
        let sa = self.snapshot.sa(index);
        let (outer, next_header, outside) = envelope(sa, packet, outline)?;
        let path_mtu = self.paths.mtu(outer.destination);
        Ok(EncapPlan {
            sa: index,
            outer,
            next_header,
            outside,
            // In transport mode the packet's own IP header is the outer one.
            inner_mtu: outside + pmtu::inner_mtu(&sa.config, path_mtu),
            chain: ChainRange::default(),
            is_aggfrag: false,
            compression: None,
        })
    }

    /// AH, several SAs, or IP headers that are written here.
    fn chain_plan(
        &mut self,
        path: &[SaIndex],
        packet: &[u8],
        outline: &Outline,
    ) -> Result<EncapPlan, Dropped> {
        let is_aggfrag = |index: &SaIndex| self.snapshot.sa(*index).config.aggfrag.is_some();
        if path.iter().any(is_aggfrag) {
            return Err(Dropped::Unsupported);
        }
        let start = self.chains.len();
        let path_mtu = |peer| self.paths.mtu(peer);
        let built = chain::build(self.snapshot, path, packet, outline, self.chains, path_mtu)?;
        let innermost = self.chains[start];
        Ok(EncapPlan {
            sa: innermost.sa,
            outer: built.outer,
            next_header: innermost.mode.next_header(),
            outside: innermost.mode.outside(),
            inner_mtu: built.inner_mtu,
            chain: ChainRange::new(start..self.chains.len()),
            is_aggfrag: false,
            compression: None,
        })
    }

    /// Policy's answer: the SAs that the packet goes through, innermost first.
    fn decide(&self, outline: &Outline) -> Result<&'a [SaIndex], Dropped> {
        match self.snapshot.outbound_via(self.interface, outline) {
            Decision::Protect(path) => Ok(path),
            // Such a packet should not have been routed here; this direction never sends unencrypted.
            Decision::Bypass => Err(Dropped::NoPolicy),
            Decision::Drop(Dropped::Acquire) => Err(self.acquire(0, outline)),
            Decision::Drop(reason) => Err(reason),
            Decision::Acquire { policy } => Err(self.acquire(policy, outline)),
        }
    }

    /// Asks the key manager for an SA.
    fn acquire(&self, policy: u32, outline: &Outline) -> Dropped {
        (self.hook)(Notice::Acquire {
            policy,
            interface: self.interface,
            outline: *outline,
        });
        Dropped::Acquire
    }
}

/// The plan of all packets of an SA in AGGFRAG mode.
pub(super) fn aggfrag_plan(sa: &Sa, index: SaIndex, path_mtu: usize) -> EncapPlan {
    EncapPlan {
        sa: index,
        outer: Outer::for_aggfrag(&sa.config),
        next_header: aggfrag::PROTOCOL,
        outside: 0,
        inner_mtu: match sa.config.aggfrag {
            // A packet of any length continues in the next payload.
            Some(aggfrag) if aggfrag.fragments => usize::from(u16::MAX),
            _ => aggfrag::payload_capacity(&sa.config, path_mtu),
        },
        is_aggfrag: true,
        compression: None,
        chain: ChainRange::default(),
    }
}

/// Whether packets of one SA need nothing but an ESP header and an outer header that any socket can write.
fn is_single_esp(config: &SaConfig, outline: &Outline) -> bool {
    let has_rare_headers = outline.transport_offset != plain_len(outline);
    config.id.protocol == Protocol::Esp && (!has_rare_headers || is_tunnel(config, outline))
}

/// Bytes of an IP header without options.
fn plain_len(outline: &Outline) -> usize {
    if outline.source.is_ipv4() { 20 } else { 40 }
}

/// The outer header, the next header inside, and how much of the packet stays outside.
fn envelope(sa: &Sa, packet: &[u8], outline: &Outline) -> Result<(Outer, u8, usize), Dropped> {
    if is_tunnel(&sa.config, outline) {
        let inside = if outline.source.is_ipv4() { IPV4 } else { IPV6 };
        return Ok((Outer::around(&sa.config, outline), inside, 0));
    }
    // RFC 4301 4.1: transport mode is for whole packets.
    let plain = plain_len(outline);
    if outline.fragment != FragmentKind::Whole {
        return Err(Dropped::Fragment);
    }
    let next_header = packet.get(if plain == 20 { 9 } else { 6 });
    let outer = Outer {
        source: outline.source,
        destination: outline.destination,
        traffic_class: outline.traffic_class,
        dont_fragment: outline.dont_fragment,
        hop_limit: outline.hop_limit,
        ..Outer::around(&sa.config, outline)
    };
    Ok((outer, *next_header.ok_or(Dropped::Malformed)?, plain))
}
