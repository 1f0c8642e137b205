//! The command line of `esplanade`: what one can say, and which module does it.

mod ask;
mod lab;
mod manual;

use crate::setkey_cli;
use crate::{arm, capture, run, speed, tune};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// User-space IPsec for Linux.
#[derive(Parser)]
#[command(
    name = "esplanade",
    version,
    about = "User-space IPsec for Linux: the gateway, and everything that talks to it",
    after_help = EXAMPLES,
    max_term_width = 100,
    disable_help_subcommand = true
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  esplanade run --setkey tunnel.conf     a gateway in the foreground
  esplanade reload                       change what has changed in its file
  esplanade restart --setkey tunnel.conf another process in its place
  esplanade rekey                        new keys, without a lost packet
  esplanade status                       what is up and what it carries
  esplanade down                         take everything away
  esplanade speed                        how fast this machine enciphers
  esplanade tune show                    settings of the host, and what they should be
  esplanade lab run demo                 measure it";

#[derive(Subcommand)]
enum Command {
    /// Run a gateway in the foreground until SIGTERM or SIGINT
    Run(run::Options),
    /// Take the place of the gateway that runs: a new program, or other options, while the barriers stay closed
    #[command(after_help = run::RESTART_EXAMPLES)]
    Restart(run::Options),
    /// Block, before the network comes up, what a file's policies protect
    Arm(arm::Options),
    /// Add, change, show and remove associations and policies, in the language of setkey
    #[command(disable_help_flag = true)]
    Setkey(setkey_cli::Arguments),
    /// Have the running gateway be what its file says now: only the difference changes
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(Reload),
    /// New keys without a lost packet: on both sides, in any order
    #[command(after_help = ask::REKEY_EXAMPLES)]
    Rekey(ask::Rekey),
    /// Tell what is up and what it carries
    #[command(after_help = "Example:\n  esplanade status --json | jq .inbound.packets")]
    Status(Asking),
    /// Tell why packets were dropped, and what to do about it
    #[command(after_help = "Example:\n  esplanade drops --json | jq '.reasons.\"bad-icv\"'")]
    Drops(Asking),
    /// Stop the gateway and take away the rules that outlive it
    #[command(after_help = DOWN_EXAMPLES)]
    Down(Down),
    /// Tell events as they come, until interrupted
    #[command(after_help = "Example:\n  esplanade events --json | while read -r event; do …; done")]
    Events(Asking),
    /// Tell which policy and association a packet would meet, and what would happen
    #[command(
        after_help = "Examples:\n  esplanade explain 10.1.0.2 10.2.0.2\n  esplanade explain 10.1.0.2 10.2.0.2 tcp 443"
    )]
    Explain(Explain),
    /// Run the engine over a capture file
    Capture(capture::Options),
    /// Tell how fast this machine enciphers, suite by suite
    Speed(speed::Options),
    /// Show, change and put back the settings of the host that matter
    Tune(tune::Options),
    /// Measure; see `esplanade lab --help`
    #[command(disable_help_flag = true)]
    Lab {
        /// What to pass on to esplanade-lab
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Print the manual page, or write all of them into a folder
    #[command(hide = true)]
    Man {
        /// Where one page for each command goes
        folder: Option<PathBuf>,
    },
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Which gateway is meant.
#[derive(Args)]
struct Socket {
    /// The gateway's control socket [default: $ESPLANADE_CONTROL or /run/esplanade/control.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// A question to a gateway.
#[derive(Args)]
struct Asking {
    #[command(flatten)]
    socket: Socket,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// What a running gateway should be.
#[derive(Args)]
struct Reload {
    /// Associations and policies, in the language of setkey [default: the file that the gateway was started with]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    socket: Socket,
}

const RELOAD_EXAMPLES: &str = "\
Examples:
  esplanade reload
  esplanade reload tunnel.conf --control /run/esplanade/branch.sock

What the file has unchanged is not touched, and keeps its numbers; what it does not have is deleted. A file with a mistake
changes nothing. SIGHUP to the gateway does the same with its own file.";

/// What to take away.
#[derive(Args)]
struct Down {
    #[command(flatten)]
    socket: Socket,
    /// Take away what stands in this network namespace under the names that are given, though no note says whose it is
    #[arg(long)]
    force: bool,
    /// With --force: the TUN device of the gateway that left it
    #[arg(long, value_name = "NAME", requires = "force")]
    tun: Option<String>,
    /// With --force: the device that it forwarded for instead
    #[arg(
        long,
        value_name = "DEVICE",
        requires = "force",
        conflicts_with = "tun"
    )]
    forward: Option<String>,
    /// With --force: its routing table
    #[arg(long, value_name = "N", requires = "force")]
    table: Option<u32>,
    /// With --force: its mark
    #[arg(long, value_name = "N", requires = "force", value_parser = run::number)]
    mark: Option<u32>,
}

const DOWN_EXAMPLES: &str = "\
Examples:
  esplanade down
  esplanade down --control /run/esplanade/branch.sock
  esplanade down --force --tun esp1      what a gateway left whose note is lost or about another place";

/// The packet that `explain` is about.
#[derive(Args)]
struct Explain {
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
    socket: Socket,
}

/// Why a command failed: one message, and an exit code that is not 0.
pub struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// A failure with exit code 1.
    pub fn new(message: impl std::fmt::Display) -> Self {
        Self::with_code(message, 1)
    }

    /// A failure with an exit code of its own.
    pub fn with_code(message: impl std::fmt::Display, code: u8) -> Self {
        Self {
            message: message.to_string(),
            code,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// Runs the program on its command line.
pub fn main() -> ExitCode {
    let outcome = match Program::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Restart(options) => run::restart(&options),
        Command::Arm(options) => arm::run(&options),
        Command::Setkey(arguments) => {
            return setkey_cli::run(
                &arguments,
                &mut io::stdout().lock(),
                &mut io::stderr().lock(),
            );
        }
        Command::Reload(reload) => ask::reload(reload),
        Command::Rekey(rekey) => ask::rekey(rekey),
        Command::Status(asking) => ask::status(asking.socket.control, asking.json),
        Command::Drops(asking) => ask::drops(asking.socket.control, asking.json),
        Command::Down(down) => ask::down(down),
        Command::Events(asking) => ask::events(asking.socket.control, asking.json),
        Command::Explain(explain) => ask::explain(explain),
        Command::Capture(options) => capture::run(&options),
        Command::Speed(options) => speed::run(&options),
        Command::Tune(options) => tune::run(&options),
        Command::Lab { arguments } => lab::exec(&arguments),
        Command::Man { folder } => manual::man(&Program::command(), folder.as_deref()),
        Command::Completions { shell } => manual::completions(&mut Program::command(), shell),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("esplanade: {}", failure.message.trim_end());
            ExitCode::from(failure.code)
        }
    }
}

/// Prints to standard output; a reader that has gone away is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

fn protocol(word: &str) -> Result<u8, String> {
    let number = match word {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "icmp6" | "icmpv6" => 58,
        other => other
            .parse()
            .map_err(|_| "a protocol is tcp, udp, icmp, icmp6 or a number up to 255".to_owned())?,
    };
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Program::command().debug_assert();
    }

    #[test]
    fn every_command_that_is_shown_has_an_example() {
        for command in Program::command().get_subcommands() {
            let name = command.get_name();
            if command.is_hide_set() || ["setkey", "lab"].contains(&name) {
                continue;
            }
            let help = command.get_after_help().map(|help| help.to_string());
            assert!(
                help.is_some_and(|help| help.contains("esplanade")),
                "{name}"
            );
        }
    }

    #[test]
    fn lab_arguments_are_passed_on_untouched() {
        let line = [
            "esplanade",
            "lab",
            "run",
            "demo",
            "--duration",
            "3",
            "--help",
        ];
        let Command::Lab { arguments } = Program::try_parse_from(line).ok().unwrap().command else {
            panic!("another command");
        };
        assert_eq!(arguments, line[2..]);
    }
}
