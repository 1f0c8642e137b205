//! Standard output.

use std::io::{self, Write};
use std::process::ExitCode;

/// Prints to standard output. The reader may close the pipe early (`| head`): that is no error.
pub(super) fn print_text(text: &str) -> Result<ExitCode, String> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write the output: {error}"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
