//! Why a command failed, as its user reads it.

use std::fmt;
use std::io;

/// Why a command or request failed: one message for its user, and an exit code that is not 0. No caller decides by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// A failure with exit code 1.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self::with_code(message, 1)
    }

    /// A failure with an exit code of its own.
    pub(crate) fn with_code(message: impl fmt::Display, code: u8) -> Self {
        Self {
            message: message.to_string(),
            code,
        }
    }

    /// The exit code of the program.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
