//! The control socket: how the command line talks to a running gateway.
//!
//! ```text
//!   setkey, status, drops, events, down ──► one line of JSON ──► the gateway's main thread
//!                     ◄── one line of JSON (for events: many) ◄───┘
//! ```
//!
//! A Unix socket of mode 0600 in a `folder` that no other user may write to; only root and the gateway's own user are
//! served. One thread serves all clients, with limits on size and time, and never waits for one of them. setkey text is
//! parsed by the gateway and applied atomically.

mod client;
pub(crate) mod folder;
#[cfg(any(test, fuzzing))]
pub mod fuzz_body;
mod message;
mod server;

pub(crate) use client::{Client, NoAnswer};
pub(crate) use folder::Folder;
pub(crate) use message::{
    Answer, Explain, PlaneQuestion, Rekey, Request, SetkeyText, StatusQuestion,
};
pub(crate) use server::{ClientId, Server};

use std::path::PathBuf;

/// The path of the socket if neither `--control` nor `ESPLANADE_CONTROL` is given.
pub(crate) const DEFAULT_PATH: &str = "/run/esplanade/control.sock";

/// The largest request: setkey text of some hundred thousand associations.
pub(crate) const MAX_REQUEST_BYTES: usize = 64 << 20;

/// How the refusal of a request begins that a gateway does not know.
pub(crate) const UNKNOWN_REQUEST: &str = "invalid request";

/// The path given, or the environment's, or the default.
pub(crate) fn path(given: Option<PathBuf>) -> PathBuf {
    given
        .or_else(|| std::env::var_os("ESPLANADE_CONTROL").map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_PATH))
}
