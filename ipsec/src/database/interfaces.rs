//! Devices with associations of their own: packets routed into one leave through one of its associations, and packets
//! from these come out of it. Routes take the place of policies, so any routing daemon can decide, unless policies lead
//! into the device as well: then these are followed too.
//!
//! ```text
//!   route ──► vpn0 ──► the youngest association of `vpn0` that leaves from here     vpn1 ──► another peer's
//!                      and was negotiated for such packets
//!   vpn0 ◄── any association of `vpn0`
//! ```

use super::SaIndex;
use super::choices::{Choices, merit};
use crate::sa::Sa;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A device with associations of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name.
    pub name: Arc<str>,
    /// Its number, the same for as long as the database exists; never 0.
    pub number: u32,
    /// The youngest association that its traffic leaves through, if there is one.
    pub outbound_sa: Option<SaIndex>,
    /// Whether it belongs to a peer, and exists without associations too.
    pub is_kept: bool,
    /// Whether its packets follow the policies that name it.
    pub follows_policies: bool,
}

/// A device that exists as long as it is named here, with and without associations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptInterface {
    /// Its name.
    pub name: Arc<str>,
    /// Whether policies lead into it, and its packets follow them.
    pub follows_policies: bool,
}

/// Numbers of names, assigned once.
#[derive(Clone, Default)]
pub(super) struct Numbers(HashMap<Arc<str>, u32>);

/// The devices of one snapshot.
#[derive(Default)]
pub(super) struct Interfaces {
    all: Vec<Interface>,
    choices: HashMap<u32, Choices>,
    following: HashSet<u32>,
    /// The associations that leave from here, of each device.
    outbound: HashMap<Arc<str>, Vec<SaIndex>>,
    /// Of each association, empty where none has a device.
    of_sa: Vec<u32>,
}

impl Numbers {
    /// The devices that are kept and those that `sas` name, on a host with the addresses `local`.
    pub fn interfaces(
        &mut self,
        sas: &[Arc<Sa>],
        local: &HashSet<IpAddr>,
        kept: &[KeptInterface],
    ) -> Interfaces {
        let mut interfaces = Interfaces::default();
        let mut known: HashMap<Arc<str>, u32> = HashMap::new();
        for (place, sa) in sas.iter().enumerate() {
            let Some(name) = &sa.config.interface else {
                continue;
            };
            let number = self.number(name);
            interfaces.of_sa.resize(sas.len(), 0);
            interfaces.of_sa[place] = number;
            known.insert(Arc::clone(name), number);
            if local.contains(&sa.config.source) && !sa.config.is_standby && sa.is_alive() {
                let outbound = interfaces.outbound.entry(Arc::clone(name)).or_default();
                outbound.push(SaIndex(place as u32));
            }
        }
        for interface in kept {
            let number = self.number(&interface.name);
            known.insert(Arc::clone(&interface.name), number);
            if interface.follows_policies {
                interfaces.following.insert(number);
            }
        }
        let is_kept: HashSet<_> = kept.iter().map(|interface| &interface.name).collect();
        for (name, number) in known {
            let is_kept = is_kept.contains(&name);
            interfaces.add(sas, name, number, is_kept);
        }
        interfaces.all.sort_by_key(|interface| interface.number);
        interfaces
    }

    fn number(&mut self, name: &Arc<str>) -> u32 {
        let next = self.0.len() as u32 + 1;
        *self.0.entry(Arc::clone(name)).or_insert(next)
    }
}

impl Interfaces {
    fn add(&mut self, sas: &[Arc<Sa>], name: Arc<str>, number: u32, is_kept: bool) {
        let outbound = self.outbound(&name);
        let youngest = outbound.iter().max_by_key(|index| merit(sas, **index));
        let outbound_sa = youngest.copied();
        let choices = Choices::among(sas, outbound, |_| true);
        self.choices.insert(number, choices);
        self.all.push(Interface {
            name,
            number,
            outbound_sa,
            is_kept,
            follows_policies: self.following.contains(&number),
        });
    }

    pub fn all(&self) -> &[Interface] {
        &self.all
    }

    pub fn of(&self, sa: SaIndex) -> u32 {
        self.of_sa.get(sa.0 as usize).copied().unwrap_or(0)
    }

    /// The associations by which the packets of a device leave.
    pub fn choices(&self, number: u32) -> Option<&Choices> {
        self.choices.get(&number)
    }

    pub fn follows_policies(&self, number: u32) -> bool {
        self.following.contains(&number)
    }

    /// The associations of a device that leave from here, in the order of the database.
    pub fn outbound(&self, name: &Arc<str>) -> &[SaIndex] {
        self.outbound.get(name).map_or(&[], Vec::as_slice)
    }
}
