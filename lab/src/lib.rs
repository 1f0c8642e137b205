//! The lab measures tunnels and reports how certain the results are.
//!
//! It links no engine: it runs programs with configuration files, and reports only what it measured. An experiment
//! flows through the modules in this order:
//!
//! ```text
//! spec ─► plan ─► testbed ─► trial ( contender up ─ check ─ warm-up ─ meters ─ load ─ meters ─ contender down )
//!                              └─► record (one JSON line, at once) ─► stats (pure) ─► report
//! ```
//!
//! Everything a trial touches is a trait: [`testbed::Testbed`] builds hosts, a [`host::Host`] runs programs, a
//! [`contender::Contender`] builds a tunnel between them, a [`load::Load`] fills it, a [`meter::Meter`] reads the cost.

pub mod absence;
mod bars;
pub mod capture;
pub mod case;
pub mod check;
pub mod cli;
pub mod contender;
mod doctor;
pub mod experiment;
pub mod fault;
pub mod gateway;
pub mod host;
mod ideal;
pub mod load;
pub mod meter;
pub mod outdir;
pub mod plan;
mod progress;
pub mod record;
pub mod report;
mod seed;
mod socket;
mod spec;
pub mod stage;
mod stats;
pub mod stop;
mod study;
mod suite;
pub mod testbed;
pub mod tool;
mod trial;
mod verdict;
