//! Both databases at one moment, with everything a packet needs looked up beforehand.

mod bundles;
mod devices;

use super::SaIndex;
use super::alike::words_of;
use super::choices::is_for;
use super::compression::Compressing;
use super::hash_index::HashIndex;
use super::index::{Fit, Index};
use super::interfaces::Interfaces;
use super::resolve::{Demand, Resolver, Route, SaPaths, demand_alike, satisfies, serves};
use super::spd_entry::SpdEntry;
use super::spread::Spreader;
use crate::Dropped;
use crate::packet::Outline;
use crate::policy::{Direction, Level, Policy, Template};
use crate::sa::{Protocol, Sa, SaId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Both databases at one moment. Taken once per batch; nothing in it changes but the associations' own state.
#[derive(Default)]
pub struct Snapshot {
    pub(super) sas: Vec<Arc<Sa>>,
    pub(super) places: HashIndex,
    pub(super) out: Spd<Route>,
    pub(super) inbound: Spd<Demand>,
    pub(super) forward: Spd<Demand>,
    /// Whether the verdicts of `in` and `fwd` policies can differ. Where they cannot, a packet is checked once.
    pub(super) in_and_fwd_differ: bool,
    interfaces: Interfaces,
    spreader: Spreader,
    pub(super) compressing: Compressing,
}

/// What inbound policy allows for a packet that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Allowed {
    /// To be delivered here or forwarded, as its destination has it.
    Both,
    /// To be delivered here and nothing else: an `in` policy lets it pass, no `fwd` policy does.
    In,
    /// To be forwarded and nothing else.
    Fwd,
}

/// The result of the outbound policy look-up for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision<'a> {
    /// Pass in clear.
    Bypass,
    /// Drop, and why.
    Drop(Dropped),
    /// Protect by these, the first applied innermost.
    Protect(&'a [SaIndex]),
    /// A policy requires protection and no association exists: a key manager may create one.
    Acquire {
        /// Number of the policy.
        policy: u32,
    },
}

/// The policies of one direction in order of precedence, each with its decision.
pub(super) struct Spd<A> {
    pub entries: Vec<Entry<A>>,
    pub index: Index,
}

/// A policy in one snapshot. INVARIANT: all that a packet reads fits into a cache line.
#[repr(align(64))]
pub(super) struct Entry<A> {
    pub answer: A,
    /// Set by readers without a clock; [`super::Database::tick`] turns it into a time.
    used: AtomicBool,
    spd: Arc<SpdEntry>,
}

impl Snapshot {
    pub(super) fn new(
        sas: Vec<Arc<Sa>>,
        policies: impl Iterator<Item = Arc<SpdEntry>>,
        interfaces: Interfaces,
        spreader: Spreader,
    ) -> Self {
        let (mut out, mut inbound, mut forward) = (Vec::new(), Vec::new(), Vec::new());
        for entry in policies {
            match entry.policy.direction {
                Direction::Out => out.push(entry),
                Direction::In => inbound.push(entry),
                Direction::Fwd => forward.push(entry),
            }
        }
        let resolver = Resolver::new(&sas, &interfaces);
        let demand = |policy: &Policy| resolver.demand(policy);
        let out = Spd::new(out, |policy| resolver.route(policy));
        let (inbound, forward) = (Spd::new(inbound, demand), Spd::new(forward, demand));
        let in_and_fwd_differ = !inbound.judges_as(&forward);
        let compressing = Compressing::among(&sas);
        let places = HashIndex::of(sas.iter().map(|sa| words(&sa.config.id)));
        Self {
            sas,
            places,
            out,
            inbound,
            forward,
            in_and_fwd_differ,
            interfaces,
            spreader,
            compressing,
        }
    }

    /// Whether the verdicts of `in` and `fwd` policies about a packet can differ.
    pub fn in_and_fwd_differ(&self) -> bool {
        self.in_and_fwd_differ
    }

    /// Calls `mark` for each policy that was used since the last call.
    pub(super) fn take_used(&self, mut mark: impl FnMut(&SpdEntry)) {
        self.out.take_used(&mut mark);
        self.inbound.take_used(&mut mark);
        self.forward.take_used(&mut mark);
    }

    /// The association for an arriving packet.
    pub fn find(&self, id: &SaId) -> Option<SaIndex> {
        let is_it = |place| self.sa(SaIndex(place)).config.id == *id;
        self.places.find(words(id), is_it).map(SaIndex)
    }

    /// The association at a place found in this snapshot.
    pub fn sa(&self, index: SaIndex) -> &Sa {
        // INVARIANT: indices come from `find` or `outbound` of this very snapshot.
        &self.sas[index.0 as usize]
    }

    /// All associations.
    pub fn sas(&self) -> impl Iterator<Item = &Arc<Sa>> {
        self.sas.iter()
    }

