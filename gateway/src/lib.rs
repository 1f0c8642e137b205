//! The programs `esplanade` and `setkey`: what connects configuration, data plane and kernel.
//!
//! ```text
//!   setkey text ──► commands ──► plane ──┬─► database ──► snapshot ──► data plane (threads)
//!        ▲                               └─► routes: drop rules, routing rules, routes
//!        │
//!   control ◄── status, drops, events, explain, down           capture: the engine over a file
//!                                                                speed: the ciphers in memory
//!                                                                tune: settings of the host
//! ```

#![cfg_attr(not(test), warn(unreachable_pub))]

pub(crate) mod apply;
pub(crate) mod argument;
pub(crate) mod arm;
pub mod capture;
pub mod cli;
pub(crate) mod config;
pub mod control;
pub(crate) mod events;
pub(crate) mod failure;
pub(crate) mod file_path;
pub(crate) mod handover;
pub(crate) mod hooks;
pub(crate) mod ike;
pub(crate) mod init;
pub(crate) mod key_access;
pub(crate) mod local_time;
pub(crate) mod memory;
pub(crate) mod netlink_socket;
pub(crate) mod output;
pub(crate) mod plane;
pub(crate) mod privileges;
pub(crate) mod random;
pub(crate) mod rekey;
pub(crate) mod reload;
// The corpora of the fuzz targets, for the tests of their bodies.
#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;
pub(crate) mod report;
pub mod routes;
pub mod run;
pub mod setkey_cli;
pub(crate) mod speed;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod tune;
