//! `setkey` under its own name, for scripts that call it.

use clap::Parser;
use gateway::setkey_cli::{Program, run};
use std::io::{stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    let program = Program::parse();
    run(
        &program.arguments,
        &mut stdout().lock(),
        &mut stderr().lock(),
    )
}
