//! Two processes, one on each gateway, that carry the packets of a contender. Meters read them; they are stopped
//! together.

use std::time::Duration;

use super::Tunnel;
use crate::fault::Fault;
use crate::gateway::{Gateway, Side};
use crate::host::Process;
use crate::testbed::Topology;

/// One of the two.
pub(super) struct Daemon {
    pub side: Side,
    pub process: Box<dyn Process>,
}

/// How long a program may take to end when it is asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

impl Daemon {
    /// For the meters.
    pub(super) fn gateway(&self) -> Gateway {
        Gateway {
            side: self.side,
            pid: self.process.pid(),
        }
    }

    /// Asks it to end, then kills it.
    pub(super) fn stop(&mut self) -> Result<(), Fault> {
        self.process.stop(STOP_TIMEOUT)
    }
}

/// Both, where nothing else is known of the tunnel.
pub(super) struct Daemons(pub [Daemon; 2]);

impl Tunnel for Daemons {
    fn gateways(&self) -> Vec<Gateway> {
        self.0.iter().map(Daemon::gateway).collect()
    }

    fn down(&mut self, _topology: &Topology) -> Result<(), Fault> {
        stop_all(&mut self.0, Daemon::stop)
    }
}

/// Stops all of them, even if one fails; returns the first error.
pub(super) fn stop_all<T>(
    all: &mut [T],
    stop: impl FnMut(&mut T) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let stopped: Vec<_> = all.iter_mut().map(stop).collect();
    stopped.into_iter().collect()
}
