//! Key exchange (IKEv2) in processes of its own, so that no stranger's message is parsed where packets flow, and none
//! where private keys are.
//!
//! ```text
//!   gateway (main)   data plane, kernel tables, control socket
//!      │   ▲ socket pairs (message, channel)
//!      │   └────────────┬─────────────────────┐
//!      ▼                ▼                     ▼
//!   starter ── starts ─► ike                   ike-keys
//!   (starter)           UDP 500, half of 4500  pre-shared keys, private keys, SK_d
//!                       messages, certificates  typed requests alone
//!                          └───── socket pair ─────┘
//! ```
//!
//! The main process may not start programs once its privileges are dropped: the starter, which does nothing else, was
//! started before and does it for it.

mod channel;
mod ike_process;
mod inbox;
mod inherited;
mod key_process;
mod link;
pub(crate) mod message;
mod pool;
mod processes;
mod starter;
#[cfg(test)]
mod tests;
mod trusted;

pub(crate) use channel::Channel;
pub(crate) use ike_process::ike_process;
pub(crate) use inbox::Inbox;
pub(crate) use inherited::{ProcessOptions, settle_without_descriptors};
pub(crate) use key_process::key_process;
pub(crate) use link::Link;
pub(crate) use processes::{Processes, Setup, StartError};
pub(crate) use starter::{own_program, starter};
