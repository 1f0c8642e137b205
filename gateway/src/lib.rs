//! Who tells whom what: the wiring behind the programs `esplanade` and `setkey`.
//!
//! ```text
//!   setkey text ──► commands ──► plane ──┬─► database ──► snapshot ──► data plane (threads)
//!        ▲                               └─► routes: drop rules, routing rules, routes
//!        │
//!   control ◄── status, drops, events, explain, down           capture: the engine over a file
//!                                                                speed: the ciphers in memory
//!                                                                tune: settings of the host
//! ```

pub mod apply;
pub mod argument;
pub mod arm;
pub mod capture;
pub mod cli;
pub mod control;
pub mod events;
pub mod failure;
pub mod handover;
pub mod local_time;
pub mod memory;
pub mod output;
pub mod plane;
pub mod privileges;
pub mod random;
pub mod rekey;
pub mod reload;
pub mod report;
pub mod routes;
pub mod run;
pub mod setkey_cli;
pub mod speed;
pub mod state;
pub mod status;
pub mod tune;
