//! Plain IP between the gateways: what every tunnel is compared with. With `offloads = false` the wire between the
//! gateways carries packets of its MTU, each with its checksum computed in software, as a tunnel without offloads must.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Absence, Contender, Gateway, Protection, Side, Tunnel};
use crate::capture::EspKey;
use crate::fault::Fault;
use crate::host::{Command, program};
use crate::testbed::{Bed, WAN};

/// Plain IP.
pub struct Plain {
    offloads: bool,
}

impl Plain {
    /// With or without offloads on the wire.
    pub fn new(offloads: bool) -> Plain {
        Plain { offloads }
    }
}

impl Contender for Plain {
    fn id(&self) -> &str {
        if self.offloads {
            "plain"
        } else {
            "plain-no-offloads"
        }
    }

    fn label(&self) -> &str {
        if self.offloads {
            "plain IP"
        } else {
            "plain IP, offloads off on the wire"
        }
    }

    fn factors(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("offloads".into(), self.offloads.to_string())])
    }

    fn protection(&self) -> Protection {
        Protection::Clear
    }

    fn presence(&self, _bed: &Bed) -> Result<(), Absence> {
        if self.offloads || program("ethtool").is_some() {
            return Ok(());
        }
        Err(Absence::new(
            "ethtool is not installed",
            "apt-get install ethtool",
        ))
    }

    fn up(&self, bed: &Bed) -> Result<Box<dyn Tunnel>, Fault> {
        if !self.offloads {
            for side in Side::BOTH {
                let off = Command::line(&format!(
                    "ethtool -K {WAN} tx off rx off sg off tso off gso off gro off"
                ));
                let finished = bed.gateway(side).run(&off, Duration::from_secs(5))?;
                finished.success(&off)?;
            }
        }
        Ok(Box::new(NoTunnel))
    }
}

/// Nothing runs, so nothing can be asked and nothing must end: the bed goes with the trial.
struct NoTunnel;

impl Tunnel for NoTunnel {
    fn gateways(&self) -> Vec<Gateway> {
        Vec::new()
    }

    fn drops(&self, _bed: &Bed) -> Result<Option<BTreeMap<String, u64>>, Fault> {
        Ok(None)
    }

    fn keys(&self) -> Vec<EspKey> {
        Vec::new()
    }

    fn down(&mut self, _bed: &Bed) -> Result<(), Fault> {
        Ok(())
    }
}