    /// All policies of one direction in the order in which they are searched, with their numbers.
    pub fn policies(&self, direction: Direction) -> impl Iterator<Item = (u32, &Arc<Policy>)> {
        let out = (direction == Direction::Out).then(|| self.out.policies());
        let inbound = self.demands(direction).map(Spd::policies);
        out.into_iter()
            .flatten()
            .chain(inbound.into_iter().flatten())
    }

    /// All outbound policies in the order in which they are searched, each with the paths that its packets may take: a
    /// path's associations innermost first, and several paths where flows are spread. Of a policy between many hosts
    /// only those of any one pair are returned.
    pub fn outbound_paths(
        &self,
    ) -> impl Iterator<Item = (&Arc<Policy>, impl Iterator<Item = &[SaIndex]>)> {
        let entries = self.out.entries.iter();
        entries.map(|entry| (&entry.spd.policy, entry.answer.paths()))
    }

    /// Over how many associations the flows of a policy are spread whose packet this is; 0 where they are not.
    pub(super) fn alternatives(&self, packet: &Outline) -> usize {
        let found = self.out.index.find(packet);
        let route = found.map(|(rank, _)| &self.out.entries[rank as usize].answer);
        match route.and_then(|route| route.between(packet.source, packet.destination)) {
            Some(SaPaths::Spread(alternatives)) => alternatives.len(),
            Some(SaPaths::Single(_)) | None => 0,
        }
    }

    /// Outbound policy for a packet about to leave (RFC 4301 5.1).
    pub fn outbound(&self, packet: &Outline) -> Decision<'_> {
        let Some((rank, fit)) = self.out.index.find(packet) else {
            return Decision::Drop(Dropped::NoPolicy);
        };
        if fit == Fit::Unclear {
            return Decision::Drop(Dropped::Fragment);
        }
        let entry = &self.out.entries[rank as usize];
        entry.mark_used();
        match &entry.answer {
            Route::Discard => Decision::Drop(Dropped::PolicyDiscard),
            Route::Bypass => Decision::Bypass,
            Route::ByDevice(choices) => match choices.for_packet(packet) {
                Some(path) => Decision::Protect(path),
                None => without_association(&entry.spd),
            },
            route @ (Route::Fixed(_) | Route::ByHosts(_)) => {
                match route.between(packet.source, packet.destination) {
                    Some(SaPaths::Single(path)) if path.is_empty() => Decision::Bypass,
                    Some(SaPaths::Single(path)) => Decision::Protect(path),
                    Some(SaPaths::Spread(alternatives)) => {
                        let sa = |index| self.sa(index);
                        Decision::Protect(self.spreader.choose(alternatives, packet, sa))
                    }
                    None => without_association(&entry.spd),
                }
            }
        }
    }

    /// Inbound policy for a packet that came through `path` (outermost first; empty if it came in clear): RFC 4301 5.2.
    /// Whether the host delivers or forwards it is the kernel's decision: `in` is checked for delivery, `fwd` for
    /// forwarding, independently.
    pub fn inbound(&self, packet: &Outline, path: &[SaIndex]) -> Result<Allowed, Dropped> {
        if let [only] = path
            && self.interface_of(*only) != 0
        {
            if !is_for(&self.sa(*only).config, packet) {
                return Err(Dropped::PolicyMismatch);
            }
            if !self.interfaces.follows_policies(self.interface_of(*only)) {
                return Ok(Allowed::Both);
            }
        }
        let here = self.allows(&self.inbound, packet, path);
        if !self.in_and_fwd_differ {
            return here.map(|()| Allowed::Both);
        }
        match (here, self.allows(&self.forward, packet, path)) {
            (Ok(()), Ok(())) => Ok(Allowed::Both),
            (Ok(()), Err(_)) => Ok(Allowed::In),
            (Err(_), Ok(())) => Ok(Allowed::Fwd),
            (Err(reason), Err(Dropped::NoPolicy)) | (Err(_), Err(reason)) => Err(reason),
        }
    }

    /// The same for a packet that can only be forwarded.
    pub fn forwarded(&self, packet: &Outline, path: &[SaIndex]) -> Result<(), Dropped> {
        self.allows(&self.forward, packet, path)
    }

    fn allows(&self, spd: &Spd<Demand>, packet: &Outline, path: &[SaIndex]) -> Result<(), Dropped> {
        let (rank, fit) = spd.index.find(packet).ok_or(Dropped::NoPolicy)?;
        if fit == Fit::Unclear {
            return Err(Dropped::Fragment);
        }
        let entry = &spd.entries[rank as usize];
        entry.mark_used();
        match &entry.answer {
            Demand::Discard => Err(Dropped::PolicyDiscard),
            Demand::Bypass if path.is_empty() => Ok(()),
            Demand::Bypass => Err(Dropped::PolicyMismatch),
            Demand::Protect { known: Some(sa) } if path == [*sa] => Ok(()),
            Demand::Protect { .. } if self.came_by_its_device(&entry.spd.policy, path) => Ok(()),
            Demand::Protect { .. } if self.satisfies_templates(entry.spd.templates(), path) => {
                Ok(())
            }
            Demand::Protect { .. } => Err(Dropped::PolicyMismatch),
        }
    }

    /// Whether the packet came through an association of the policy's device that serves the policy.
    fn came_by_its_device(&self, policy: &Policy, path: &[SaIndex]) -> bool {
        let (Some(device), [only]) = (&policy.device, path) else {
            return false;
        };
        let config = &self.sa(*only).config;
        config.interface.as_ref() == Some(device) && serves(config, policy)
    }

    /// Whether `path` is what `templates` require, no less and no more.
    fn satisfies_templates(&self, templates: &[Template], path: &[SaIndex]) -> bool {
        let mut path = path.iter().map(|index| self.sa(*index)).peekable();
        for template in templates.iter().rev() {
            let came_through = path.next_if(|sa| satisfies(sa, template)).is_some();
            // RFC 3173 2.2: what does not become shorter comes without its IPComp header.
            let is_optional = template.level == Level::Use || template.protocol == Protocol::IpComp;
            if !came_through && !is_optional {
                return false;
            }
        }
        path.peek().is_none()
    }

    /// The first policy of a direction that fits a packet, with its number.
    pub(super) fn matching(
        &self,
        direction: Direction,
        packet: &Outline,
    ) -> Option<(u32, Arc<Policy>)> {
        match self.demands(direction) {
            Some(spd) => spd.matching(packet),
            None => self.out.matching(packet),
        }
    }

    /// The policies of an inbound direction, which check the associations that a packet came through.
    fn demands(&self, direction: Direction) -> Option<&Spd<Demand>> {
        match direction {
            Direction::Out => None,
            Direction::In => Some(&self.inbound),
            Direction::Fwd => Some(&self.forward),
        }
    }
}

