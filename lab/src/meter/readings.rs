//! What a meter is, what it may look at, and what it reads.

use std::collections::BTreeMap;

use crate::absence::Absence;
use crate::contender::Tunnel;
use crate::fault::Fault;
use crate::testbed::Topology;

/// Names and numbers.
pub type Readings = BTreeMap<String, f64>;

/// What a meter may look at.
pub struct MeterContext<'a> {
    /// The hosts.
    pub topology: &'a Topology,
    /// The contender that is up.
    pub tunnel: &'a dyn Tunnel,
    /// A name of the case, fit for a file.
    pub case: &'a str,
}

/// Something that can be read before and after a load.
pub trait Meter {
    /// Its name in error texts.
    fn id(&self) -> &'static str;

    /// Whether it can look at this testbed at all.
    fn presence(&self, _topology: &Topology) -> Result<(), Absence> {
        Ok(())
    }

    /// Looks before the load.
    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault>;

    /// Hears that the load begins now, and a second time that it has just ended. Only an intrusive meter does: between
    /// its own beginning and the load's, and between the two ends, all the others look, which may take a while on hosts
    /// far away.
    fn mark(&mut self, _scene: &MeterContext<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Looks after the load and gives the differences.
    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault>;
}

/// `after - before` for every name in `after`; a counter that appeared in between began at zero.
pub(super) fn difference(before: &Readings, after: &Readings) -> Readings {
    after
        .iter()
        .map(|(name, value)| (name.clone(), value - before.get(name).unwrap_or(&0.0)))
        .collect()
}
