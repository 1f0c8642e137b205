//! Devices with associations of their own (`-o interface=NAME`): packets routed into one leave through its association,
//! and packets from that association come out of it. Routes take the place of policies, so any routing daemon can
//! decide.
//!
//! ```text
//!   route ──► vpn0 ──► the youngest association of `vpn0` that leaves from here     vpn1 ──► another peer's
//!   vpn0 ◄── any association of `vpn0`
//! ```

use super::SaIndex;
use crate::sa::Phase;
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
    /// The association that its traffic leaves through, if there is one.
    pub outbound_sa: Option<SaIndex>,
}

/// Numbers of names, assigned once.
#[derive(Clone, Default)]
pub(super) struct Numbers(HashMap<Arc<str>, u32>);

/// The devices of one snapshot.
#[derive(Default)]
pub(super) struct Interfaces {
    all: Vec<Interface>,
    outbound_sas: HashMap<u32, [SaIndex; 1]>,
    /// Of each association, empty where none has a device.
    of_sa: Vec<u32>,
}

impl Numbers {
    /// The devices that `sas` name, on a host with the addresses `local`.
    pub fn interfaces(&mut self, sas: &[Arc<Sa>], local: &HashSet<IpAddr>) -> Interfaces {
        let mut interfaces = Interfaces::default();
        for (place, sa) in sas.iter().enumerate() {
            let Some(name) = &sa.config.interface else {
                continue;
            };
            let number = self.number(name);
            interfaces.of_sa.resize(sas.len(), 0);
            interfaces.of_sa[place] = number;
            if !interfaces.all.iter().any(|known| known.number == number) {
                interfaces.all.push(Interface {
                    name: Arc::clone(name),
                    number,
                    outbound_sa: outbound_sa(sas, name, local),
                });
            }
        }
        let known = interfaces.all.iter();
        interfaces.outbound_sas = known
            .filter_map(|interface| Some((interface.number, [interface.outbound_sa?])))
            .collect();
        interfaces
    }

    fn number(&mut self, name: &Arc<str>) -> u32 {
        let next = self.0.len() as u32 + 1;
        *self.0.entry(Arc::clone(name)).or_insert(next)
    }
}

impl Interfaces {
    pub fn all(&self) -> &[Interface] {
        &self.all
    }

    pub fn of(&self, sa: SaIndex) -> u32 {
        self.of_sa.get(sa.0 as usize).copied().unwrap_or(0)
    }

    pub fn outbound_sa(&self, number: u32) -> Option<&[SaIndex]> {
        self.outbound_sas.get(&number).map(|way| &way[..])
    }
}

/// The youngest outbound association of a device, if possible one that is not dying.
fn outbound_sa(sas: &[Arc<Sa>], name: &Arc<str>, local: &HashSet<IpAddr>) -> Option<SaIndex> {
    let leaves = |(_, sa): &(usize, &Arc<Sa>)| {
        sa.config.interface.as_ref() == Some(name)
            && local.contains(&sa.config.source)
            && !sa.config.is_standby
            && sa.is_alive()
    };
    let is_fresh = |sa: &Sa| sa.state.usage().phase == Phase::Mature;
    sas.iter()
        .enumerate()
        .filter(leaves)
        .max_by_key(|(place, sa)| (is_fresh(sa), *place))
        .map(|(place, _)| SaIndex(place as u32))
}
