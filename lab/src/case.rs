//! One thing to measure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::contender::Contender;
use crate::load::Load;
use crate::meter::IntrusiveMeter;
use crate::testbed::TopologySpec;

/// One thing to measure: a contender on a certain topology under a certain load. The plan repeats it in every round.
pub struct Case {
    /// The contender's id, and what the topology adds to it.
    pub id: String,
    /// The same for a reader.
    pub label: String,
    /// What it can carry at most, where its link has a rate.
    pub ideal_bps: Option<f64>,
    /// Who carries the packets.
    pub contender: Box<dyn Contender>,
    /// The testbed it stands on.
    pub topology_spec: TopologySpec,
    /// What fills the tunnel.
    pub load: Box<dyn Load>,
    /// For how long.
    pub duration: Duration,
    /// Every factor of it, for the record; the contender's own are added.
    pub factors: BTreeMap<String, String>,
    /// Meters that it gets a further trial for, each.
    pub intrusive: Vec<IntrusiveMeter>,
}
