//! All IKE SAs of a gateway, without any I/O: input in, actions out.
//!
//! ```text
//!   datagram ─► dispatch ─► IkeSa ─► exchange::{init, auth, child, rekey, informational} ─► Action::Send
//!               by SPI       │ ▲                                                           Action::Install
//!               cookie       ▼ │                                                           Action::Event
//!                      Action::Work, Input::Done
//! ```
//!
//! Nothing waits here: an IKE SA that needs a key sends out work and goes on when the result comes in.

mod action;
mod event;
mod input;
mod report;
mod settings;

pub use action::{Action, ChildId, ChildSa, Outbound, RemoveReason};
pub use event::{Event, Peer};
pub use input::{ChildUse, Input, Use};
pub use report::{ChildReport, IkeReport, PeerReport, PeerState, Story, StoryStep};
pub use settings::Settings;
