//! What the main process does for the peers of IKE.
//!
//! ```text
//!   configuration ──► closed policies ─────────────────────────────┐
//!   ike process ──► child SA ──► selectors ──► policies            ├──► commands ──► plane
//!                        └─────► associations ─────────────────────┘
//!   events, reports ──► events, status, the story of a negotiation
//! ```

mod associations;
mod events;
mod few;
mod hooks;
mod key_exchange;
mod key_log;
mod networks;
mod peers;
mod policies;
mod reports;
mod rest;
mod selectors;
mod settings;
mod states;
mod status;
mod story;
mod waiting;

pub(super) use events::what;
pub(super) use hooks::{Facts, Hooks};
pub(super) use key_exchange::KeyExchange;
pub(super) use key_log::KeyLog;
pub(super) use networks::PeerDevice;
pub(super) use peers::{Change, Peers, Replaced};
pub(crate) use selectors::network_selectors;
pub(super) use status::{brief_peers, peer as peer_status, peers as peers_status};
pub(super) use story::text as story_text;
pub(super) use waiting::{AwaitedOutcome, StatusForm, Waiting};
