//! `esplanade rekey`.

use super::{Outcome, Socket, ask, strange};
use crate::control::{self, Answer, Request};
use crate::output::print;
use crate::setkey_cli;
use clap::Args;
use std::path::PathBuf;

/// The default for how many seconds nothing may arrive under the old keys before they are deleted.
const DEFAULT_KEEP_SECONDS: u64 = 10;

/// New keys, and how long to wait for what.
#[derive(Args)]
pub(crate) struct RekeyArguments {
    /// A peer of the configuration, or a file with the new keys and unchanged policies [default: the file that the
    /// gateway was started with]
    #[arg(value_name = "NAME|FILE", conflicts_with = "abort")]
    file: Option<PathBuf>,
    /// Of a peer, the IKE SA instead of its child SAs
    #[arg(long, requires = "file", conflicts_with_all = ["abort", "now", "wait"])]
    ike: bool,
    /// Send with the new keys at once, because the peer has them already
    #[arg(long, conflicts_with_all = ["abort", "wait"])]
    now: bool,
    /// Send with the new keys after this many seconds even if the peer has not used them yet [default: never]
    #[arg(long, value_name = "SECONDS", conflicts_with = "abort")]
    wait: Option<u32>,
    /// Delete the old keys when nothing has arrived under them for this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_KEEP_SECONDS)]
    keep: u64,
    /// Go back to the old keys for peers that have not used the new ones
    #[arg(long)]
    abort: bool,
    #[command(flatten)]
    socket: Socket,
}

pub(crate) const REKEY_EXAMPLES: &str = "\
Examples:
  esplanade rekey                        on both sides, in any order, after the new keys are in their files
  esplanade rekey new.conf --keep 60
  esplanade rekey office                 one peer of the configuration, by IKE
  esplanade rekey --abort                when the peer does not follow

The file holds the new associations, with new SPIs, in place of the old ones, and the same policies.
The gateway accepts the new keys at once and sends with them as soon as the peer has used them;
until then each side sends one dummy packet per second. The old keys are deleted when they are no
longer used. `esplanade status` shows the progress for each peer.";

pub(crate) fn rekey(rekey: RekeyArguments) -> Outcome {
    if let Some(name) = peer_name(&rekey) {
        let ike = rekey.ike;
        return super::peer::text(rekey.socket, &Request::RekeyPeer { name, ike });
    }
    let text = rekey.file.as_deref().map(setkey_cli::text_of).transpose()?;
    let request = control::Rekey {
        text,
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

/// The name of a peer: what is not the path of a file that exists.
fn peer_name(rekey: &RekeyArguments) -> Option<String> {
    let word = rekey.file.as_deref()?;
    let name = word.to_str().filter(|name| !name.contains('/'))?;
    let is_file = word.is_file() && !rekey.ike;
    (!is_file && !name.ends_with(".conf")).then(|| name.to_owned())
}
