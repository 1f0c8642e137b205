//! Which device the packets of a capture were routed into (`-o interface=`), and at which end of its tunnel: a capture
//! has no routes and no local addresses.

use crate::failure::Failure;
use clap::Args;
use ipsec::database::{Database, Snapshot};
use ipsec::policy::Direction;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What `capture seal` takes beside its files.
#[derive(Args, Default)]
pub(super) struct Routed {
    /// Device of `-o interface=` into which unmatched packets were routed [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Local address, if the device's associations start at both ends
    #[arg(long, value_name = "ADDRESS")]
    pub local: Option<IpAddr>,
}

impl Routed {
    /// The number of the device, 0 for none. Also sets in `database` which end packets leave from.
    pub(super) fn device(&self, database: &mut Database) -> Result<u32, Failure> {
        let Some(name) = self.name(&database.snapshot())? else {
            return Ok(0);
        };
        let local = self.end(&database.snapshot(), &name)?;
        database.set_local_addresses(&[local]);
        let snapshot = database.snapshot();
        let mut known = snapshot.interfaces().iter();
        let found = known.find(|interface| *interface.name == *name);
        Ok(found.map_or(0, |interface| interface.number))
    }

    fn name(&self, snapshot: &Snapshot) -> Result<Option<String>, Failure> {
        let interfaces = snapshot.interfaces().iter();
        let names: BTreeSet<&str> = interfaces.map(|interface| &*interface.name).collect();
        let list = || names.iter().copied().collect::<Vec<_>>().join(", ");
        match (&self.interface, names.len()) {
            (Some(name), _) if names.contains(&**name) => Ok(Some(name.clone())),
            (Some(name), 0) => Err(Failure::new(format!(
                "--interface {name}: no association of the file has `-o interface=`; remove the option"
            ))),
            (Some(name), _) => Err(Failure::new(format!(
                "--interface {name}: the associations name {}",
                list()
            ))),
            (None, 1) => Ok(names.first().map(|name| (*name).to_owned())),
            (None, 0) => Ok(None),
            // The policies alone may be sufficient.
            (None, _) if snapshot.policies(Direction::Out).next().is_some() => Ok(None),
            (None, _) => Err(Failure::new(format!(
                "the associations name {}: choose with --interface which one the packets were routed into",
                list()
            ))),
        }
    }

    fn end(&self, snapshot: &Snapshot, name: &str) -> Result<IpAddr, Failure> {
        let of_device = snapshot
            .sas()
            .filter(|sa| sa.config.interface.as_deref() == Some(name));
        let ends: BTreeSet<IpAddr> = of_device.map(|sa| sa.config.source).collect();
        let list: Vec<_> = ends.iter().map(IpAddr::to_string).collect();
        let list = list.join(", ");
        match self.local {
            Some(local) if ends.contains(&local) => Ok(local),
            Some(local) => Err(Failure::new(format!(
                "--local {local}: the associations of {name} start at {list}"
            ))),
            None => match (ends.first(), ends.len()) {
                (Some(only), 1) => Ok(*only),
                _ => Err(Failure::new(format!(
                    "the associations of {name} start at {list}: choose the local one with --local"
                ))),
            },
        }
    }
}

#[cfg(test)]
mod tests;
