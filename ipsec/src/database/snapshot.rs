//! Both databases at one moment, with everything a packet needs looked up beforehand.

use super::SpdEntry;
use super::index::{Fit, Index};
use super::interfaces::{Interface, Interfaces};
use super::resolve::{Resolver, Route, Way, satisfies};
use super::spread::Spreader;
use crate::Dropped;
use crate::packet::Outline;
use crate::policy::{Action, Direction, Level, Policy, Template};
use crate::sa::{Sa, SaId};
use std::collections::HashMap;
use std::sync::Arc;

/// Both databases at one moment. Taken once per batch; nothing in it changes but the associations' own state.
#[derive(Default)]
pub struct Snapshot {
    sas: Vec<Arc<Sa>>,
    places: HashMap<SaId, SaIndex>,
    out: Spd,
    inbound: Spd,
    forward: Spd,
    interfaces: Interfaces,
    spreader: Spreader,
}

/// An association's place in one snapshot. Never valid in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaIndex(pub u32);

/// What outbound policy says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision<'a> {
    /// Pass in clear.
    Bypass,
    /// Drop, and why.
    Drop(Dropped),
    /// Protect by these, the first applied innermost.
    Protect(&'a [SaIndex]),
    /// A policy wants protection and no association exists: tell whoever can make one.
    Acquire {
        /// Number of the policy.
        policy: u32,
    },
}

/// The policies of one direction in order of precedence.
#[derive(Default)]
struct Spd {
    entries: Vec<(Arc<SpdEntry>, Route)>,
    index: Index,
}

impl Snapshot {
    pub(super) fn new(
        sas: Vec<Arc<Sa>>,
        policies: impl Iterator<Item = Arc<SpdEntry>>,
        interfaces: Interfaces,
        spreader: Spreader,
    ) -> Self {
        let mut sorted: Vec<_> = policies.collect();
        // Stable: among equals the one added first goes first.
        sorted.sort_by_key(|entry| std::cmp::Reverse(entry.policy.priority));
        let resolver = Resolver::new(&sas);
        let spd = |direction| Spd::new(&sorted, direction, &resolver);
        let (out, inbound, forward) =
            (spd(Direction::Out), spd(Direction::In), spd(Direction::Fwd));
        let places = sas
            .iter()
            .zip(0..)
            .map(|(sa, place)| (sa.config.id, SaIndex(place)))
            .collect();
        Self {
            sas,
            places,
            out,
            inbound,
            forward,
            interfaces,
            spreader,
        }
    }

