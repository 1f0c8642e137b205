//! Associations by which the same packets arrive, one inside the other.

use super::super::resolve::satisfies;
use super::Snapshot;
use crate::policy::{Action, Direction};
use crate::sa::{Sa, SaId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Snapshot {
    /// All associations, those together that `in` or `fwd` policies want one inside the other, the outermost first. An
    /// association that no policy wants inside or around another one is alone.
    pub fn bundles(&self) -> Vec<Vec<Arc<Sa>>> {
        let mut bundle_of: Vec<usize> = (0..self.sas.len()).collect();
        let mut depths = vec![0; self.sas.len()];
        for nested in self.nested() {
            let all: Vec<usize> = nested.iter().map(|(place, _)| bundle_of[*place]).collect();
            if let Some(first) = all.first() {
                let others = bundle_of.iter_mut().filter(|bundle| all.contains(bundle));
                others.for_each(|bundle| *bundle = *first);
            }
            for (place, depth) in nested {
                depths[place] = depths[place].max(depth);
            }
        }
        let mut bundles: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, bundle) in bundle_of.into_iter().enumerate() {
            bundles.entry(bundle).or_default().push(place);
        }
        let ordered = bundles.into_values().map(|mut places| {
            places.sort_by_key(|place| depths[*place]);
            places
                .iter()
                .map(|place| Arc::clone(&self.sas[*place]))
                .collect()
        });
        ordered.collect()
    }

    /// The same of some associations alone.
    pub fn bundles_of(&self, is_meant: impl Fn(&SaId) -> bool) -> Vec<Vec<Arc<Sa>>> {
        let mut bundles = self.bundles();
        for bundle in &mut bundles {
            bundle.retain(|sa| is_meant(&sa.config.id));
        }
        bundles.retain(|bundle| !bundle.is_empty());
        bundles
    }

    /// Of each policy with several templates for what arrives: the places of the associations that satisfy one of them,
    /// and how many templates are around it.
    fn nested(&self) -> Vec<Vec<(usize, usize)>> {
        let policies = [Direction::In, Direction::Fwd].into_iter();
        let policies = policies.flat_map(|direction| self.policies(direction));
        let nested = policies.filter_map(|(_, policy)| match &policy.action {
            Action::Protect(templates) if templates.len() > 1 => Some(templates),
            _ => None,
        });
        let each = nested.map(|templates| {
            let satisfying = templates.iter().rev().enumerate();
            let satisfying = satisfying.flat_map(|(depth, template)| {
                let places = self.sas.iter().enumerate();
                let those = places.filter(|(_, sa)| satisfies(sa, template));
                those.map(move |(place, _)| (place, depth))
            });
            satisfying.collect()
        });
        each.collect()
    }
}
