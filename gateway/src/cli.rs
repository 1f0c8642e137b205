//! The command line of `esplanade`: what one can say, and which module does it.

mod ask;
mod lab;
mod manual;

use crate::setkey_cli;
use crate::{arm, capture, run, speed, tune};
use clap::{CommandFactory, Parser, Subcommand};
use std::io;
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
    #[command(after_help = ask::RELOAD_EXAMPLES)]
    Reload(ask::Reload),
    /// New keys without a lost packet: on both sides, in any order
    #[command(after_help = ask::REKEY_EXAMPLES)]
    Rekey(ask::Rekey),
    /// Tell what is up and what it carries
    #[command(after_help = "Example:\n  esplanade status --json | jq .inbound.packets")]
    Status(ask::Asking),
    /// Tell why packets were dropped, and what to do about it
    #[command(after_help = "Example:\n  esplanade drops --json | jq '.reasons.\"bad-icv\"'")]
    Drops(ask::Asking),
    /// Stop the gateway and take away the rules that outlive it
    #[command(after_help = ask::DOWN_EXAMPLES)]
    Down(ask::Down),
    /// Tell events as they come, until interrupted
    #[command(after_help = "Example:\n  esplanade events --json | while read -r event; do …; done")]
    Events(ask::Asking),
    /// Tell which policy and association a packet would meet, and what would happen
    #[command(
        after_help = "Examples:\n  esplanade explain 10.1.0.2 10.2.0.2\n  esplanade explain 10.1.0.2 10.2.0.2 tcp 443"
    )]
    Explain(ask::Explain),
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
            eprintln!("esplanade: {}", failure.to_string().trim_end());
            ExitCode::from(failure.code())
        }
    }
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