    /// The association for an arriving packet.
    pub fn find(&self, id: &SaId) -> Option<SaIndex> {
        self.places.get(id).copied()
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

    /// All policies of one direction in the order in which they are asked, with their numbers.
    pub fn policies(&self, direction: Direction) -> impl Iterator<Item = (u32, &Arc<Policy>)> {
        self.spd(direction)
            .entries
            .iter()
            .map(|(entry, _)| (entry.id, &entry.policy))
    }

    /// All outbound policies in the order in which they are asked, each with the paths that its packets may take: a path's
    /// associations innermost first, and several paths where flows are spread. Of a policy between many hosts only those of one
    /// pair are told, whoever they are.
    pub fn ways_out(
        &self,
    ) -> impl Iterator<Item = (&Arc<Policy>, impl Iterator<Item = &[SaIndex]>)> {
        let entries = self.out.entries.iter();
        entries.map(|(entry, route)| (&entry.policy, route.paths()))
    }

    /// Over how many associations the flows of a policy are spread whose packet this is; 0 where they are not.
    pub(super) fn alternatives(&self, packet: &Outline) -> usize {
        let found = self.out.index.find(packet);
        let route = found.map(|(rank, _)| &self.out.entries[rank as usize].1);
        match route.and_then(|route| route.between(packet.source, packet.destination)) {
            Some(Way::OneOf(alternatives)) => alternatives.len(),
            Some(Way::Path(_)) | None => 0,
        }
    }

    /// The devices that have associations of their own.
    pub fn interfaces(&self) -> &[Interface] {
        self.interfaces.all()
    }

    /// The number of the device out of which what comes through this association goes; 0 for the one that policies use.
    pub fn interface_of(&self, sa: SaIndex) -> u32 {
        self.interfaces.of(sa)
    }

    /// What becomes of a packet that was routed into a device. One with associations of its own needs no policy, and
    /// without an association nothing leaves.
    pub fn outbound_by(&self, interface: u32, packet: &Outline) -> Decision<'_> {
        match interface {
            0 => self.outbound(packet),
            number => match self.interfaces.way_out(number) {
                Some(sas) => Decision::Protect(sas),
                None => Decision::Drop(Dropped::Acquire),
            },
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
        let (entry, route) = &self.out.entries[rank as usize];
        entry.mark_used();
        match (&entry.policy.action, route) {
            (Action::Discard, _) => Decision::Drop(Dropped::PolicyDiscard),
            (Action::Bypass | Action::Entrust, _) => Decision::Bypass,
            (Action::Protect(templates), _) => {
                let way = route.between(packet.source, packet.destination);
                let sas = way.map(|way| match way {
                    Way::Path(path) => path,
                    Way::OneOf(alternatives) => {
                        let sa = |index| self.sa(index);
                        self.spreader.choose(alternatives, packet, sa)
                    }
                });
                decide(sas, templates, entry.id)
            }
        }
    }

    /// Inbound policy for a packet that came through `path` (outermost first; empty if it came in clear): RFC 4301
    /// 5.2. Whether the host keeps or forwards it is the kernel's business, so `in` and `fwd` may both allow it.
    pub fn inbound(&self, packet: &Outline, path: &[SaIndex]) -> Result<(), Dropped> {
        if let [only] = path
            && self.interface_of(*only) != 0
        {
            return Ok(());
        }
        match self.allows(&self.inbound, packet, path) {
            Ok(()) => Ok(()),
            Err(reason) => match self.allows(&self.forward, packet, path) {
                Err(Dropped::NoPolicy) => Err(reason),
                verdict => verdict,
            },
        }
    }

    fn allows(&self, spd: &Spd, packet: &Outline, path: &[SaIndex]) -> Result<(), Dropped> {
        let (rank, fit) = spd.index.find(packet).ok_or(Dropped::NoPolicy)?;
        if fit == Fit::Unclear {
            return Err(Dropped::Fragment);
        }
        let (entry, _) = &spd.entries[rank as usize];
        entry.mark_used();
        match &entry.policy.action {
            Action::Discard => Err(Dropped::PolicyDiscard),
            Action::Bypass | Action::Entrust if path.is_empty() => Ok(()),
            Action::Bypass | Action::Entrust => Err(Dropped::PolicyMismatch),
            Action::Protect(templates) if self.walked(templates, path) => Ok(()),
            Action::Protect(_) => Err(Dropped::PolicyMismatch),
        }
    }

    /// Whether a packet that came through `path` went through what `templates` demand, no less and no more.
    fn walked(&self, templates: &[Template], path: &[SaIndex]) -> bool {
        let mut path = path.iter().map(|index| self.sa(*index)).peekable();
        for template in templates.iter().rev() {
            let came_through = path.next_if(|sa| satisfies(sa, template)).is_some();
            if !came_through && template.level != Level::Use {
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
        let spd = self.spd(direction);
        let (rank, _) = spd.index.find(packet)?;
        let (entry, _) = &spd.entries[rank as usize];
        Some((entry.id, Arc::clone(&entry.policy)))
    }

    fn spd(&self, direction: Direction) -> &Spd {
        match direction {
            Direction::Out => &self.out,
            Direction::In => &self.inbound,
            Direction::Fwd => &self.forward,
        }
    }
}

/// What a policy that protects comes to, given the associations there are.
fn decide<'a>(sas: Option<&'a [SaIndex]>, templates: &[Template], policy: u32) -> Decision<'a> {
    match sas {
        Some([]) => Decision::Bypass,
        Some(sas) => Decision::Protect(sas),
        None if templates
            .iter()
            .all(|template| template.level == Level::Use) =>
        {
            Decision::Bypass
        }
        None => Decision::Acquire { policy },
    }
}

impl Spd {
    fn new(sorted: &[Arc<SpdEntry>], direction: Direction, resolver: &Resolver<'_>) -> Self {
        let of_direction = sorted
            .iter()
            .filter(|entry| entry.policy.direction == direction);
        let entries: Vec<_> = match direction {
            Direction::Out => of_direction
                .map(|entry| (Arc::clone(entry), resolver.route(&entry.policy)))
                .collect(),
            // Inbound, the packet's path is checked against the templates; nothing is resolved.
            Direction::In | Direction::Fwd => of_direction
                .map(|entry| (Arc::clone(entry), Route::None))
                .collect(),
        };
        let index = Index::new(entries.iter().map(|(entry, _)| &entry.policy.selector));
        Self { entries, index }
    }
}
