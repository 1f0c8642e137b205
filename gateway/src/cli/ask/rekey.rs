//! `esplanade rekey`.

use super::{Outcome, Socket, ask, strange};
use crate::control::{self, Answer, Request};
use crate::failure::Failure;
use crate::output::print;
use crate::setkey_cli;
use clap::Args;
use std::path::PathBuf;

/// Seconds of silence after which old keys go, unless others are asked for.
const DEFAULT_KEEP_SECONDS: u64 = 10;

/// New keys, and how long to wait for what.
#[derive(Args)]
pub(crate) struct Rekey {
    /// The new keys, with the policies that the gateway has [default: the file that the gateway was started with]
    #[arg(value_name = "FILE", conflicts_with = "abort")]
    file: Option<PathBuf>,
    /// Send by the new keys at once: for a peer that has them already
    #[arg(long, conflicts_with_all = ["abort", "wait"])]
    now: bool,
    /// Send by the new keys after so many seconds though the peer was not heard by them [default: never]
    #[arg(long, value_name = "SECONDS", conflicts_with = "abort")]
    wait: Option<u32>,
    /// Delete the old ones once nothing came by them for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_KEEP_SECONDS)]
    keep: u64,
    /// Go back to the old keys where the peer was not heard by the new ones
    #[arg(long)]
    abort: bool,
    #[command(flatten)]
    socket: Socket,
}

pub(crate) const REKEY_EXAMPLES: &str = "\
Examples:
  esplanade rekey                        on both sides, in any order, with the new keys in their files
  esplanade rekey new.conf --keep 60
  esplanade rekey --abort                the peer does not follow

The file has the new associations, with SPIs of their own, in place of the old ones, and the same policies. New keys receive at
once; they send as soon as the peer is heard by them, for which each side sends a packet a second that carries nothing. The old
ones go when they have been silent. `esplanade status` shows how far each peer is.";

pub(crate) fn rekey(rekey: Rekey) -> Outcome {
    let text = rekey.file.as_deref().map(setkey_cli::text_of).transpose();
    let request = control::Rekey {
        text: text.map_err(Failure::new)?,
        now: rekey.now,
        wait: rekey.wait.map(u64::from),
        keep: rekey.keep,
        abort: rekey.abort,
    };
    match ask(rekey.socket.control, &Request::Rekey(request))? {
        Answer::Setkey { output, warnings } => {
            warnings.iter().for_each(|warning| eprint!("{warning}"));
            print(&output)
        }
        _ => Err(strange()),
    }
}
