//! Which associations a policy's templates lead to: decided once for each snapshot, not once for each packet.

use super::SaIndex;
use super::alike::{Alike, Ends, wanted_reqid};
use super::choices::{Choices, merit};
use super::interfaces::Interfaces;
use crate::policy::{Action, Level, Policy, Template};
use crate::sa::{Mode, Reqid, Sa, SaConfig};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What happens to outbound traffic of one policy.
pub(super) enum Route {
    Discard,
    /// Bypass or entrust.
    Bypass,
    /// The same for every packet; `None` if a demanded association is missing.
    Fixed(Option<SaPaths>),
    /// Transport mode between the hosts of the packet.
    #[expect(
        clippy::box_collection,
        reason = "rare, and would make all others large"
    )]
    ByHosts(Box<HashMap<(IpAddr, IpAddr), SaPaths>>),
    /// Associations of the policy's device, by their own selectors.
    ByDevice(Choices),
}

/// The associations that inbound traffic of one policy must have come through; checked against the templates.
pub(super) enum Demand {
    Discard,
    /// Nothing at all: bypass or entrust.
    Bypass,
    /// The templates. A packet that came through this association alone is known to satisfy them.
    Protect {
        known: Option<SaIndex>,
    },
}

/// The associations of one policy between two ends.
pub(super) enum SaPaths {
    /// One after the other, innermost first.
    Single(Path),
    /// One of these, by flow; there is one.
    Spread(Box<[SaIndex]>),
}

/// Associations one after the other. A single one is stored inline.
pub(super) enum Path {
    One([SaIndex; 1]),
    Several(Box<[SaIndex]>),
}

impl From<Vec<SaIndex>> for Path {
    fn from(path: Vec<SaIndex>) -> Self {
        match *path {
            [only] => Self::One([only]),
            _ => Self::Several(path.into()),
        }
    }
}

impl std::ops::Deref for Path {
    type Target = [SaIndex];

    fn deref(&self) -> &[SaIndex] {
        match self {
            Self::One(only) => only,
            Self::Several(path) => path,
        }
    }
}

impl Route {
    /// The associations for packets between two hosts.
    pub(super) fn between(&self, source: IpAddr, destination: IpAddr) -> Option<&SaPaths> {
        match self {
            Self::Discard | Self::Bypass | Self::ByDevice(_) => None,
            Self::Fixed(way) => way.as_ref(),
            Self::ByHosts(ways) => ways.get(&(source, destination)),
        }
    }

    /// All paths that packets may take; of a policy between many hosts those of any one pair.
    pub(super) fn paths(&self) -> impl Iterator<Item = &[SaIndex]> {
        let way = match self {
            Self::Discard | Self::Bypass | Self::ByDevice(_) => None,
            Self::Fixed(way) => way.as_ref(),
            Self::ByHosts(ways) => ways.values().next(),
        };
        let (path, alternatives) = match way {
            Some(SaPaths::Single(path)) => (Some(&**path), &[][..]),
            Some(SaPaths::Spread(alternatives)) => (None, &**alternatives),
            None => (None, &[][..]),
        };
        let alternatives = alternatives.iter().map(std::slice::from_ref);
        let choices = match self {
            Self::ByDevice(choices) => Some(choices),
            _ => None,
        };
        let by_device = choices.into_iter().flat_map(Choices::paths);
        path.into_iter().chain(alternatives).chain(by_device)
    }
}

