//! `esplanade`: the gateway, and everything that talks to it.

use std::process::ExitCode;

fn main() -> ExitCode {
    gateway::cli::main()
}
