//! The command line of `esplanade`: its commands, and the module that runs each.

mod ask;
mod config;
mod lab;
mod manual;

use crate::setkey_cli;
use crate::{arm, capture, hooks, ike, init, run, speed, tune};
use clap::{CommandFactory, Parser, Subcommand};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// User-space IPsec for Linux.
#[derive(Parser)]
#[command(
    name = "esplanade",
    version,
    about = "User-space IPsec gateway for Linux, and the commands that control it",
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
  esplanade init                         write a configuration with one tunnel
  esplanade config check                 explain it and its mistakes
  esplanade run --config office.toml     run a gateway that negotiates its keys (IKEv2)
  esplanade run --setkey tunnel.conf     run a gateway with keys set by hand
  esplanade reload                       apply the changes in its file
  esplanade restart --setkey tunnel.conf replace its process, keep the tunnels
  esplanade rekey                        install new keys without packet loss
  esplanade status                       show status and traffic
  esplanade down                         stop it and remove its rules
  esplanade speed                        benchmark encryption on this machine
  esplanade tune show                    show host settings and recommended values
  esplanade lab run demo                 measure a tunnel";

#[derive(Subcommand)]
enum Command {
    /// Run a gateway in the foreground until SIGTERM or SIGINT
    Run(run::RunOptions),
    /// Replace the running gateway by a new process (new version or options); drop rules stay in force meanwhile
    #[command(after_help = run::RESTART_EXAMPLES)]
    Restart(run::RunOptions),
    /// Write a configuration with one tunnel, and its pre-shared key
    #[command(after_help = init::EXAMPLES)]
    Init(init::InitOptions),
    /// Explain a configuration and its mistakes
    #[command(after_help = config::CONFIG_EXAMPLES)]
    Config(config::ConfigArguments),
    /// Install a file's drop rules before the network comes up
    Arm(arm::ArmOptions),
    /// Add, change, show and remove associations and policies, in the language of setkey
    #[command(disable_help_flag = true)]
    Setkey(setkey_cli::Arguments),
    /// Apply a changed file to the running gateway: only the differences
    #[command(after_help = ask::RELOAD_EXAMPLES)]
    Reload(ask::Reload),
    /// Install new keys without packet loss; run it on both sides, in any order
    #[command(after_help = ask::REKEY_EXAMPLES)]
    Rekey(ask::RekeyArguments),
    /// Show which plane carries the packets, or move the running gateway to the other one
    #[command(after_help = ask::PLANE_EXAMPLES)]
    Plane(ask::PlaneArguments),
    /// Show status and traffic
    #[command(after_help = ask::STATUS_EXAMPLES)]
    Status(ask::StatusArguments),
    /// Show why packets were dropped, with a hint for each reason
    #[command(after_help = "Example:\n  esplanade drops --json | jq '.reasons.\"bad-icv\"'")]
    Drops(ask::Asking),
    /// Bring a peer of the configuration up
    #[command(after_help = ask::UP_EXAMPLES)]
    Up(ask::PeerArguments),
    /// Show the last negotiation with a peer, step by step
    #[command(after_help = ask::WHY_EXAMPLES)]
    Why(ask::PeerArguments),
    /// Stop the gateway and remove its rules, or take one peer down
    #[command(after_help = ask::DOWN_EXAMPLES)]
    Down(ask::Down),
    /// Print events as they occur, until interrupted
    #[command(after_help = "Example:\n  esplanade events --json | while read -r event; do …; done")]
    Events(ask::Asking),
    /// Show which policy and association apply to a packet, and the outcome
    #[command(
        after_help = "Examples:\n  esplanade explain 10.1.0.2 10.2.0.2\n  esplanade explain 10.1.0.2 10.2.0.2 tcp 443\n  \
                      esplanade explain 10.1.0.2 10.2.0.2 --json | jq .findings"
    )]
    Explain(ask::ExplainArguments),
    /// Decrypt or encrypt the packets of a capture file
    Capture(capture::CaptureOptions),
    /// Benchmark encryption, suite by suite
    Speed(speed::SpeedOptions),
    /// Show, apply and restore host tuning
    Tune(tune::TuneOptions),
    /// Run the benchmark suite; see `esplanade lab --help`
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
    /// A process of a gateway that keys by IKE: starts the other two
    #[command(hide = true)]
    IkeStarter(ike::ProcessOptions),
    /// A process of a gateway that keys by IKE: messages and state machines
    #[command(hide = true)]
    IkeProcess(ike::ProcessOptions),
    /// A process of a gateway that keys by IKE: secrets
    #[command(hide = true)]
    IkeKeys(ike::ProcessOptions),
    /// A process of a gateway with hooks: runs them
    #[command(hide = true)]
    HookRunner(ike::ProcessOptions),
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
        Command::Init(options) => init::run(&options),
        Command::Config(arguments) => config::config(&arguments),
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
        Command::Plane(arguments) => ask::plane(arguments),
        Command::Status(arguments) => ask::status(arguments),
        Command::Drops(asking) => ask::drops(asking.socket.control, asking.json),
        Command::Up(peer) => ask::up(peer),
        Command::Why(peer) => ask::why(peer),
        Command::Down(down) => ask::down(down),
        Command::Events(asking) => ask::events(asking.socket.control, asking.json),
        Command::Explain(explain) => ask::explain(explain),
        Command::Capture(options) => capture::run(&options),
        Command::Speed(options) => speed::run(&options),
        Command::Tune(options) => tune::run(&options),
        Command::Lab { arguments } => lab::exec(&arguments),
        Command::IkeStarter(options) => ike::starter(options),
        Command::IkeProcess(options) => ike::ike_process(options),
        Command::IkeKeys(options) => ike::key_process(options),
        Command::HookRunner(options) => hooks::hook_runner(options),
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
    fn a_status_is_of_some_peers_or_complete_and_json_is_complete() {
        let parse = |words: &[&str]| {
            let line = ["esplanade", "status"].iter().chain(words);
            Program::try_parse_from(line).map(drop)
        };
        for right in [
            &[][..],
            &["office", "branch"],
            &["--all"],
            &["--json"],
            &["--all", "--json"],
        ] {
            assert!(parse(right).is_ok(), "{right:?}");
        }
        for wrong in [&["office", "--json"][..], &["office", "--all"]] {
            let refused = parse(wrong).unwrap_err().to_string();
            assert!(refused.contains("cannot be used with"), "{refused}");
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