/// The decision about a packet that requires protection where no association exists.
fn without_association(entry: &SpdEntry) -> Decision<'static> {
    let is_optional = |template: &Template| template.level == Level::Use;
    if entry.templates().iter().all(is_optional) {
        Decision::Bypass
    } else {
        Decision::Acquire { policy: entry.id }
    }
}

/// The key of an association in the hash index.
pub(super) fn words(id: &SaId) -> [u64; 3] {
    let [high, low] = words_of(id.destination);
    let rest = u64::from(id.spi.get()) | u64::from(id.protocol.number()) << 32;
    [high, low, rest]
}

impl<A> Entry<A> {
    fn mark_used(&self) {
        // A load first: readers on many cores then share the cache line instead of invalidating it.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

impl<A> Default for Spd<A> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            index: Index::default(),
        }
    }
}

impl<A> Spd<A> {
    fn new(mut policies: Vec<Arc<SpdEntry>>, resolve: impl Fn(&Policy) -> A) -> Self {
        // Stable: among equals the one added first goes first.
        policies.sort_by_key(|entry| std::cmp::Reverse(entry.policy.priority));
        let resolved = policies.into_iter().map(|spd| Entry {
            answer: resolve(&spd.policy),
            used: AtomicBool::new(false),
            spd,
        });
        let entries: Vec<_> = resolved.collect();
        let index = Index::new(entries.iter().map(|entry| &entry.spd.policy.selector));
        Self { entries, index }
    }

    /// Calls `mark` for each policy that was used since the last call.
    fn take_used(&self, mark: &mut impl FnMut(&SpdEntry)) {
        for entry in &self.entries {
            // A load first: of thousands few were used since the last time.
            if entry.used.load(Ordering::Relaxed) && entry.used.swap(false, Ordering::Relaxed) {
                mark(&entry.spd);
            }
        }
    }

    /// Whether both give every packet the same verdict: the same policies in the same order, up to levels that mean the
    /// same.
    fn judges_as(&self, other: &Self) -> bool {
        let alike =
            |(one, two): (&Entry<A>, &Entry<A>)| demand_alike(&one.spd.policy, &two.spd.policy);
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(alike)
    }

    fn policies(&self) -> impl Iterator<Item = (u32, &Arc<Policy>)> {
        let entries = self.entries.iter();
        entries.map(|entry| (entry.spd.id, &entry.spd.policy))
    }

    /// The first policy that fits a packet, with its number.
    fn matching(&self, packet: &Outline) -> Option<(u32, Arc<Policy>)> {
        let (rank, _) = self.index.find(packet)?;
        let spd = &self.entries[rank as usize].spd;
        Some((spd.id, Arc::clone(&spd.policy)))
    }
}
