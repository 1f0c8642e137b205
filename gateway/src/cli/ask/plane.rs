//! `esplanade plane`.

use super::{Asking, Outcome, ask, print_json, strange};
use crate::control::{Answer, PlaneQuestion, Request};
use crate::output::print;
use clap::{Args, Subcommand, ValueEnum};
use std::thread;
use std::time::Duration;

/// A move that takes longer says what it waits for.
const QUICK_MOVE: Duration = Duration::from_secs(1);

/// Which plane carries the packets, or the move to the other one.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PlaneArguments {
    #[command(subcommand)]
    command: Option<PlaneCommand>,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Subcommand)]
enum PlaneCommand {
    /// Move the running gateway to the other plane, with its associations and policies
    #[command(after_help = MOVE_EXAMPLES)]
    Move(Move),
}

#[derive(Args)]
struct Move {
    /// Which plane is to carry the packets
    #[arg(long, value_name = "PLANE")]
    to: To,
    /// Move keys set by hand whose suite must not use a nonce twice (AES-GCM, AES-CCM, AES-CTR, AES-GMAC,
    /// ChaCha20-Poly1305): both planes then use one key, and a nonce comes twice with a chance of about the number of
    /// packets in 2^63, because the kernel's is the sequence number XORed with a random number. Suites with an implicit
    /// IV are refused all the same
    #[arg(long)]
    same_keys: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum To {
    /// The kernel's own IPsec
    Kernel,
    /// Esplanade's own data plane
    User,
}

pub(crate) const PLANE_EXAMPLES: &str = "\
Examples:
  esplanade plane                        which plane carries the packets, and why
  esplanade plane --json | jq .plane
  esplanade plane move --to kernel";

const MOVE_EXAMPLES: &str = "\
Examples:
  esplanade plane move --to kernel
  esplanade plane move --to user --json

What the other plane cannot do is refused before anything changes, and if a step fails the gateway stays
where it is. No packet passes in clear meanwhile. Keys of IKE are rekeyed onto the other plane, which takes
about six seconds, and at most 30 before the move is undone. A later `esplanade restart` uses the plane of its own
options again.";

pub(crate) fn plane(arguments: PlaneArguments) -> Outcome {
    let (question, asking) = match arguments.command {
        None => (PlaneQuestion::default(), arguments.asking),
        Some(PlaneCommand::Move(moving)) => (
            PlaneQuestion {
                to_kernel: Some(moving.to == To::Kernel),
                same_keys: moving.same_keys,
            },
            moving.asking,
        ),
    };
    if question.to_kernel.is_some() && !asking.json {
        thread::spawn(tell_what_takes_long);
    }
    match ask(asking.socket.control, &Request::Plane(question))? {
        Answer::Plane(plane) if asking.json => print_json(&plane),
        Answer::Plane(plane) => print(&plane.text()),
        _ => Err(strange()),
    }
}

/// Ends with the program.
fn tell_what_takes_long() {
    thread::sleep(QUICK_MOVE);
    eprintln!(
        "esplanade: keys from IKE are rekeyed onto the other plane, which takes some seconds; `esplanade plane` names \
         the peers that are waited for"
    );
}
