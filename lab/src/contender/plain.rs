//! Plain IP between the gateways: what every tunnel is compared with.

use std::collections::BTreeMap;

use super::{Contender, Protection, Tunnel};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::testbed::Topology;

/// Plain IP.
pub struct Plain;

impl Contender for Plain {
    fn id(&self) -> &str {
        "plain"
    }

    fn label(&self) -> &str {
        "plain IP"
    }

    fn factors(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn protection(&self) -> Protection {
        Protection::Clear
    }

    fn presence(&self, _topology: &Topology) -> Result<(), Absence> {
        Ok(())
    }

    fn up(&self, _topology: &Topology) -> Result<Box<dyn Tunnel>, Fault> {
        Ok(Box::new(NoTunnel))
    }
}

/// Nothing runs, so there is no status and nothing to stop.
struct NoTunnel;

impl Tunnel for NoTunnel {}
