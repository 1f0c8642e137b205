//! A load fills the tunnel and measures what arrived.

mod frames;
mod histogram;
mod iperf3;
mod netperf;
mod round_trip;
mod search;
mod sockets;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::Host;
use crate::testbed::Topology;

pub use frames::{FRAME_OVERHEAD_BYTES, Frames, Search};
pub use histogram::{Histogram, PERCENTILES};
pub use iperf3::{Iperf3, Protocol};
pub use netperf::{Netperf, Test};
pub use round_trip::{LoadedRoundTrip, RequestTransport, RoundTrip};

/// Which way user data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// From the client to the server.
    #[default]
    Forward,
    /// From the server to the client.
    Reverse,
    /// Both ways at once, by a connection each.
    Both,
}

/// How much traffic a load offers to its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// As much as the path carries.
    Saturating,
    /// A search for the highest rate, which offers too much on purpose.
    RateSearch,
    /// A fixed rate, far below what the path carries.
    Steady,
    /// One request at a time, which fills nothing.
    RequestResponse,
}

/// The ends of a load.
#[derive(Clone, Copy)]
struct Ends<'topology> {
    /// The host that sends, or sends requests.
    from: &'topology dyn Host,
    /// The host that receives, or sends responses.
    to: &'topology dyn Host,
    /// The address on which that host listens.
    address: IpAddr,
    /// The address of the host that sends.
    from_address: IpAddr,
}

impl Direction {
    fn ends(self, topology: &Topology) -> Ends<'_> {
        let (client, server) = (&*topology.client, &*topology.server);
        match self {
            Direction::Forward | Direction::Both => Ends {
                from: client,
                to: server,
                address: topology.addresses.server,
                from_address: topology.addresses.client,
            },
            Direction::Reverse => Ends {
                from: server,
                to: client,
                address: topology.addresses.client,
                from_address: topology.addresses.server,
            },
        }
    }
}

/// A way to fill the path between client and server.
pub trait Load {
    /// Its name in records.
    fn id(&self) -> &str;

    /// How much traffic it offers to the path.
    fn demand(&self) -> Demand;

    /// Whether the tool is on the end hosts.
    fn presence(&self, topology: &Topology) -> Result<(), Absence>;

    /// About how long a run of this duration takes.
    fn takes(&self, duration: Duration) -> Duration {
        duration
    }

    /// Starts what must listen before the clock runs.
    fn prepare<'topology>(
        &'topology self,
        topology: &'topology Topology,
    ) -> Result<Box<dyn Prepared + 'topology>, Fault>;
}

/// A load whose far end listens. Dropping it takes the far end away.
pub trait Prepared {
    /// Unmeasured traffic first: ARP, path MTU, caches.
    fn warm_up(&mut self) -> Result<(), Fault>;

    /// The measured traffic.
    fn run(&mut self, duration: Duration) -> Result<Carried, Fault>;
}

/// What a load carried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// The tool and its version.
    pub tool: String,
    /// Seconds by the receiver's clock.
    pub seconds: f64,
    /// Bytes of user data that arrived.
    pub bytes: u64,
    /// User data that arrived per second, in bits.
    pub goodput_bps: f64,
    /// Segments sent again, where the protocol counts them.
    pub retransmits: Option<u64>,
    /// Goodput of each interval, in bits per second, oldest first.
    pub intervals_bps: Vec<f64>,
    /// Whatever else it found, under dotted names with the unit last. The record keeps them as its own `figures`.
    #[serde(skip)]
    pub figures: BTreeMap<String, f64>,
}
