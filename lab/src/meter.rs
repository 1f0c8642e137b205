//! A meter reads counters before and after the load. Readings are numbers under dotted names that end with the unit:
//! `left.cpu.user_s`, `right.rss.peak_bytes`, `left.if.wan.rx_packets`.

mod counters;
mod drops;
mod intrusive;
mod machine;
mod machines;
mod processes;
mod profile;
mod protocols;
mod readings;
mod share;
mod soaker;
mod softnet;

use std::path::Path;

pub use counters::Interfaces;
pub use drops::Drops;
pub use intrusive::IntrusiveMeter;
pub use machine::Machine;
pub use processes::Processes;
pub use profile::Profile;
pub(crate) use profile::{OWNERS, WORK_KINDS};
pub use protocols::Protocols;
pub use readings::{Meter, MeterContext, Readings};
pub use share::Share;
pub use soaker::Soaker;
pub use softnet::Softnet;

/// The meters that get trials of their own, with the tools of `lab`.
pub fn intrusive(lab: &Path) -> Vec<(IntrusiveMeter, Box<dyn Meter>)> {
    vec![
        (IntrusiveMeter::Profile, Box::new(Profile::default())),
        (IntrusiveMeter::Soaker, Box::new(Soaker::new(lab))),
    ]
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
        Box::new(Share::default()),
    ]
}
