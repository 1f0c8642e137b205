//! Where the gateway's routes lead: the destinations of protected traffic, and how large packets to each may be.

use super::{Disposition, Entry, Family, Plan, Way, masked};
use ipsec::policy::Prefix;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A masked prefix.
pub(crate) type Destination = (Family, IpAddr, u8);

/// Size limit towards a destination.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fit {
    /// The largest packet, if known.
    pub mtu: Option<u32>,
    /// Whether larger ones are not fragmented before they are protected.
    pub whole: bool,
    /// The device into which the destination's own policies lead, if they agree.
    pub device: Option<Arc<str>>,
    /// The way to a peer, of the first of the destination's own policies that has one.
    pub via: Option<Way>,
}

impl Fit {
    /// The limit that satisfies both; device and way stay.
    fn and(self, other: &Self) -> Self {
        Self {
            mtu: self.mtu.into_iter().chain(other.mtu).min(),
            whole: self.whole && other.whole,
            ..self
        }
    }

    /// Of two policies for one destination. Without a common device the gateway's first one takes their traffic: the
    /// policies decide where it leaves. The kernel looks up a tunnel's outer packets by themselves, so that either way
    /// does.
    fn beside(self, other: Self) -> Self {
        let device = self.device.clone().filter(|_| self.device == other.device);
        let via = self.via.clone().or_else(|| other.via.clone());
        Self {
            device,
            via,
            ..self.and(&other)
        }
    }
}

/// For each destination of protected traffic the limit of its own policies.
struct OwnFits {
    fits: BTreeMap<Destination, Fit>,
    /// The lengths of its prefixes.
    lens: BTreeSet<u8>,
}

impl Plan {
    /// The contents of the gateway's routing table: for each destination of protected traffic the largest packet that
    /// fits. A destination inside a wider one also gets its limit and the reverse, because the kernel uses the longest
    /// prefix only.
    pub(crate) fn destinations(&self) -> BTreeMap<Destination, Fit> {
        let own = OwnFits::of(self);
        let all = own.fits.keys().copied();
        all.map(|destination| (destination, own.fit(destination)))
            .collect()
    }

    /// Those of [`Self::destinations`] that are not the same for `before`, a plan that drops the same. Only what
    /// overlaps with a policy that has changed is looked at.
    pub(crate) fn changed_destinations(&self, before: &Self) -> BTreeMap<Destination, Fit> {
        let both = self.leaving.iter().zip(&before.leaving);
        let changed = both.filter(|(entry, before)| entry != before);
        let changed: BTreeSet<_> = changed
            .filter_map(|(entry, _)| entry.destination())
            .collect();
        if changed.is_empty() {
            return BTreeMap::new();
        }
        let (own, before) = (OwnFits::of(self), OwnFits::of(before));
        let reached: BTreeSet<_> = changed
            .into_iter()
            .flat_map(|changed| own.overlapping(changed))
            .collect();
        reached
            .into_iter()
            .map(|destination| (destination, own.fit(destination)))
            .filter(|(destination, fit)| before.fit(*destination) != *fit)
            .collect()
    }
}

impl Entry {
    /// Where it needs a route to, if it is protected.
    fn destination(&self) -> Option<Destination> {
        let Prefix { address, len } = self.selector.destination;
        let family = self.family();
        let protected = family.filter(|_| self.verdict == Disposition::Protect);
        protected.map(|family| (family, address, len))
    }
}

impl OwnFits {
    fn of(plan: &Plan) -> Self {
        let mut fits: BTreeMap<_, Fit> = BTreeMap::new();
        for entry in &plan.leaving {
            let Some(destination) = entry.destination() else {
                continue;
            };
            let fit = Fit {
                mtu: entry.mtu,
                whole: entry.whole,
                device: entry.device.clone(),
                via: entry.via.clone(),
            };
            fits.entry(destination)
                .and_modify(|before| *before = before.clone().beside(fit.clone()))
                .or_insert(fit);
        }
        let lens = fits.keys().map(|(_, _, len)| *len).collect();
        Self { fits, lens }
    }

    /// The limit that satisfies all policies whose destinations overlap with this one.
    fn fit(&self, destination: Destination) -> Fit {
        let own = self.fits.get(&destination).cloned().unwrap_or_default();
        let others = self.overlapping(destination);
        let others = others.filter_map(|other| self.fits.get(&other));
        others.fold(own, Fit::and)
    }

    /// The destinations that overlap with this one, and itself.
    fn overlapping(
        &self,
        (family, address, len): Destination,
    ) -> impl Iterator<Item = Destination> {
        // Wider prefixes begin at this address masked to their length; prefixes inside it follow it in the map.
        let wider = self.lens.range(..len).filter_map(move |&len| {
            let wider = (family, masked(Prefix { address, len }).address, len);
            self.fits.contains_key(&wider).then_some(wider)
        });
        let inside = self.fits.range((family, address, len)..);
        let inside = inside.map(|(destination, _)| *destination);
        wider
            .chain(inside.take_while(move |(_, other, _)| Prefix { address, len }.contains(*other)))
    }
}
