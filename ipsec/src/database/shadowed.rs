//! Associations with the same two ends, protocol and reqid: policies use the youngest for everything, as the kernel
//! does. That is how keys are renewed; where the two differ on the wire it is more likely a mistake.
//!
//! ```text
//!   template esp/tunnel/A-B ──► 0x1003  native       carries the traffic: the youngest that fits
//!                           └─► 0x1001  ESP in UDP   carries nothing: shadowed
//! ```
//!
//! In transport mode behind one NAT it is always wrong: both hosts have the NAT's address, and one would get the
//! other's traffic. There the later association is refused (RFC 3948 5.2).

use super::resolve::{Route, SaPaths};
use super::{SaIndex, Snapshot};
use crate::sa::{Mode, Protocol, Reqid, Sa, SaConfig};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// An association that carries nothing, and the one that is used instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shadowed {
    /// It fits too, but is not the youngest.
    pub idle: SaIndex,
    /// It is the youngest that fits.
    pub carrier: SaIndex,
}

impl Snapshot {
    /// The associations that carry nothing on the way out because a younger one fits as well that has other algorithms
    /// or another encapsulation. One that was renewed with the same algorithms is not among them.
    pub fn shadowed(&self) -> Vec<Shadowed> {
        let carriers = self.carriers();
        let mut groups: HashMap<_, Vec<SaIndex>> = HashMap::new();
        for (place, sa) in (0..).zip(&self.sas) {
            let may_carry = sa.config.interface.is_none() && !sa.config.is_standby;
            let index = SaIndex(place);
            if may_carry && sa.is_alive() && !carriers.contains(&index) {
                groups.entry(ends(&sa.config)).or_default().push(index);
            }
        }
        let mut shadowed = Vec::new();
        for carrier in &carriers {
            let sa = self.sa(*carrier);
            let idle = groups.get(&ends(&sa.config)).into_iter().flatten();
            let unlike = idle.filter(|other| is_unlike(sa, self.sa(**other)));
            shadowed.extend(unlike.map(|idle| Shadowed {
                idle: *idle,
                carrier: *carrier,
            }));
        }
        shadowed.sort_by_key(|shadowed| (shadowed.idle.0, shadowed.carrier.0));
        shadowed
    }

    /// Every association that some policy leads packets through.
    fn carriers(&self) -> HashSet<SaIndex> {
        let mut carriers = HashSet::new();
        for entry in &self.out.entries {
            let ways: Vec<&SaPaths> = match &entry.answer {
                Route::Discard | Route::Bypass => Vec::new(),
                Route::ByDevice(choices) => {
                    carriers.extend(choices.paths().flatten().copied());
                    Vec::new()
                }
                Route::Fixed(way) => way.iter().collect(),
                Route::ByHosts(ways) => ways.values().collect(),
            };
            for way in ways {
                match way {
                    SaPaths::Single(path) => carriers.extend(path.iter().copied()),
                    SaPaths::Spread(alternatives) => carriers.extend(alternatives.iter().copied()),
                }
            }
        }
        carriers
    }
}

/// RFC 3948 5.2: another association whose packets would go to a different host behind the same NAT, with no policy
/// able to distinguish the two hosts.
pub(super) fn nat_conflict<'a>(
    new: &SaConfig,
    mut others: impl Iterator<Item = &'a Sa>,
) -> Option<&'a SaConfig> {
    let ports = new.encapsulation?;
    if new.mode == Mode::Tunnel {
        return None;
    }
    let clashes = |sa: &&Sa| {
        let known = &sa.config;
        known.id != new.id
            && ends(known) == ends(new)
            && known.interface == new.interface
            && modes_meet(known.mode, new.mode)
            && known.mode != Mode::Tunnel
            && known.encapsulation.is_some_and(|known| known != ports)
            && sa.is_alive()
    };
    others.find(clashes).map(|sa| &sa.config)
}

/// What a template selects an association by.
type Ends = (IpAddr, IpAddr, Protocol, Reqid);

fn ends(config: &SaConfig) -> Ends {
    let SaConfig {
        id, source, reqid, ..
    } = config;
    (*source, id.destination, id.protocol, *reqid)
}

fn modes_meet(one: Mode, other: Mode) -> bool {
    one == other || one == Mode::Any || other == Mode::Any
}

fn is_unlike(one: &Sa, other: &Sa) -> bool {
    let (one, other) = (&one.config, &other.config);
    let names = |config: &SaConfig| {
        let encryption = config.suite.encryption().map(|(row, _)| row.name);
        (
            encryption,
            config.suite.integrity().map(|(row, _)| row.name),
        )
    };
    modes_meet(one.mode, other.mode)
        && (one.encapsulation != other.encapsulation || names(one) != names(other))
}
