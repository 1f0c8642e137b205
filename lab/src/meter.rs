//! A meter looks before and after the load and says what it cost. Readings are plain numbers under dotted names, whose
//! last part ends with the unit: `left.cpu.user_s`, `right.rss.peak_bytes`, `left.if.wan.rx_packets`.

mod counters;
mod drops;
mod machine;
mod machines;
mod processes;
mod protocols;
mod softnet;

use std::collections::BTreeMap;

use crate::contender::Tunnel;
use crate::fault::Fault;
use crate::testbed::Bed;

pub use counters::Interfaces;
pub use drops::Drops;
pub use machine::Machine;
pub use processes::Processes;
pub use protocols::Protocols;
pub use softnet::Softnet;

/// Names and numbers.
pub type Readings = BTreeMap<String, f64>;

/// What a meter may look at.
pub struct Scene<'a> {
    /// The hosts.
    pub bed: &'a Bed,
    /// The contender that is up.
    pub tunnel: &'a dyn Tunnel,
}

/// Something that can be read before and after a load.
pub trait Meter {
    /// Its name in error texts.
    fn id(&self) -> &'static str;

    /// Looks before the load.
    fn begin(&mut self, scene: &Scene<'_>) -> Result<(), Fault>;

    /// Looks after the load and gives the differences.
    fn end(&mut self, scene: &Scene<'_>) -> Result<Readings, Fault>;
}

/// The meters of every trial. They only look before and after the load, and cost it nothing.
pub fn usual() -> Vec<Box<dyn Meter>> {
    vec![
        Box::new(Machine::default()),
        Box::new(Softnet::default()),
        Box::new(Protocols::default()),
        Box::new(Interfaces::default()),
        Box::new(Drops::default()),
        Box::new(Processes::default()),
    ]
}

/// `after - before` for every name in `after`; a counter that appeared in between began at zero.
fn difference(before: &Readings, after: &Readings) -> Readings {
    after
        .iter()
        .map(|(name, value)| (name.clone(), value - before.get(name).unwrap_or(&0.0)))
        .collect()
}
