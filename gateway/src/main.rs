//! `esplanade`: the gateway, and the commands that use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    gateway::cli::main()
}
