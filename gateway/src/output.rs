//! Standard output of a command.

use crate::failure::Failure;
use std::io::{self, Write};

/// Prints to standard output; a closed pipe is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}
