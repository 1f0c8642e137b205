//! Hooks: programs that run when a peer is up or down, started by a process of its own.
//!
//! ```text
//!   gateway (main)                       hook-runner (hook-runner)
//!      │ ── the programs, once ──────────►  │  no capability, a user that is not root
//!      │ ── Run { which, variables } ────►  │ ── starts ──► the program, in a process group of its own
//!      │ ◄── Ended { exit, last words } ──  │ ◄── at its end, or when its time is over
//! ```
//!
//! The main process may not start programs once its privileges are dropped. The runner starts only those that it
//! was given at the start of the gateway: code injected into the main process cannot start another program. The main
//! process does not wait for a hook.

mod link;
mod message;
mod runner;
mod running;
#[cfg(test)]
mod tests;

pub(crate) use link::{Account, Runner};
pub(crate) use message::Ended;
pub(crate) use runner::hook_runner;

/// How many hooks run at once.
pub(crate) const MAX_RUNNING: usize = 8;
