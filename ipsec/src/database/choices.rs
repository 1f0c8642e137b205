//! Which of a device's associations a packet leaves by: one that was negotiated for such packets. Of several the one of
//! the narrowest selector, then one that is not dying, then the youngest.

use super::SaIndex;
use super::index::matches;
use crate::packet::Outline;
use crate::policy::{Selector, Upper};
use crate::sa::{Phase, Sa, SaConfig};
use std::cmp::Reverse;
use std::sync::Arc;

/// Associations in the order in which they are tried, each once for each of its selectors.
#[derive(Default)]
pub(super) struct Choices(Box<[Choice]>);

struct Choice {
    /// None for any packet.
    selector: Option<Selector>,
    sa: [SaIndex; 1],
}

impl Choices {
    /// Those of `indices` that `serve`.
    pub fn among(sas: &[Arc<Sa>], indices: &[SaIndex], serve: impl Fn(&SaConfig) -> bool) -> Self {
        let mut choices = Vec::new();
        for &index in indices {
            let config = &sas[index.0 as usize].config;
            if !serve(config) {
                continue;
            }
            let sa = [index];
            let merit = merit(sas, index);
            if config.selectors.is_empty() {
                choices.push(((0, merit), Choice { selector: None, sa }));
            }
            let each = config.selectors.iter();
            choices.extend(each.map(|selector| {
                let selector = Some(*selector);
                (
                    (1 + selector.as_ref().map_or(0, narrowness), merit),
                    Choice { selector, sa },
                )
            }));
        }
        choices.sort_by_key(|(rank, _)| Reverse(*rank));
        Self(choices.into_iter().map(|(_, choice)| choice).collect())
    }

    /// The association for a packet. A later fragment is none of those whose selectors have ports.
    pub fn for_packet(&self, packet: &Outline) -> Option<&[SaIndex]> {
        let fits = |choice: &&Choice| {
            let selector = choice.selector.as_ref();
            selector.is_none_or(|selector| matches(selector, packet))
        };
        self.0.iter().find(fits).map(|choice| &choice.sa[..])
    }

    /// Each with its selector.
    pub fn each(&self) -> impl Iterator<Item = (Option<Selector>, SaIndex)> {
        self.0.iter().map(|choice| (choice.selector, choice.sa[0]))
    }

    /// All of them.
    pub fn paths(&self) -> impl Iterator<Item = &[SaIndex]> {
        self.0.iter().map(|choice| &choice.sa[..])
    }
}

/// Whether an association was negotiated for such packets.
pub(super) fn is_for(config: &SaConfig, packet: &Outline) -> bool {
    config.selectors.is_empty()
        || config
            .selectors
            .iter()
            .any(|selector| matches(selector, packet))
}

fn narrowness(selector: &Selector) -> u32 {
    let ports = selector.upper.ports();
    let upper = u32::from(selector.upper != Upper::Any);
    let ports = u32::from(ports.0.is_some()) + u32::from(ports.1.is_some());
    4 * (u32::from(selector.source.len) + u32::from(selector.destination.len)) + upper + ports
}

/// Larger for one that goes first: not dying, then the youngest.
pub(super) fn merit(sas: &[Arc<Sa>], index: SaIndex) -> (bool, u32) {
    let phase = sas[index.0 as usize].state.usage().phase;
    (phase == Phase::Mature, index.0)
}
