//! The control socket: how the command line talks with a running gateway.
//!
//! ```text
//!   setkey, status, drops, events, down ──► one line of JSON ──► the gateway's main thread ──► one line of JSON (or many, events)
//! ```
//!
//! A Unix socket of mode 0600 in a [`folder`] that nobody else may write; only root and the gateway's own user are
//! heard. One thread serves all, with bounds on size and time, and never waits for one of them. setkey text is parsed
//! by the gateway and obeyed as a whole or not at all.

mod client;
pub mod folder;
pub mod fuzz_body;
mod message;
mod server;

pub use client::{Client, NoAnswer};
pub use folder::Folder;
pub use message::{Answer, Explain, Rekey, Request, SetkeyText};
pub use server::{Busy, ClientId, Heard, Server};

use std::path::PathBuf;

/// Where the socket is unless `--control` or `ESPLANADE_CONTROL` say otherwise.
pub const DEFAULT_PATH: &str = "/run/esplanade/control.sock";

/// The largest request: setkey text of some hundred thousand associations.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;

/// The path given, or the environment's, or the default.
pub fn path(given: Option<PathBuf>) -> PathBuf {
    given
        .or_else(|| std::env::var_os("ESPLANADE_CONTROL").map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_PATH))
}
