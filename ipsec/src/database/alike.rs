//! Associations that are alike: those of the same addresses and protocol, and of the same number.

use super::SaIndex;
use super::hash_index::HashIndex;
use crate::policy::{Level, Template};
use crate::sa::{Protocol, Reqid, Sa};
use std::net::IpAddr;
use std::sync::Arc;

/// What associations may have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: Protocol,
    pub reqid: Reqid,
}

/// Associations by their ends. Those of a device serve no policy, and a standby one serves none yet: they are left out.
pub(super) struct Alike<'a> {
    sas: &'a [Arc<Sa>],
    key: fn(Ends) -> Ends,
    groups: HashIndex,
    /// The youngest of each group.
    youngest: Vec<u32>,
    /// Of each association the next older one of its group.
    older: Vec<u32>,
}

/// No association.
const NONE: u32 = u32::MAX;

impl<'a> Alike<'a> {
    /// Those whose ends, as `key` has them, are the same are in one group.
    pub fn of(sas: &'a [Arc<Sa>], key: fn(Ends) -> Ends) -> Self {
        let mut all = Self {
            sas,
            key,
            groups: HashIndex::with_room(sas.len()),
            youngest: Vec::with_capacity(sas.len()),
            older: vec![NONE; sas.len()],
        };
        let shared =
            |(sa, _): &(&Arc<Sa>, u32)| sa.config.interface.is_none() && !sa.config.is_standby;
        for (sa, place) in sas.iter().zip(0..).filter(shared) {
            all.push(key(Ends::of(sa)), place);
        }
        all
    }

    fn push(&mut self, ends: Ends, place: u32) {
        let new = self.youngest.len() as u32;
        let (sas, key, youngest) = (self.sas, self.key, &self.youngest);
        let is_it = |group: u32| key(Ends::of(&sas[youngest[group as usize] as usize])) == ends;
        match self.groups.find_or_insert(ends.words(), new, is_it) {
            None => self.youngest.push(place),
            Some(group) => {
                let before = std::mem::replace(&mut self.youngest[group as usize], place);
                self.older[place as usize] = before;
            }
        }
    }

    /// Those with these ends, the youngest first.
    pub fn with(&self, ends: Ends) -> impl Iterator<Item = SaIndex> {
        let ends = (self.key)(ends);
        let youngest = |group: u32| self.youngest[group as usize];
        let is_it = |group| (self.key)(Ends::of(&self.sas[youngest(group) as usize])) == ends;
        let first = self.groups.find(ends.words(), is_it).map(youngest);
        let older = |place: &u32| Some(self.older[*place as usize]).filter(|older| *older != NONE);
        std::iter::successors(first, older).map(SaIndex)
    }

    /// The ends of each group.
    pub fn ends(&self) -> impl Iterator<Item = Ends> {
        let youngest = self.youngest.iter();
        youngest.map(|place| (self.key)(Ends::of(&self.sas[*place as usize])))
    }
}

impl Ends {
    /// Those that a template leads to, between these addresses.
    pub fn of_template(template: &Template, (source, destination): (IpAddr, IpAddr)) -> Self {
        Self {
            source,
            destination,
            protocol: template.protocol,
            reqid: wanted_reqid(template),
        }
    }

    fn of(sa: &Sa) -> Self {
        Self {
            source: sa.config.source,
            destination: sa.config.id.destination,
            protocol: sa.config.id.protocol,
            reqid: sa.config.reqid,
        }
    }

    fn words(&self) -> [u64; 5] {
        let [a, b] = words_of(self.source);
        let [c, d] = words_of(self.destination);
        let rest = u64::from(self.protocol.number()) << 32 | u64::from(self.reqid.0);
        [a, b, c, d, rest]
    }
}

/// An address as two words.
pub(super) fn words_of(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// The number of the associations that a template leads to; 0 for those without a number.
pub(super) fn wanted_reqid(template: &Template) -> Reqid {
    match template.level {
        Level::Unique(Some(reqid)) => reqid,
        Level::Unique(None) | Level::Default | Level::Use | Level::Require => Reqid(0),
    }
}