/// Associations by the addresses and protocol they work between.
pub(super) struct Resolver<'a> {
    sas: &'a [Arc<Sa>],
    interfaces: &'a Interfaces,
    between: Alike<'a>,
    /// The same by their numbers too: thousands of tunnels between two gateways differ by these alone.
    numbered: Alike<'a>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(sas: &'a [Arc<Sa>], interfaces: &'a Interfaces) -> Self {
        Self {
            sas,
            interfaces,
            between: Alike::of(sas, |ends| Ends {
                reqid: Reqid(0),
                ..ends
            }),
            numbered: Alike::of(sas, |ends| ends),
        }
    }

    pub(super) fn route(&self, policy: &Policy) -> Route {
        let templates = match &policy.action {
            Action::Discard => return Route::Discard,
            Action::Bypass | Action::Entrust => return Route::Bypass,
            Action::Protect(templates) => templates,
        };
        if let Some(device) = &policy.device {
            let outbound = self.interfaces.outbound(device);
            let choices = Choices::among(self.sas, outbound, |config| serves(config, policy));
            return Route::ByDevice(choices);
        }
        let starts_fixed = templates
            .first()
            .is_none_or(|template| template.endpoints.is_some());
        let selector = &policy.selector;
        if starts_fixed {
            // Never used as addresses: the first template replaces them.
            let hosts = (selector.source.address, selector.destination.address);
            return Route::Fixed(self.way(policy, templates, hosts));
        }
        let pairs = match (selector.source.is_host(), selector.destination.is_host()) {
            (true, true) => vec![(selector.source.address, selector.destination.address)],
            _ => self.host_pairs_within(policy),
        };
        let resolved = pairs
            .into_iter()
            .filter_map(|hosts| Some((hosts, self.way(policy, templates, hosts)?)));
        Route::ByHosts(Box::new(resolved.collect()))
    }

    pub(super) fn demand(&self, policy: &Policy) -> Demand {
        match &policy.action {
            Action::Discard => Demand::Discard,
            Action::Bypass | Action::Entrust => Demand::Bypass,
            Action::Protect(templates) => Demand::Protect {
                known: self.known(templates),
            },
        }
    }

    /// The youngest association of those that satisfy a tunnel's one template by themselves.
    fn known(&self, templates: &[Template]) -> Option<SaIndex> {
        let [only] = templates else {
            return None;
        };
        let wanted = Ends::of_template(only, only.endpoints?);
        let mut candidates = match wanted.reqid {
            Reqid(0) => self.between.with(wanted),
            _ => self.numbered.with(wanted),
        };
        candidates.find(|index| satisfies(&self.sas[index.0 as usize], only))
    }

    fn host_pairs_within(&self, policy: &Policy) -> Vec<(IpAddr, IpAddr)> {
        let within = |ends: &Ends| {
            policy.selector.source.contains(ends.source)
                && policy.selector.destination.contains(ends.destination)
        };
        let all = self.between.ends().filter(within);
        all.map(|ends| (ends.source, ends.destination)).collect()
    }

    /// The associations for packets between two hosts; `None` if a required one is missing.
    fn way(
        &self,
        policy: &Policy,
        templates: &[Template],
        hosts: (IpAddr, IpAddr),
    ) -> Option<SaPaths> {
        if let ([only], 2..) = (templates, policy.spread) {
            let ends = only.endpoints.unwrap_or(hosts);
            let alternatives = self.youngest(only, ends, policy.spread.into());
            if !alternatives.is_empty() {
                return Some(SaPaths::Spread(alternatives));
            }
        }
        self.resolve(templates, hosts).map(SaPaths::Single)
    }

    /// The associations for a packet between two hosts, innermost first; `None` if a demanded one is missing.
    fn resolve(&self, templates: &[Template], mut hosts: (IpAddr, IpAddr)) -> Option<Path> {
        let mut path = Vec::with_capacity(templates.len());
        for template in templates {
            let ends = template.endpoints.unwrap_or(hosts);
            match self.best(template, ends) {
                Some(index) => {
                    path.push(index);
                    hosts = ends;
                }
                None if template.level == Level::Use => {}
                None => return None,
            }
        }
        Some(path.into())
    }

    /// The youngest association that fits, if possible one that is not dying: as the kernel chooses.
    fn best(&self, template: &Template, ends: (IpAddr, IpAddr)) -> Option<SaIndex> {
        self.fitting(template, ends)
            .max_by_key(|index| self.merit(*index))
    }

    /// The same, but up to `most` of them. A dying one stays among them until its successor takes its place: flows then
    /// move once.
    fn youngest(&self, template: &Template, ends: (IpAddr, IpAddr), most: usize) -> Box<[SaIndex]> {
        let mut fitting: Vec<_> = self.fitting(template, ends).collect();
        // Cached: an association may become dying while it is compared with others.
        fitting.sort_by_cached_key(|index| std::cmp::Reverse(self.merit(*index)));
        fitting.truncate(most);
        fitting.into()
    }

    fn fitting(
        &self,
        template: &Template,
        ends: (IpAddr, IpAddr),
    ) -> impl Iterator<Item = SaIndex> {
        // As in the kernel: a template without a number leads to associations without a number.
        let candidates = self.numbered.with(Ends::of_template(template, ends));
        candidates.filter(|index| {
            let sa = &self.sas[index.0 as usize];
            sa.is_alive() && mode_fits(sa, template.mode)
        })
    }

    fn merit(&self, index: SaIndex) -> (bool, u32) {
        merit(self.sas, index)
    }
}

/// Whether an association of a policy's device serves the policy, by protocol and number.
pub(super) fn serves(config: &SaConfig, policy: &Policy) -> bool {
    let Action::Protect(templates) = &policy.action else {
        return false;
    };
    let fits = |template: &Template| {
        config.id.protocol == template.protocol && config.reqid == wanted_reqid(template)
    };
    templates.iter().any(fits)
}

/// Whether an association that a packet came through satisfies a template (RFC 4301 5.2).
pub(super) fn satisfies(sa: &Sa, template: &Template) -> bool {
    let wanted = wanted_reqid(template);
    let ends = (sa.config.source, sa.config.id.destination);
    sa.config.interface.is_none()
        && sa.config.id.protocol == template.protocol
        && mode_fits(sa, template.mode)
        && (wanted == Reqid(0) || sa.config.reqid == wanted)
        && template.endpoints.is_none_or(|wanted| wanted == ends)
}

/// Whether two policies demand the same of every packet that arrives. `unique` without a number is `require` in the
/// `fwd` policy that setkey makes of an `in` policy.
pub(super) fn demand_alike(one: &Policy, other: &Policy) -> bool {
    let template = |template: &Template| {
        let Template {
            protocol,
            mode,
            endpoints,
            level,
        } = *template;
        let is_optional = level == Level::Use;
        (
            protocol,
            mode,
            endpoints,
            is_optional,
            wanted_reqid(template),
        )
    };
    let alike = match (&one.action, &other.action) {
        (Action::Discard, Action::Discard) => true,
        (Action::Bypass | Action::Entrust, Action::Bypass | Action::Entrust) => true,
        (Action::Protect(one), Action::Protect(other)) => {
            one.iter().map(template).eq(other.iter().map(template))
        }
        (Action::Discard | Action::Bypass | Action::Entrust | Action::Protect(_), _) => false,
    };
    alike && one.selector == other.selector && one.device == other.device
}

fn mode_fits(sa: &Sa, mode: Mode) -> bool {
    sa.config.mode == mode || sa.config.mode == Mode::Any
}
