//! `esplanade up`, `down NAME`, `rekey NAME` and `why`: commands about one peer.

use super::{Outcome, Socket, ask, strange};
use crate::control::{Answer, Request};
use crate::output::print;
use clap::Args;

/// One peer of a gateway.
#[derive(Args)]
pub(crate) struct PeerArguments {
    /// The peer's name in the configuration
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    socket: Socket,
}

pub(crate) const UP_EXAMPLES: &str = "\
Example:
  esplanade up office

Returns when the peer is up, or with the reason why an attempt failed. Attempts go on by themselves.";

pub(crate) const WHY_EXAMPLES: &str = "\
Example:
  esplanade why office

Shows the last negotiation step by step: what each side proposed, which identity or key was not accepted, and where it
ended.";

/// Brings a peer up.
pub(crate) fn up(peer: PeerArguments) -> Outcome {
    text(peer.socket, &Request::UpPeer(peer.name))
}

/// The last negotiation.
pub(crate) fn why(peer: PeerArguments) -> Outcome {
    text(peer.socket, &Request::Why(peer.name))
}

/// Prints the text that answers a request.
pub(super) fn text(socket: Socket, request: &Request) -> Outcome {
    match ask(socket.control, request)? {
        Answer::Text(text) => print(&text),
        _ => Err(strange()),
    }
}
