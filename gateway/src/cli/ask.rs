//! Requests to a running gateway, and its answers on standard output.

mod down;
mod peer;
mod plane;
mod rekey;

use crate::argument::protocol;
use crate::control::{self, Answer, Client, Request, StatusQuestion, UNKNOWN_REQUEST};
use crate::failure::Failure;
use crate::local_time::utc_offset;
use crate::output::print;
use crate::setkey_cli;
use clap::Args;
pub(super) use down::{DOWN_EXAMPLES, Down, down};
use ipsec::setkey::local_time;
pub(super) use peer::{PeerArguments, UP_EXAMPLES, WHY_EXAMPLES, up, why};
pub(super) use plane::{PLANE_EXAMPLES, PlaneArguments, plane};
pub(super) use rekey::{REKEY_EXAMPLES, RekeyArguments, rekey};
use serde::Serialize;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;

/// Which gateway is meant.
#[derive(Args)]
pub(super) struct Socket {
    /// The gateway's control socket [default: $ESPLANADE_CONTROL or /run/esplanade/control.sock]
    #[arg(long, value_name = "PATH")]
    pub(super) control: Option<PathBuf>,
}

/// A question to a gateway.
#[derive(Args)]
pub(super) struct Asking {
    #[command(flatten)]
    pub(super) socket: Socket,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What `status` shows.
#[derive(Args)]
pub(super) struct StatusArguments {
    /// Show these peers of IKE alone, with their associations
    #[arg(value_name = "NAME", conflicts_with_all = ["all", "json"])]
    peers: Vec<String>,
    /// List everything, where there is so much that a summary would be shown
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    asking: Asking,
}

pub(super) const STATUS_EXAMPLES: &str = "\
Examples:
  esplanade status
  esplanade status office branch
  esplanade status --json | jq .inbound.packets

With more than 600 peers, associations and policies together it is a summary: how many are in which state, and the peers
that are not up. --json is always complete.";

/// What a running gateway should be.
#[derive(Args)]
pub(super) struct Reload {
    /// Associations and policies, in setkey syntax [default: the file that the gateway was started with]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) socket: Socket,
}

pub(super) const RELOAD_EXAMPLES: &str = "\
Examples:
  esplanade reload
  esplanade reload tunnel.conf --control /run/esplanade/branch.sock

Unchanged associations are not touched and keep their sequence numbers; those no longer in the file are deleted. A file
with an error changes nothing. SIGHUP makes the gateway reload its own file.";

/// The packet that `explain` is about.
#[derive(Args)]
pub(super) struct ExplainArguments {
    /// Source address
    source: IpAddr,
    /// Destination address
    destination: IpAddr,
    /// Protocol: tcp, udp, icmp, icmp6 or a number
    #[arg(value_parser = protocol, default_value = "tcp")]
    protocol: u8,
    /// Destination port
    port: Option<u16>,
    /// Source port
    #[arg(long)]
    source_port: Option<u16>,
    #[command(flatten)]
    pub(super) asking: Asking,
}

type Outcome = Result<(), Failure>;

pub(super) fn status(arguments: StatusArguments) -> Outcome {
    let StatusArguments { peers, all, asking } = arguments;
    let control = asking.socket.control;
    if asking.json {
        return match ask(control, &Request::Status)? {
            Answer::Status(status) => print_json(&*status),
            _ => Err(strange()),
        };
    }
    let is_about_peers = !peers.is_empty();
    let question = StatusQuestion { peers, all };
    match answer_of(control.clone(), &Request::StatusText(question))? {
        Answer::Text(text) => print(&text),
        Answer::Refused(why) if !why.starts_with(UNKNOWN_REQUEST) => Err(Failure::new(why)),
        Answer::Refused(_) if is_about_peers => Err(Failure::new(
            "the running gateway is of an earlier version, which cannot show single peers: `esplanade status` shows \
             all, and `esplanade restart` replaces it",
        )),
        Answer::Refused(_) => whole_status(control),
        _ => Err(strange()),
    }
}

/// Everything, from a gateway that was started before this program was installed.
fn whole_status(control: Option<PathBuf>) -> Outcome {
    match ask(control, &Request::Status)? {
        Answer::Status(status) => print(&status.table()),
        _ => Err(strange()),
    }
}

pub(super) fn drops(control: Option<PathBuf>, json: bool) -> Outcome {
    match ask(control, &Request::Drops)? {
        Answer::Drops(drops) if json => print_json(&drops),
        Answer::Drops(drops) => print(&drops.table()),
        _ => Err(strange()),
    }
}

pub(super) fn reload(reload: Reload) -> Outcome {
    let text = reload
        .file
        .as_deref()
        .map(setkey_cli::text_of)
        .transpose()?;
    match ask(reload.socket.control, &Request::Reload(text))? {
        Answer::Setkey { output, warnings } => {
            warnings.iter().for_each(|warning| eprint!("{warning}"));
            print(&output)
        }
        _ => Err(strange()),
    }
}

pub(super) fn explain(explain: ExplainArguments) -> Outcome {
    let request = Request::Explain(control::Explain {
        source: explain.source,
        destination: explain.destination,
        protocol: explain.protocol,
        source_port: explain.source_port,
        destination_port: explain.port,
    });
    match ask(explain.asking.socket.control, &request)? {
        Answer::Explained(explained) if explain.asking.json => print_json(&*explained),
        Answer::Explained(explained) => print(&explained.text()),
        _ => Err(strange()),
    }
}

pub(super) fn events(control: Option<PathBuf>, json: bool) -> Outcome {
    let path = control::path(control);
    let client = Client::connect(&path).map_err(Failure::new)?;
    let mut refusal = None;
    let followed = client.follow(&Request::Events, |answer| {
        let event = match answer {
            Answer::Event(event) => event,
            Answer::Refused(why) => {
                refusal = Some(why);
                return false;
            }
            _ => return true,
        };
        let line = if json {
            serde_json::to_string(&event).unwrap_or_default()
        } else {
            format!(
                "{} {}",
                local_time(event.time, utc_offset(event.time)),
                event.what
            )
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
    });
    followed.map_err(Failure::new)?;
    refusal.map_or(Ok(()), |why| Err(Failure::new(why)))
}

fn ask(control: Option<PathBuf>, request: &Request) -> Result<Answer, Failure> {
    match answer_of(control, request)? {
        Answer::Refused(why) => Err(Failure::new(why)),
        answer => Ok(answer),
    }
}

fn answer_of(control: Option<PathBuf>, request: &Request) -> Result<Answer, Failure> {
    let path = control::path(control);
    let answer = Client::connect(&path).and_then(|client| client.ask(request));
    answer.map_err(Failure::new)
}

fn print_json<T: Serialize>(value: &T) -> Outcome {
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)?;
    print(&format!("{text}\n"))
}

fn strange() -> Failure {
    Failure::new(
        "unexpected answer from the gateway; do the versions match? (`esplanade --version`)",
    )
}
