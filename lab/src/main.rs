//! The program `esplanade-lab`, reached as `esplanade lab …`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::cli::main()
}
